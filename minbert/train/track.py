"""Tracking a run besides its `metrics.jsonl`: `--track tensorboard`, or `wandb`, which reads TensorBoard's records.

Without `--track` neither library is imported.
"""

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minbert.errors import UserError

_PACKAGES = {"none": (), "tensorboard": ("tensorboard",), "wandb": ("wandb", "tensorboard")}
_NOT_RECORDED = ("step", "best")


def require_installed(tracker: str) -> None:
    """Raises `UserError` if a package of a tracker, a value of `--track`, is not installed."""
    for package in _PACKAGES[tracker]:
        if importlib.util.find_spec(package) is None:
            raise UserError(f"--track {tracker}: {package} is not installed; run `pip install {package}`")


class Tracker:
    """Event files in `RUN/tensorboard`, which Weights & Biases reads if asked for; offline if nobody is logged in.

    A run that is resumed at the checkpoint of `step` adds an event file, which hides that step and later ones in the
    files before, and keeps its id in Weights & Biases.
    """

    def __init__(self, run: Path, manifest: Mapping[str, Any], step: int, name: str) -> None:
        self._name = name
        if name == "wandb":
            _start_wandb(run, manifest)
        from torch.utils.tensorboard import SummaryWriter  # after W&B has patched it

        self._writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=step)
        settings = json.dumps(manifest["all_settings"], indent=2)
        self._writer.add_text("settings", f"`{manifest['command']}`\n```\n{settings}\n```", step)

    def log(self, row: Mapping[str, Any]) -> None:
        """Record the numbers of a row of the metrics, and flush, as a killed process flushes nothing."""
        for name, value in scalars(row).items():
            self._writer.add_scalar(name, value, row["step"])
        self._writer.flush()

    def close(self) -> None:
        """End the recording; the next run of this process is another one."""
        self._writer.close()
        if self._name == "wandb":
            import wandb

            wandb.finish()


def _start_wandb(run: Path, manifest: Mapping[str, Any]) -> None:
    import wandb

    logged_in = "WANDB_MODE" in os.environ or wandb.login(prompt=False, verify=False)
    first_start = f"{run.resolve()} {manifest['sessions'][0]['started']}"
    wandb.init(
        project=os.environ.get("WANDB_PROJECT", "minbert"),
        name=run.resolve().name,
        id=hashlib.sha256(first_start.encode()).hexdigest()[:12],
        resume="allow",
        mode=None if logged_in else "offline",
        dir=run,
        config=dict(manifest["all_settings"]),
        settings=wandb.Settings(silent=True, console="off"),
        sync_tensorboard=True,
    )


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row of the metrics: `quora/loss` keeps its name, `lr` and `dev_norm` get a group."""
    group = "dev" if row["kind"] == "evaluation" else "train"
    values = {}
    for name, value in row.items():
        if isinstance(value, int | float) and name not in _NOT_RECORDED:
            values[name if "/" in name else f"{group}/{name}"] = float(value)
    return values
