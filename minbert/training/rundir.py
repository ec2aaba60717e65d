"""One folder a run: manifest, metrics, checkpoints, and what the run makes."""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import read_json, write_atomic, write_json
from minbert.training import checkpoint


class RunDir:
    """A run's folder. `open` decides whether it may be used; nothing is written before `begin`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"

    @classmethod
    def open(cls, path: Path, *, resume: bool, identity: dict[str, Any]) -> "RunDir":
        """The folder for a run whose settings are `identity`.

        Raises `UserError` where the folder exists and `resume` is off, where it belongs to a run with other
        settings or to one whose newest checkpoint is damaged, or where it cannot be written.
        """
        run = cls(path)
        if path.exists() and not path.is_dir():
            raise UserError(f"--run-dir {path}: is a file, not a folder")
        if path.is_dir() and any(path.iterdir()):
            if not resume:
                raise UserError(f"--run-dir {path}: exists already; add --resume to go on, or choose another folder")
            run._check_identity(identity)
            checkpoint.check(run.checkpoints)
        nearest = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise UserError(f"--run-dir {path}: {nearest} is not a folder that can be written to")
        return run

    def _check_identity(self, identity: dict[str, Any]) -> None:
        if not (self.path / "manifest.json").is_file():
            if checkpoint.steps(self.checkpoints):
                raise UserError(f"--run-dir {self.path}: holds checkpoints but no manifest.json")
            return
        content = read_json(self.path / "manifest.json")
        before = content.get("settings") if isinstance(content, dict) else None
        if not isinstance(before, dict):
            raise UserError(f"{self.path / 'manifest.json'}: not the manifest of a run")
        changed = [name for name, value in identity.items() if before.get(name) != value]
        if changed:
            names = {name: name if " " in name else f"--{name.replace('_', '-')}" for name in changed}
            flags = ", ".join(f"{names[name]} (was {before.get(name)!r}, now {identity[name]!r})" for name in changed)
            raise UserError(f"--resume: {self.path} was started with other settings: {flags}")

    def begin(self, manifest: dict[str, Any]) -> list[str]:
        """Make the folder and write its manifest.

        Returns what differs from the environment of a run that is resumed: its bits may then differ as well.
        """
        before = read_json(path).get("environment", {}) if (path := self.path / "manifest.json").is_file() else {}
        now = manifest.get("environment", {})
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--run-dir {self.path}: cannot be made: {error.strerror}") from error
        write_json(path, manifest)
        kinds = [name for name in before if name != "started" and before[name] != now.get(name)]
        return [f"{name} {now.get(name)} (was {before[name]})" for name in kinds]

    def log(self, row: dict[str, Any]) -> None:
        """Append one row to `metrics.jsonl`."""
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All rows logged so far."""
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []

    def forget_after(self, step: int) -> None:
        """Drop the rows logged after `step`, and a last line that a kill cut off: those steps are made again."""
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        write_atomic(path, "".join(line for line in whole if json.loads(line)["step"] <= step))


def manifest_behind(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The manifest of the run that an encoder's folder comes from, after its path; None without one.

    It lies beside the encoder's folder, or in it. Another program's manifest is none.
    """
    path = next((up / "manifest.json" for up in (folder, folder.parent) if (up / "manifest.json").is_file()), None)
    content = read_json(path) if path else None
    return (path, content) if path and isinstance(content, dict) and {"data", "settings"} <= content.keys() else None


def environment(threads: int, device: str) -> dict[str, Any]:
    """Versions and machine, as far as they decide a run's bits."""
    from importlib.metadata import version

    packages = ("torch", "numpy", "tokenizers", "safetensors")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "machine": platform.machine(),
        "threads": threads,
        "device": device,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
