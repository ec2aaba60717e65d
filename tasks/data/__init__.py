"""Fetching the real data sets and checking data files: the commands of `data/get_data.py`."""
