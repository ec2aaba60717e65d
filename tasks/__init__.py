"""The tasks: the three downstream tasks, your own, contrastive pre-training, data readers and evaluation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import minbert  # noqa: F401  before torch, which then reads what it sets

if TYPE_CHECKING:
    from tasks.api import TrainedRun, load, train
    from tasks.registry import TASKS

__all__ = ["TASKS", "TrainedRun", "load", "train"]


def __getattr__(name: str) -> Any:
    """The public names when they are asked for: contrastive pre-training needs neither tasks nor fine-tuning."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "tasks.registry" if name == "TASKS" else "tasks.api"
    return getattr(import_module(module), name)
