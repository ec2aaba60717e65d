"""One page a run: scores beside the papers', where it errs, how it was trained, and how to repeat it."""
