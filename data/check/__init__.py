"""What the data files hold, and which rows they share: `python data/get_data.py check`."""
