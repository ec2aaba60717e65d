"""Fetching data: the table of public data sets, resumable downloads, safe unpacking, and a manifest per set."""
