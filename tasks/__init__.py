"""The tasks: the three downstream tasks, your own, contrastive pre-training, data readers and evaluation."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# OpenMP's threads spin at every barrier, and keep a core from the thread they wait for if another program needs it too.
# A training step of 0.20 s on two cores takes 3.1 s beside one busy process with the default of 300,000, and 0.5 s with
# this one, which costs an idle machine 7%. The variable is read when torch is loaded, so torch comes after this.
os.environ.setdefault("GOMP_SPINCOUNT", "4000")

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
