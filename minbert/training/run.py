"""The folder of a run: manifest, metrics and checkpoints; and the environment that a run's bits depend on."""

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from minbert.errors import UserError
from minbert.files import read_json, write_atomic, write_json
from minbert.training import checkpoint, ranks

_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "tokenizers", "safetensors", "nltk", "lemminflect")
_ROOT = Path(__file__).parent.parent.parent


class RunDir:
    """A run's folder. `open` and `check` decide whether it may be used; nothing is written before `begin`.

    With several ranks, the first one alone writes.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._manifest, self._metrics = path / "manifest.json", path / "metrics.jsonl"
        self._resume = resume
        self._content: dict[str, Any] = {}
        self._begun = time.perf_counter()

    @classmethod
    def open(cls, path: Path, *, resume: bool, identity: dict[str, Any]) -> "RunDir":
        """The folder of a run; `identity` is the part of its identity that is known before data are read.

        Raises `UserError` as `check` does, and if the newest checkpoint of a run to resume is damaged.
        """
        run = cls(path, resume=resume)
        run.check(identity)
        if resume:
            checkpoint.check(run.checkpoints)
        return run

    def check(self, identity: dict[str, Any]) -> None:
        """Check that this run may use the folder.

        Raises `UserError` if it is not empty and the run is not resumed, if it belongs to a run with another value in
        `identity`, or if it is not writable.
        """
        path = self.path
        if path.is_dir() and any(path.iterdir()):
            if not self._resume:
                raise UserError(
                    f"--run-dir {path}: exists already; add --resume to resume it, or choose another folder"
                )
            self._check_identity(identity)
        nearest = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise UserError(f"--run-dir {path}: {nearest} is not a folder that can be written to")

    def _check_identity(self, identity: dict[str, Any]) -> None:
        if not self._manifest.is_file():
            if checkpoint.steps(self.checkpoints):
                raise UserError(f"--run-dir {self.path}: holds checkpoints but no manifest.json")
            return
        content = read_json(self._manifest)
        before = content.get("settings") if isinstance(content, dict) else None
        if not isinstance(before, dict):
            raise UserError(f"{self._manifest}: not the manifest of a run")
        changed = [
            f"{name if ' ' in name else '--' + name.replace('_', '-')} (was {before.get(name)!r}, now {value!r})"
            for name, value in identity.items()
            if before.get(name) != value
        ]
        if changed:
            raise UserError(f"--resume: {self.path} was started with other settings: {', '.join(changed)}")

    def begin(self, manifest: dict[str, Any]) -> list[str]:
        """Create the folder and its manifest, or add a part to the manifest of a resumed run.

        A part is one invocation of the script: when it `started`, its `command` and `environment`, its first and last
        checkpointed step (`from_step`, `to_step`), and the `seconds` from its beginning to its newest checkpoint.
        `to_step` is null while the part is running and, after a kill, until the run is resumed. The rest of the
        manifest is from the first invocation.

        Returns the differences from the previous part's environment: the run's bits may then differ as well.
        """
        if ranks.rank():
            return []
        before = read_json(self._manifest) if self._manifest.is_file() else {}
        now = manifest.get("environment", {})
        step = next(reversed(checkpoint.steps(self.checkpoints)), 0)
        part = {"started": now.get("started"), "command": manifest.get("command"), "from_step": step, "to_step": None}
        parts = before.get("parts", [])
        if parts and parts[-1]["to_step"] is None:  # it was killed: its steps after the last checkpoint are lost
            parts[-1]["to_step"] = step
        self._content = {**manifest, **before, "parts": [*parts, part | {"seconds": 0.0, "environment": now}]}
        self._begun = time.perf_counter()
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--run-dir {self.path}: cannot be created: {error.strerror}") from error
        write_json(self._manifest, self._content)
        last = parts[-1].get("environment", {}) if parts else {}
        kinds = [name for name in last if name != "started" and last[name] != now.get(name)]
        return [f"{name} {now.get(name)} (was {last[name]})" for name in kinds]

    def reached(self, step: int, *, ended: bool = False) -> None:
        """Record in the manifest the time of this part until the checkpoint of `step`, and whether the part ended."""
        if ranks.rank():
            return
        seconds = round(time.perf_counter() - self._begun, 3)
        self._content["parts"][-1] |= {"to_step": step if ended else None, "seconds": seconds}
        write_json(self._manifest, self._content)

    def log(self, row: dict[str, Any]) -> None:
        """Append one row to `metrics.jsonl`."""
        if ranks.rank() == 0:
            with open(self._metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All rows of `metrics.jsonl`, or none if there is no such file."""
        if not self._metrics.is_file():
            return []
        return [json.loads(line) for line in self._metrics.read_text(encoding="utf-8").splitlines()]

    def forget_after(self, step: int) -> None:
        """Delete the rows logged after `step`, as these steps are repeated, and a last line that a kill truncated."""
        if ranks.rank() or not self._metrics.is_file():
            return
        lines = self._metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        write_atomic(self._metrics, "".join(line for line in whole if json.loads(line)["step"] <= step))


def manifest_behind(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The manifest of the run that an encoder's folder comes from, as (its path, its content), or None.

    It is searched for in `folder` and its parent. Another program's `manifest.json` is ignored.
    """
    path = next((up / "manifest.json" for up in (folder, folder.parent) if (up / "manifest.json").is_file()), None)
    content = read_json(path) if path else None
    return (path, content) if path and isinstance(content, dict) and {"data", "settings"} <= content.keys() else None


def data_files(data: Any, use: str = "") -> Iterator[tuple[str, str, str]]:
    """(file, SHA-256, `train` or `dev`) of the files under a manifest's `data`, without those for testing."""
    if isinstance(data, list):
        for inner in data:
            yield from data_files(inner, use)
    elif isinstance(data, dict) and {"file", "sha256"} <= data.keys():
        if use != "test":
            yield str(data["file"]), str(data["sha256"]), use or "train"
    elif isinstance(data, dict):
        for name, inner in data.items():
            yield from data_files(inner, use or next((kind for kind in ("train", "dev", "test") if kind in name), ""))


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware that may affect a run's bits, and the time."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        "commit": commit(),
        "machine": platform.machine(),
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def commit(root: Path = _ROOT) -> str | None:
    """The project's git commit, followed by `-dirty` if tracked files have changes; None without git."""
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or None


def _cpu() -> str:
    """The CPU's model name on Linux, else what `platform.processor` returns."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
