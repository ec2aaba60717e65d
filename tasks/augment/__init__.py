"""Text augmentation in training: synonyms (CBCL, section 4.4) and punctuation (EdaCSE, section 3.3)."""
