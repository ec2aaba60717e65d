"""The runs of a study: one cell for each arm and seed, with its folder, its commands and its state.

A cell is finished if its run folder has scores, dev rows and an encoder, which a script writes at its end, and if its
manifest names the settings that the arm asks for. A suite is, if its JSON file names the command.
"""

import fcntl
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from ablations.study import Arm, Study
from minbert.errors import UserError
from minbert.files import read_json, sha256_of
from minbert.training.run import RunDir

ROOT = Path(__file__).parent.parent
RUNS = Path("runs/ablations")
SUITE_FILES = {"sts_suite": "sts.json", "transfer": "transfer.json", "probes": "probes.json"}


@dataclass(frozen=True)
class Cell:
    """One arm with one seed: the run in `folder`, and the suites on its encoder."""

    arm: Arm
    seed: int
    folder: Path
    upstream: Path | None
    data: str
    suites: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The arm and the seed, for display."""
        return f"{self.arm.name} seed {self.seed}"

    @property
    def log(self) -> Path:
        """The file of everything that the cell's commands print."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def words(self) -> list[str]:
        """The flags of the training script."""
        own = self.arm.words(str(self.upstream / "encoder") if self.upstream else "")
        data = ["--data", self.data] if self.data else []
        return [*own, "--seed", str(self.seed), *data, "--run-dir", str(self.folder), "--resume"]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """The commands still to be run, in order: the suite's name or "", and the arguments of Python.

        Raises `UserError` if the folder holds a run with other settings.
        """
        if not self.arm.measured and not self.trained():
            yield "", [os.path.relpath(ROOT / f"{self.arm.script}.py"), *self.words()]
        for name, command in self.suites:
            module, *flags = shlex.split(command)
            encoder = self.arm.measured or str(self.folder / "encoder")
            data = ["--data", self.data] if self.data and "--data" not in flags else []
            words = ["--encoder", encoder, *flags, *data, "--out", str(self.folder / "suites" / name)]
            found = self.suite(name)
            if found.get("command") != shlex.join(["python", "-m", f"tasks.benchmarks.{module}", *words]):
                yield name, ["-m", f"tasks.benchmarks.{module}", *words]

    def suite(self, name: str) -> dict[str, Any]:
        """The JSON of one suite, empty if it has not been run."""
        module = dict(self.suites)[name].split()[0]
        path = self.folder / "suites" / name / SUITE_FILES[module]
        return read_json(path) if path.is_file() else {}

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the run, empty if it has none yet."""
        path = self.folder / "manifest.json"
        return read_json(path) if path.is_file() else {}

    def trained(self) -> bool:
        """Whether the run is finished. Raises `UserError` if the folder holds a run with other settings or data."""
        manifest = self.manifest
        if not manifest:
            return False
        asked, made = self.arm.parsed(self.words()).settings.flat("run"), manifest["all_settings"]
        changed = [name for name, value in asked.items() if made.get(name) != value]
        if changed:
            said = ", ".join(f"{name} {made.get(name)!r}, now {asked[name]!r}" for name in changed)
            raise UserError(f"{self.folder}: made with other settings ({said}): move it away, or name other --runs")
        parts = "scores.json", "dev/*.jsonl", "encoder/model.safetensors"
        done = all(any(self.folder.glob(part)) for part in parts)
        if done and self.upstream:
            weights = self.upstream / "encoder" / "model.safetensors"
            if weights.is_file() and _sha256(weights, weights.stat().st_mtime_ns) != manifest["weights"]["sha256"]:
                raise UserError(f"{self.folder}: did not start from {weights.parent} as it is now: move it away")
        return done

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of the run's metrics; the last one may be cut off."""
        return RunDir(self.folder).metrics()

    @property
    def reached(self) -> tuple[int, int]:
        """The last logged step of the run, and the steps of its plan; 0, 0 before it has a manifest."""
        total = int(self.manifest.get("plan", {}).get("steps", 0))
        return max((row["step"] for row in self.metrics), default=0), total

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be run."""
        return next(self.commands(), None) is None

    @contextmanager
    def lock(self) -> Iterator[IO[str] | None]:
        """Hold the cell's lock file, which is yielded, or None if another runner holds it."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with open(self.folder.with_name(f"{self.folder.name}.lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
            else:
                yield file


@lru_cache
def _sha256(path: Path, changed: int) -> str:
    """The SHA-256 of a file; `changed`, its modification time, is part of the key under which it is remembered."""
    return sha256_of(path)


def cells_of(study: Study, seeds: Sequence[int], data: str, runs: Path = RUNS) -> list[Cell]:
    """Every cell of a study, seed by seed, and after those that it starts from. A measured arm has one cell."""
    order: dict[str, Arm] = {}

    def put(arm: Arm) -> None:
        if arm.upstream:
            put(study.arms[arm.upstream])
        order.setdefault(arm.name, arm)

    for arm in study.arms.values():
        put(arm)
    found = []
    for seed in seeds:
        for arm in order.values():
            if arm.measured and seed != seeds[0]:
                continue
            folder = runs / study.name / arm.name / f"seed-{seed}"
            upstream = runs / study.name / arm.upstream / f"seed-{seed}" if arm.upstream else None
            suites = () if arm.stage else tuple(study.file.suites.items())
            found.append(Cell(arm, seed, folder, upstream, data, suites))
    return found


def shown(arguments: Sequence[str], threads: int) -> str:
    """A command as it is typed."""
    return f"OMP_NUM_THREADS={threads} {shlex.join(['python', *arguments])}"
