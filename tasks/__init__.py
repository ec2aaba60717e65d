"""The tasks: the three downstream tasks, contrastive pre-training, data readers and evaluation."""

from tasks.registry import TASKS

__all__ = ["TASKS"]
