"""Fetching the real data sets and checking data files: the commands of `data/get_data.py`."""

from pathlib import Path

_PROJECT = Path(__file__).parents[2] / "data"
FOLDER = _PROJECT if _PROJECT.is_dir() else Path("data")
"""The default folder of the data: the project's, or `data` in the current folder for an installed package."""
