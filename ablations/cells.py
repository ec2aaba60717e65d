"""The runs of a study: one cell for each arm and seed, with its folder, its commands and its state.

A cell is finished if its run folder has scores, dev rows and an encoder, which a script writes at its end, and if its
manifest names the settings that the arm asks for. A suite is, if its JSON file names the command.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablations.study import Arm, Study
from minbert.errors import UserError
from minbert.files import read_json
from minbert.train.settings import flags_of

ROOT = Path(__file__).parent.parent
Command = tuple[str, list[str]]
"""The suite's name, or "" for the training script, and the arguments of Python."""


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

    @property
    def encoder(self) -> str:
        """The folder or name of the cell's encoder."""
        return self.arm.measured or str(self.folder / "encoder")

    def words(self) -> list[str]:
        """The flags of the training script."""
        own = self.arm.words(str(self.upstream / "encoder") if self.upstream else "")
        data = ["--data", self.data] if self.data else []
        return [*own, "--seed", str(self.seed), *data, "--run-dir", str(self.folder), "--resume"]

    def commands(self) -> Iterator[Command]:
        """The commands still to be run, in order. Raises `UserError` if the folder holds a run with other settings."""
        if not self.arm.measured and not self.trained():
            yield "", [os.path.relpath(ROOT / f"{self.arm.script}.py"), *self.words()]
        for name, command in self.suites:
            words = self._suite_words(command, self.folder / "suites" / name)
            record = self.suite(name)
            # a suite that was stopped leaves the sets that it had, and is run again
            complete = record.get("complete", True)
            if record.get("command") != shlex.join(["python", *words]) or not complete:
                yield name, words

    def _suite_words(self, command: str, out: Path) -> list[str]:
        """The arguments of Python for a suite of the study's file on the cell's encoder."""
        module, *flags = shlex.split(command)
        folder = ["--data", self.data] if self.data and "--data" not in flags else []
        return ["-m", f"tasks.benchmarks.{module}", "--encoder", self.encoder, *flags, *folder, "--out", str(out)]

    def suite(self, name: str) -> dict[str, Any]:
        """The JSON of one suite, empty if it has not been run."""
        module = dict(self.suites)[name].split()[0]
        return _json(self.folder / "suites" / name / f"{module.removesuffix('_suite')}.json")

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the run, empty if it has none yet."""
        return _json(self.folder / "manifest.json")

    @property
    def scores(self) -> dict[str, Any]:
        """The scores of the run, empty if it has none."""
        return _json(self.folder / "scores.json")

    def trained(self) -> bool:
        """Whether the run is finished. Raises `UserError` if the folder holds a run with other settings or data."""
        manifest = self.manifest
        if not manifest:
            return False
        settings, recorded = self.arm.parsed(self.words()).settings, manifest["all_settings"]
        flags = flags_of(type(settings))
        asked = {name: value for name, value in settings.flat().items() if flags[name][0] != "run"}
        if not asked["pooler"]:  # the run took that of its weights' folder
            del asked["pooler"]
        changed = [name for name, value in asked.items() if recorded.get(name) != value]
        older = recorded.keys() - flags.keys()
        changed += sorted(older & manifest["settings"].keys())  # those that affected the results
        if changed:
            what = ", ".join(f"{name} {recorded.get(name)!r}, now {asked.get(name)!r}" for name in changed)
            raise UserError(f"{self.folder}: a run with other settings ({what}): move it away, or name other --runs")
        parts = "scores.json", "dev/*.jsonl", "encoder/model.safetensors"
        done = all(any(self.folder.glob(part)) for part in parts)
        if done and self.upstream:
            from minbert import weights  # imports torch

            encoder = self.upstream / "encoder"
            trained = (encoder / "model.safetensors").is_file()
            if trained and weights.sha256(encoder) != manifest["weights"]["sha256"]:
                raise UserError(f"{self.folder}: did not start from {encoder} as it is now: move it away")
        return done

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be run."""
        return next(self.commands(), None) is None


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def cells_of(study: Study, seeds: Sequence[int], data: str, runs: Path) -> list[Cell]:
    """Every cell of a study, seed by seed, and after those that it starts from. A measured arm has one cell."""

    def depth(arm: Arm) -> int:
        return 1 + depth(study.arms[arm.upstream]) if arm.upstream else 0

    cells = []
    for seed in seeds:
        for arm in sorted(study.arms.values(), key=depth):
            if arm.measured and seed != seeds[0]:
                continue
            folder = runs / study.name / arm.name / f"seed-{seed}"
            upstream = runs / study.name / arm.upstream / f"seed-{seed}" if arm.upstream else None
            suites = () if arm.stage else tuple(study.file.suites.items())
            cells.append(Cell(arm, seed, folder, upstream, data, suites))
    return cells


def shown(arguments: Sequence[str], threads: int) -> str:
    """A command as it is typed."""
    return f"OMP_NUM_THREADS={threads} {shlex.join(['python', *arguments])}"
