"""A page on this machine on which finished runs are tried: `python -m tasks.serve RUN`."""
