"""The training loop of both scripts, with its plans, checkpoints, run folders and settings."""
