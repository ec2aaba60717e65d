"""Statistics of the data files, and overlaps between them: `python data/get_data.py check`."""
