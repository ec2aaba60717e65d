"""The tasks: the three downstream tasks, contrastive pre-training, data readers and evaluation."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import `TASKS` on first use."""
    if name != "TASKS":
        raise AttributeError(f"module 'tasks' has no attribute '{name}'")
    from tasks.registry import TASKS

    return TASKS
