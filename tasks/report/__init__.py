"""One page a run: its scores, where it errs, how it was trained, its data, and the command that repeats it."""
