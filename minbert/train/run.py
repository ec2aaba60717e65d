"""The folder of a run: manifest, metrics and checkpoints; and the environment that a run's bits depend on."""

import errno
import fcntl
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import torch

from minbert.errors import UserError, format_count
from minbert.files import TEMPORARY, make_folder, read_json, remove, sync, write_atomic, write_json
from minbert.precision import cpu_has
from minbert.train import checkpoint, cli, distributed, track
from minbert.train.settings import flag_name

_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "tokenizers", "safetensors", "nltk", "lemminflect")

InputFiles = Mapping[str, tuple[Path | str, str]]
"""What a run reads: role, such as `train sst` -> (a file or folder, hex SHA-256 of its content)."""


class RunFolder:
    """A run's folder. Nothing but its lock is written before `start_session`; of several ranks, the first alone writes.

    tracked: the value of `--track`.
    """

    def __init__(self, path: Path, *, resume: bool = False, tracked: str = "none") -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.resumed_step: int | None = None
        """The step of the checkpoint that training continues from, on the first rank; None if it begins."""
        self._manifest_path = path / "manifest.json"
        self._metrics_path = path / "metrics.jsonl"
        self._lock_file = path / ".minbert.lock"
        self._lock_inode: int | None = None  # of the lock file that this process holds
        self._resume = resume
        self._tracked = tracked
        self._tracker: track.Tracker | None = None
        self._manifest: dict[str, Any] = {}  # empty before `start_session`
        self._opened = time.perf_counter()

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, *, resume: bool, identity: dict[str, Any], tracked: str = "none"
    ) -> Iterator["RunFolder"]:
        """The folder of a run, which this process has locked until the context ends.

        `identity` is the part of the run's identity that is known before data are read. Raises `UserError` as `check`
        and `track.require_installed` do, and if another process has locked the folder; `OSError` if it cannot be
        written to.
        """
        track.require_installed(tracked)
        run = cls(path, resume=resume, tracked=tracked)
        cli.resumable = True
        with run._locked() if distributed.rank() == 0 else nullcontext():
            run.check(identity)
            try:
                yield run
            finally:
                if run._tracker:
                    run._tracker.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, which a kill releases as well; a folder created for it is deleted if it stays empty.

        Raises `UserError`, naming a process that holds it.
        """
        created = [folder for folder in self._lock_file.parents if not folder.exists()]
        make_folder(self.path)
        try:
            # "a+" neither requires the file nor truncates it: it may hold the name of the process that has the lock
            with open(self._lock_file, "a+", encoding="utf-8") as file:
                self._acquire(file)
                file.truncate(0)
                file.write(f"process {os.getpid()} on {platform.node()}\n")
                file.flush()
                self._lock_inode = os.fstat(file.fileno()).st_ino
                try:
                    yield
                finally:
                    if self._holds_lock():
                        self._lock_file.unlink()
        finally:
            for folder in created:
                with suppress(OSError):  # something is in it
                    folder.rmdir()

    def _acquire(self, file: IO[str]) -> None:
        """Lock an open file. Raises `UserError` if another process has done so."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # a process that ends deletes the file, which this one may have opened just before
            in_use = os.fstat(file.fileno()).st_nlink == 0
        except BlockingIOError:
            in_use = True
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                raise
            distributed.note(f"{self.path}: its file system has no locks; do not start this run twice at a time")
            return
        if in_use:
            file.seek(0)
            raise UserError(f"{self.path}: is in use by {file.read().strip() or 'another process'}")

    def _holds_lock(self) -> bool:
        """Whether the lock file is still the one that this process has locked."""
        try:
            return self._lock_file.stat().st_ino == self._lock_inode
        except FileNotFoundError:
            return False

    def _check_lock(self) -> None:
        """Raises `UserError` if the folder was removed while the run was training; it must not come back unlocked."""
        if self._lock_inode is not None and not self._holds_lock():
            raise UserError(f"{self.path}: was removed while the run was training")

    def _sweep(self) -> None:
        """Delete what `minbert.files` was writing when a process was killed; what it was replacing stays."""
        for path in list(self.path.rglob(".*")):
            match = TEMPORARY.fullmatch(path.name)
            if match is None:
                continue
            original = path.with_name(match["original"])
            if match["ending"] == "old" and not original.exists():
                path.rename(original)
            else:
                remove(path)

    def check(self, identity: Mapping[str, Any], inputs: InputFiles | None = None) -> None:
        """Raises `UserError` if the folder holds other files, a run without `--resume`, or a run of another identity.

        `inputs` is what the run reads; with its hashes the identity is complete.
        """
        if not self._manifest_path.exists():
            # a run that was killed before it wrote its manifest leaves nothing else
            remains = (self._lock_file, self.checkpoints)
            entries = [*self.path.glob("*"), *self.checkpoints.glob("*")]
            if any(path not in remains and not TEMPORARY.fullmatch(path.name) for path in entries):
                raise UserError(f"--run-dir {self.path}: is not empty and holds no run; choose another folder")
            return
        if not self._resume:
            raise UserError(
                f"--run-dir {self.path}: exists already; add --resume to resume it, or choose another folder"
            )
        manifest = read_json(self._manifest_path)
        earlier = manifest["settings"]
        # first, as nearly all settings of another script differ; runs of earlier versions do not name theirs
        if "program" in earlier and earlier["program"] != identity.get("program"):
            name = earlier["program"].removeprefix("-m ")
            raise UserError(f"--resume: {self.path} holds a run of {name}, which was started by: {manifest['command']}")
        changed = []
        for name, value in identity.items():
            if name != "program" and earlier.get(name) != value:
                flag = name if " " in name else flag_name(name)
                changed.append(f"{flag} (was {earlier.get(name)!r}, now {value!r})")
        if inputs is not None:
            for name, (path, sha256) in inputs.items():
                if earlier.get(name) != sha256:
                    changed.append(f"{name.removesuffix(' sha256')} ({path} is not what it was at the start)")
            for name in sorted(earlier.keys() - identity.keys() - inputs.keys()):
                changed.append(f"{name} (is not set or read any more)")
        if changed:
            raise UserError(f"--resume: {self.path} was started with other settings or data: {', '.join(changed)}")

    def start_session(self, manifest: dict[str, Any]) -> list[str]:
        """Write the manifest, or add a session to that of a resumed run, and find its newest whole checkpoint.

        A session is one invocation of the script: when it `started`, its `command` and `environment`, the step that it
        began with (`from_step`), that of its newest checkpoint (`to_step`), and its wall time in `seconds` until that
        checkpoint or its end. The rest of the manifest but `data` is from the first invocation.

        Returns the differences from the previous session's environment: the run's bits may then differ as well. Raises
        `UserError` if all checkpoints are damaged or were deleted.
        """
        if distributed.rank():
            return []
        make_folder(self.checkpoints)
        self._sweep()
        self.resumed_step, damages = checkpoint.newest_whole(self.checkpoints)
        step = self.resumed_step or 0
        earlier = read_json(self._manifest_path) if self._manifest_path.exists() else {"sessions": []}
        sessions = earlier["sessions"]
        reached = sessions[-1]["to_step"] if sessions else 0
        if self.resumed_step is None and (damages or reached):
            problem = f"{self.checkpoints}: holds no checkpoint, but the run had reached step {reached:,}"
            if damages:
                problem = f"{damages[0]}; no checkpoint is whole"
            raise UserError(f"{problem}; start again in another folder")
        for damage in damages:
            distributed.note(f"{damage}; the run goes on from step {step:,}")
        self._forget_repeated_rows()

        current = manifest["environment"]
        session = {
            "started": current["started"],
            "command": manifest["command"],
            "from_step": step,
            "to_step": step,
            "seconds": 0.0,
            "environment": current,
        }
        changes = []
        if sessions:
            previous = sessions[-1]
            previous["to_step"] = step  # a kill may have come between a checkpoint and its record
            for name, value in previous["environment"].items():
                if name != "started" and current.get(name) != value:
                    changes.append(f"{name} {current.get(name)} (was {value})")
        # the hashes of the data are the same, but the files may have been moved since
        earlier.pop("data", None)
        self._manifest = {**manifest, **earlier, "sessions": [*sessions, session]}
        write_json(self._manifest_path, self._manifest)

        # a row of the checkpoint's step may have been logged in a file that the new one hides
        if self._tracked != "none":
            self._tracker = track.Tracker(self.path, self._manifest, step, self._tracked)
            for row in self.metrics():
                if row["step"] == step:
                    self._tracker.log(row)
        return changes

    def _forget_repeated_rows(self) -> None:
        """Delete the rows that a resumed run logs again, and lines that a crash has damaged.

        A checkpoint is written after the training row of its step and before its evaluation.
        """
        if self.resumed_step is None or not self._metrics_path.is_file():
            self._metrics_path.unlink(missing_ok=True)
            return
        last_step = self.resumed_step
        finished = checkpoint.state_of(self.checkpoints, last_step)["finished"]
        # an unfinished run evaluates again after the checkpoint that it resumes from
        last_evaluation = last_step if finished else last_step - 1
        kept = []
        damaged = 0
        *lines, _ = self._metrics_path.read_bytes().split(b"\n")  # what follows the last line end was cut off by a kill
        for line in lines:
            row = _parse_row(line)
            if row is None:
                damaged += 1
            elif row["step"] <= (last_evaluation if row["kind"] == "evaluation" else last_step):
                kept.append(line + b"\n")
        if damaged:
            distributed.note(f"{self._metrics_path}: {format_count(damaged, 'unreadable lines')} dropped")
        write_atomic(self._metrics_path, b"".join(kept))

    def record_step(self, step: int) -> None:
        """Record in the manifest the newest checkpoint of this session, and the session's time until now."""
        session = self._manifest["sessions"][-1]
        session["to_step"] = step
        session["seconds"] = round(time.perf_counter() - self._opened, 3)
        write_json(self._manifest_path, self._manifest)

    def log(self, row: dict[str, Any]) -> None:
        """Append one row to `metrics.jsonl`, and record its numbers in the tracker.

        Raises `UserError` if the folder was removed.
        """
        if distributed.rank():
            return
        self._check_lock()
        # opened for each row: nothing stays in a buffer if the process is killed
        with open(self._metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        if self._tracker:
            self._tracker.log(row)

    def sync_metrics(self) -> None:
        """Flush `metrics.jsonl` to disk, so that no checkpoint is newer than its rows.

        Raises `UserError` if the folder was removed.
        """
        self._check_lock()
        if self._metrics_path.is_file():
            sync(self._metrics_path)
            sync(self.path)  # the file's entry, which may be new

    def metrics(self) -> list[dict[str, Any]]:
        """All readable rows of `metrics.jsonl`, or none if there is no such file."""
        if not self._metrics_path.is_file():
            return []
        rows = [_parse_row(line) for line in self._metrics_path.read_bytes().split(b"\n")]
        return [row for row in rows if row is not None]


def _parse_row(line: bytes) -> dict[str, Any] | None:
    """A row of the metrics; None if the line is not one, such as the zeros that a power loss leaves."""
    try:
        return json.loads(line)
    except ValueError:
        return None


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
    """What the bits of a computation depend on besides the versions: processor, instructions, number of threads."""
    processor = _cpu_name()
    if device.type == "cuda":
        processor = torch.cuda.get_device_name(device)
    # those that oneDNN may use, on which the bits of bfloat16 products depend
    instructions = torch.backends.cpu.get_cpu_capability()
    if cpu_has("amx_tile"):
        instructions = "AMX"
    return {
        "processor": processor,
        "instructions": os.environ.get("ONEDNN_MAX_CPU_ISA") or instructions,
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """The project's git commit, followed by `-dirty` if tracked files have changes; None without git."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or None


def _cpu_name() -> str:
    """The CPU's model name on Linux, else what `platform.processor` returns."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
