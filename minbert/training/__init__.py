"""Anything is trained here: plans, checkpoints, run folders, flags, and the one loop of both scripts."""
