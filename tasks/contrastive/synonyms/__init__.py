"""Synonym replacement with WordNet (CBCL, section 4.4)."""
