"""Fetching data: the table of public data sets, verified downloads, safe unpacking, and a manifest per set."""
