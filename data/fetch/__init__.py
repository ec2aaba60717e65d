"""Fetching: the table of public data sets, transfers that resume, archives, WordNet, and the manifest of each set."""
