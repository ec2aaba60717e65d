"""The tasks: the three downstream tasks, your own, contrastive pre-training, data readers and evaluation."""

from typing import TYPE_CHECKING, Any

from tasks.registry import TASKS

if TYPE_CHECKING:
    from tasks.api import TrainedRun, load, train

__all__ = ["TASKS", "TrainedRun", "load", "train"]


def __getattr__(name: str) -> Any:
    """`train`, `load` and `TrainedRun`, which need the whole of fine-tuning, when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tasks import api

    return getattr(api, name)
