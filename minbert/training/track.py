"""Tracking a run in TensorBoard or Weights & Biases, beside its own `metrics.jsonl`: `--track tensorboard,wandb`.

A tracker receives the rows that the run logs. Without `--track` there are none, and this module is not imported.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from minbert.errors import UserError, one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Row = Mapping[str, Any]


class Tracker(Protocol):
    """One open record of a run, which starts or goes on after `step`; `rows` are those of its earlier parts."""

    def __init__(self, run: Path, manifest: Mapping[str, Any], step: int, rows: Sequence[Row]) -> None: ...

    def log(self, row: Row) -> None:
        """Record the numbers of a row of the metrics."""

    def figure(self, name: str, figure: "Figure") -> None:
        """Record a figure at the last step."""


class TensorBoard:
    """Event files in `RUN/tensorboard`. A resumed run adds a file, which hides the steps that are repeated."""

    def __init__(self, run: Path, manifest: Mapping[str, Any], step: int, rows: Sequence[Row]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._step = step
        self._writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)
        settings = json.dumps(manifest["all_settings"], indent=2)
        self._writer.add_text("settings", f"`{manifest['command']}`\n```\n{settings}\n```", step)

    def log(self, row: Row) -> None:
        """Add a scalar for each number, and flush, as a killed process flushes nothing."""
        self._step = row["step"]
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, self._step)
        self._writer.flush()

    def figure(self, name: str, figure: "Figure") -> None:
        """Add an image."""
        self._writer.add_figure(name, figure, self._step)
        self._writer.flush()


class WandB:
    """A run of Weights & Biases, offline if nobody is logged in.

    A resumed run goes on under the same id. The steps that it repeats are already recorded, and W&B replaces nothing.
    """

    def __init__(self, run: Path, manifest: Mapping[str, Any], step: int, rows: Sequence[Row]) -> None:
        import matplotlib.pyplot  # noqa: F401, as wandb.Image looks for it
        import wandb

        self._image, self._step = wandb.Image, step
        self._recorded = {(row["step"], name) for row in rows for name in numbers(row)}
        known = "WANDB_MODE" in os.environ or wandb.login(prompt=False, verify=False)
        begun = f"{run.resolve()} {manifest['parts'][0]['started']}"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "minbert"),
            name=run.resolve().name,
            id=hashlib.sha256(begun.encode()).hexdigest()[:12],
            resume="allow",
            mode=None if known else "offline",
            dir=run,
            config=dict(manifest["all_settings"]),
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, row: Row) -> None:
        """Log the numbers over our step."""
        self._step = row["step"]
        new = {name: value for name, value in numbers(row).items() if (self._step, name) not in self._recorded}
        if new:
            self._run.log({**new, "step": self._step})

    def figure(self, name: str, figure: "Figure") -> None:
        """Log an image."""
        self._run.log({name: self._image(figure), "step": self._step})


_NO_NUMBERS = ("step", "best")
_KINDS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB}


def chosen(names: str) -> list[type[Tracker]]:
    """The trackers named in `--track`; raises `UserError` for an unknown one, and for one that is not installed."""
    found = [one_of(name, [*_KINDS, "none"], "--track") for name in names.split(",")]
    kept = [name for name in dict.fromkeys(found) if name != "none"]
    for name in kept:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--track {name}: {name} is not installed; run `pip install {name}`")
    return [_KINDS[name] for name in kept]


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a row of the metrics: `quora/loss` keeps its name, `lr` and `dev_norm` get a group."""
    group = "dev" if row.get("kind") == "evaluation" else "train"
    found = {name: value for name, value in row.items() if isinstance(value, int | float) and name not in _NO_NUMBERS}
    return {name if "/" in name else f"{group}/{name}": float(value) for name, value in found.items()}
