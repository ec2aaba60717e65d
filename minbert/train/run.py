"""The folder of a run: manifest, metrics and checkpoints; and the environment that a run's bits depend on."""

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from minbert.errors import UserError
from minbert.files import TEMPORARY, make_folder, read_json_object, sync, write_atomic, write_json
from minbert.train import checkpoint, cli, distributed, track

_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "tokenizers", "safetensors", "nltk", "lemminflect")

InputFiles = Mapping[str, tuple[Path | str, str]]
"""What a run reads: role, such as `train sst` -> (a file or folder, hex SHA-256 of its content)."""


class RunFolder:
    """A run's folder. Nothing but its lock is written before `begin_part`; with several ranks, the first alone writes.

    `tracked` is the value of `--track`.
    """

    def __init__(self, path: Path, *, resume: bool = False, tracked: str = "none") -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._manifest, self._metrics = path / "manifest.json", path / "metrics.jsonl"
        self._lock_file = path / ".minbert.lock"
        self._resume, self._tracked = resume, tracked
        self._tracker: track.Tracker | None = None
        self._content: dict[str, Any] = {}
        self._begun = time.perf_counter()

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, *, resume: bool, identity: dict[str, Any], tracked: str = "none"
    ) -> Iterator["RunFolder"]:
        """The folder of a run, which this process has locked until the context ends.

        `identity` is the part of the run's identity that is known before data are read. Raises `UserError` as `check`
        and `track.demand_installed` do, and if the folder cannot be written to or another process has locked it.
        """
        track.demand_installed(tracked)
        run = cls(path, resume=resume, tracked=tracked)
        nearest = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            raise UserError(f"--run-dir {path}: {nearest} is not a folder that can be written to")
        cli.resumable = True
        with run._locked() if distributed.rank() == 0 else nullcontext():
            run.check(identity)
            yield run

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, which a kill releases as well; a folder made for it is deleted if it stays empty.

        Raises `UserError`, naming a process that holds it, and `OSError` if its file cannot be created or is a link,
        which filelock does not follow.
        """
        created = [folder for folder in self._lock_file.parents if not folder.exists()]
        make_folder(self.path)
        try:
            with self._acquired():
                self._lock_file.write_text(f"process {os.getpid()} on {platform.node()}\n", encoding="utf-8")
                try:
                    yield
                finally:
                    self._lock_file.unlink(missing_ok=True)
        finally:
            for folder in created:
                with suppress(OSError):  # something is in it
                    folder.rmdir()

    def _acquired(self) -> AbstractContextManager[object]:
        """The lock, which is released at the end of a `with` block."""
        try:
            return FileLock(self._lock_file).acquire(blocking=False)
        except Timeout:
            holder = ""
            with suppress(FileNotFoundError):  # the other process has ended since
                holder = self._lock_file.read_text(encoding="utf-8").strip()
            raise UserError(f"{self.path}: is in use by {holder or 'another process'}") from None

    def _sweep(self) -> None:
        """Delete what `minbert.files` was writing when a process was killed; what it was replacing stays."""
        for path in list(self.path.rglob(".*")):
            if not (name := TEMPORARY.fullmatch(path.name)):
                continue
            if name[2] == "old" and not path.with_name(name[1]).exists():
                path.rename(path.with_name(name[1]))
            else:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def check(self, identity: Mapping[str, Any], inputs: InputFiles | None = None) -> None:
        """Raises `UserError` if the folder holds other files, a run without `--resume`, or a run of another identity.

        `inputs` is what the run reads; with its hashes the identity is complete.
        """
        if not self._manifest.exists():
            if any(self._foreign()):
                raise UserError(f"--run-dir {self.path}: is not empty and holds no run; choose another folder")
            return
        if not self._resume:
            raise UserError(
                f"--run-dir {self.path}: exists already; add --resume to resume it, or choose another folder"
            )
        earlier = self._read_manifest()["settings"]
        changed = [
            f"{name if ' ' in name else '--' + name.replace('_', '-')} (was {earlier.get(name)!r}, now {value!r})"
            for name, value in identity.items()
            if earlier.get(name) != value
        ]
        if inputs is not None:
            changed += [
                f"{name.removesuffix(' sha256')} ({path} is not what it was at the start)"
                for name, (path, sha256) in inputs.items()
                if earlier.get(name) != sha256
            ]
            gone = earlier.keys() - identity.keys() - inputs.keys()
            changed += [f"{name} (was {earlier[name]!r}, and is no setting of this version)" for name in sorted(gone)]
        if changed:
            raise UserError(f"--resume: {self.path} was started with other settings or data: {', '.join(changed)}")

    @property
    def threads(self) -> int | None:
        """The number of threads of a resumed run's last part; None for a new run."""
        if not self._manifest.exists():
            return None
        parts = self._read_manifest()["parts"]
        return parts[-1].get("environment", {}).get("threads") if parts else None

    def _foreign(self) -> Iterator[Path]:
        """Files other than the lock and the remains of a run that was killed before it wrote its manifest."""
        folders = [folder for folder in (self.path, self.checkpoints) if folder.is_dir()]
        for path in (path for folder in folders for path in folder.iterdir()):
            if path not in (self._lock_file, self.checkpoints) and not TEMPORARY.fullmatch(path.name):
                yield path

    def _read_manifest(self) -> dict[str, Any]:
        """The manifest of an earlier start. Raises `UserError` if the file is not one."""
        content = read_json_object(self._manifest)
        parts = content.get("parts")
        sound = isinstance(parts, list) and all(isinstance(part, dict) and "to_step" in part for part in parts)
        if not sound or not isinstance(content.get("settings"), dict):
            raise UserError(f"{self._manifest}: not the manifest of a run; start the run again in another folder")
        return content

    def begin_part(self, manifest: dict[str, Any]) -> list[str]:
        """Write the manifest, or add a part to that of a resumed run, whose damaged checkpoints are set aside.

        A part is one invocation of the script: when it `started`, its `command` and `environment`, its first and last
        checkpointed step (`from_step`, `to_step`), and its wall time in `seconds`, until its newest checkpoint
        or its end. `to_step` is null while the part is running and, after a kill, until the run is resumed. The rest of
        the manifest is from the first invocation.

        Returns the differences from the previous part's environment: the run's bits may then differ as well.
        """
        if distributed.rank():
            return []
        make_folder(self.checkpoints)
        self._sweep()
        distributed.note(*checkpoint.set_damaged_aside(self.checkpoints))
        earlier = self._read_manifest() if self._manifest.exists() else {}
        current = manifest.get("environment", {})
        step = next(reversed(checkpoint.steps(self.checkpoints)), 0)
        command = manifest.get("command")
        part = {"started": current.get("started"), "command": command, "from_step": step, "to_step": None}
        parts = earlier.get("parts", [])
        if parts and parts[-1]["to_step"] is None:  # it was killed: its steps after the last checkpoint are lost
            parts[-1]["to_step"] = step
        self._content = {**manifest, **earlier, "parts": [*parts, part | {"seconds": 0.0, "environment": current}]}
        write_json(self._manifest, self._content)
        if self._tracked != "none":
            self._tracker = track.Tracker(self.path, self._content, step, self._tracked)
        last = parts[-1].get("environment", {}) if parts else {}
        kinds = [name for name in last if name != "started" and last[name] != current.get(name)]
        return [f"{name} {current.get(name)} (was {last[name]})" for name in kinds]

    def record_step(self, step: int, *, ended: bool = False) -> None:
        """Record in the manifest the time of this part until the checkpoint of `step`, and whether the part ended."""
        if distributed.rank():
            return
        seconds = round(time.perf_counter() - self._begun, 3)
        self._content["parts"][-1] |= {"to_step": step if ended else None, "seconds": seconds}
        write_json(self._manifest, self._content)

    def log(self, row: dict[str, Any]) -> None:
        """Append one row to `metrics.jsonl`, and record its numbers in the tracker."""
        if distributed.rank() == 0:
            with open(self._metrics, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
        if self._tracker:
            self._tracker.log(row)

    def sync_metrics(self) -> None:
        """Flush `metrics.jsonl` to disk, so that no checkpoint is newer than its rows."""
        if self._metrics.is_file():
            sync(self._metrics)
            sync(self.path)  # the file's entry, which may be new

    def metrics(self) -> list[dict[str, Any]]:
        """All readable rows of `metrics.jsonl`, or none if there is no such file."""
        lines = self._metrics.read_bytes().split(b"\n") if self._metrics.is_file() else []
        return [row for row in map(_row, lines) if row]

    def forget_after(self, step: int, *, unevaluated: bool = False) -> None:
        """Delete the rows logged after `step`, as these steps are repeated, and lines that a crash has damaged.

        With `unevaluated`, the evaluation at `step` is repeated too.
        """
        if distributed.rank() or not self._metrics.is_file():
            return
        *lines, _ = self._metrics.read_bytes().split(b"\n")  # what follows the last line end was cut off by a kill
        rows = [(line, _row(line)) for line in lines]
        damaged = sum(row is None for _, row in rows)
        if damaged:
            distributed.note(f"{self._metrics}: {damaged} unreadable line{'s' * (damaged > 1)} dropped")
        last_evaluation = step - 1 if unevaluated else step
        kept = [
            line + b"\n"
            for line, row in rows
            if row and row["step"] <= (last_evaluation if row.get("kind") == "evaluation" else step)
        ]
        write_atomic(self._metrics, b"".join(kept))


def _row(line: bytes) -> dict[str, Any] | None:
    """A row of the metrics; None if the line is not one."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware that may affect a run's bits, and the time."""
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        "commit": _commit(),
        "machine": platform.machine(),
        **hardware(device),
        "device": str(device),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """What the bits of a computation depend on beside the versions: processor, instructions, number of threads."""
    return {
        "processor": torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu(),
        "instructions": _instructions(),
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """The project's git commit, followed by `-dirty` if tracked files have changes; None without git."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or None


def _instructions() -> str:
    """The instructions of the CPU that oneDNN may use, which the bits of bfloat16 products depend on."""
    amx = torch.cpu._is_amx_tile_supported()
    return os.environ.get("ONEDNN_MAX_CPU_ISA") or ("AMX" if amx else torch.backends.cpu.get_cpu_capability())


def _cpu() -> str:
    """The CPU's model name on Linux, else what `platform.processor` returns."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
