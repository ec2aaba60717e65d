"""Which sentences, which labels, which score: the three downstream tasks and contrastive pre-training."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`TASKS`, loaded on first use."""
    if name != "TASKS":
        raise AttributeError(f"module 'tasks' has no attribute '{name}'")
    from tasks.registry import TASKS

    return TASKS
