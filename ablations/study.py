"""A study is a TOML file: a question, its arms, the scores to compare, and what the paper printed.

An arm is a command with settings under the names of its flags, such as in `studies/synonym-stage.toml`. It is run once
for each seed: an `ArmRun` is finished when its folder holds scores and an encoder, and a suite when its JSON names the
command.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from minbert import weights
from minbert.errors import UserError, one_of
from minbert.files import read_optional_json, read_toml
from minbert.train.settings import Parsed, RunSettings, Settings, flag_name, flags_of, names_in, parse, refuse_flags
from pretrain_cbcl import PretrainSettings
from tasks.contrastive.consert import ConsertSettings
from tasks.contrastive.nli import NliSettings
from tasks.contrastive.simcse import SimcseSettings
from tasks.presets import PRESETS
from tasks.registry import TASKS
from tasks.settings import MultitaskSettings, resolve_defaults

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ROOT / "ablations" / "studies"
Command = list[str]
"""The arguments of Python."""
STAGE_TWO = "multitask_train"
COMMANDS: dict[str, tuple[str, type[Settings]]] = {
    "pretrain_cbcl": ("pretrain_cbcl.py", PretrainSettings),
    "consert": ("-m tasks.contrastive.consert", ConsertSettings),
    "simcse": ("-m tasks.contrastive.simcse", SimcseSettings),
    "nli": ("-m tasks.contrastive.nli", NliSettings),
    STAGE_TWO: ("multitask_train.py", MultitaskSettings),
}
"""Name of a command in a study -> the arguments of Python, and its settings."""
SUITES = ("sts_suite", "transfer", "probes")
"""The modules of `tasks.benchmarks` that score an encoder."""
STAGE_ONE_SCORES = (
    "sts_dev_spearman",
    "frozen_loss",
    "triplet_accuracy",
    "alignment",
    "uniformity",
    "last_epoch_loss",
)
"""The scores of stage one. Stage two has `dev_norm`, a task's name and `sst.f1.*`; a suite has `NAME/SET`."""
SET_BY_RUNNER = ("seed", "data", "run_dir", "resume", "encoder")
"""Flags that a study may not set."""


@dataclass(frozen=True)
class Arm:
    """A command with settings by flag name, or an encoder that is only `measured`, by the suites of the study.

    `start` is the name of the arm whose encoder it starts from.
    """

    name: str
    command: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    start: str = ""
    measured: str = ""

    def has_flag(self, name: str) -> bool:
        """Whether the arm's command has a flag; an arm that starts from another has no `weights`."""
        if self.measured or (name == "weights" and self.start):
            return False
        return name == "preset" or name in flags_of(COMMANDS[self.command][1])

    def words(self, encoder: str = "") -> list[str]:
        """The settings as flags; `encoder` is the folder of the encoder that the arm starts from."""
        words = []
        for name, value in self.settings.items():
            # `weights`, shared by all arms of a command, is replaced by the encoder
            if not (encoder and name == "weights"):
                words += [flag_name(name), str(value)]
        if self.command == STAGE_TWO:
            # without this flag stage two starts from runs/cbcl if that is there
            words += ["--encoder", encoder]
        elif encoder:
            words += ["--weights", encoder]
        return words

    def parsed(self) -> Settings:
        """The settings as the command parses them. Raises `UserError`."""
        program, kind = COMMANDS[self.command]
        parsed: Parsed[Any] = parse(kind, PRESETS, self.words(), program=program, default="")
        if self.command == STAGE_TWO:
            parsed = resolve_defaults(parsed)
        return parsed.settings

    def check(self, label: str) -> None:
        """Raises `UserError`, beginning with `label`, for settings that a study may not set or the command refuses."""
        try:
            refuse_flags(SET_BY_RUNNER, self.settings, "is set by ablations/run.py")
            self.parsed()
        except UserError as error:
            raise UserError(f"{label}: {error}") from error


@cache
def _preset_settings(command: str, preset: str) -> dict[str, Any]:
    """Every setting of a preset by flag name."""
    return Arm("", command, {"preset": preset}).parsed().flat()


@dataclass(frozen=True)
class Paper:
    """The result of a paper, as printed.

    `values` are by arm and score. `quoted` are rows that the paper itself quotes, each with `system`, `source` and
    `values`. `slips` say what is wrong with a printed value, by arm or system, and score.
    """

    table: str
    claim: str
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    quoted: Sequence[Mapping[str, Any]] = ()
    slips: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A checked study. `suites` are commands by name; `quick` are the settings of `--quick`.

    An arm's preset is the paper's: what differs from it in every arm is a departure from the paper, and what differs
    between the arms is what the study compares: `axis` names it in the figure if the arms are its values. `takes` says
    how long the runs are, `limits` what else limits them.
    """

    name: str
    question: str
    paper: Paper
    baseline: str
    scores: Sequence[str]
    arms: Mapping[str, Arm]
    seeds: Sequence[int] = (1, 2, 3)
    axis: str = ""
    limits: str = ""
    takes: str = ""
    quick: Mapping[str, Any] = field(default_factory=dict)
    suites: Mapping[str, str] = field(default_factory=dict)

    def has_score(self, arm: Arm, score: str) -> bool:
        """Whether the arm's run, or a suite on its encoder, has a score of `scores`."""
        suite, slash, _ = score.partition("/")
        if slash:
            return suite in self.suites
        if arm.measured:
            return False
        if arm.command != STAGE_TWO:
            return score in STAGE_ONE_SCORES
        # a task of a file has the file's name
        file_tasks = {Path(word).stem for word in names_in(arm.parsed().flat()["tasks"])}
        return score == "dev_norm" or score.partition(".")[0] in TASKS.keys() | file_tasks

    def is_scored(self, arm: Arm) -> bool:
        """Whether the arm is in the tables: arms without any of the scores are there for others to start from."""
        return any(self.has_score(arm, score) for score in self.scores)

    def departures(self) -> dict[str, str]:
        """Preset -> the settings of its arms that differ from it in all of them, each with the preset's own value."""
        by_preset: dict[tuple[str, str], list[Arm]] = {}
        for arm in self.arms.values():
            if not arm.measured:
                by_preset.setdefault((arm.command, arm.settings["preset"]), []).append(arm)
        departures = {}
        presets = [preset for _, preset in by_preset]
        for (command, preset), arms in by_preset.items():
            settings = [arm.parsed().flat() for arm in arms]
            texts = []
            for name, preset_value in _preset_settings(command, preset).items():
                values = {str(of_arm[name]) for of_arm in settings}
                # an arm that starts from another has the weights of that one
                starting = name == "weights" and all(arm.start for arm in arms)
                is_shared = len(values) == 1
                if is_shared and str(preset_value) not in values and not starting:
                    texts.append(f"{name.replace('_', '-')} {values.pop()} ({str(preset_value) or 'default'})")
            # two commands may have presets of one name
            label = preset if presets.count(preset) == 1 else f"{command} --preset {preset}"
            departures[label] = ", ".join(texts)
        return departures

    def describe_departures(self) -> str:
        """The departures on one line, those of presets with the same ones together; empty if there are none."""
        presets: dict[str, list[str]] = {}
        for preset, text in self.departures().items():
            if text:
                presets.setdefault(text, []).append(preset)
        return "; ".join(f"{', '.join(names)}: {text}" for text, names in presets.items())

    def with_settings(self, settings: Mapping[str, Any]) -> "Study":
        """The study with settings in every arm whose command has them; `weights` also replaces measured encoders.

        Raises `UserError` for a setting that no arm has, that a command refuses, or to which the study's file gives
        several values.
        """
        new = _underscored(settings)
        for name in new:
            with_flag = [arm for arm in self.arms.values() if arm.has_flag(name)]
            if not with_flag:
                raise UserError(f"--set {name}: no arm has such a flag")
            if len({str(arm.settings.get(name)) for arm in with_flag if self.is_scored(arm)}) > 1:
                raise UserError(f"--set {name}: the arms differ by it")
        arms = {}
        for name, arm in self.arms.items():
            if arm.measured:
                arms[name] = replace(arm, measured=str(new.get("weights", arm.measured)))
            else:
                accepted = {key: value for key, value in new.items() if arm.has_flag(key)}
                arms[name] = replace(arm, settings={**arm.settings, **accepted})
                arms[name].check(f"--set, in arm {name}")
        return replace(self, arms=arms)


def _underscored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names that the records of the commands have."""
    return {key.replace("-", "_"): value for key, value in settings.items()}


def study_names() -> list[str]:
    """The names of the studies in `studies/`."""
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def study_path(name: str) -> Path:
    """The file of a study: `name` itself if it ends in .toml, else one of `studies/`. Raises `UserError`."""
    if name.endswith(".toml"):
        return Path(name)
    return STUDIES / f"{one_of(name, study_names(), 'STUDY')}.toml"


def read_study(name: str, model: str = "") -> Study:
    """Read and check a study, with a model of its file if one is named. Raises `UserError` with file and key."""
    path = study_path(name)
    content = read_toml(path)
    models = content.pop("models", {})
    try:
        if model:
            content = _of_model(content, models[one_of(model, models, "--model")])
        study = _build(f"{path.stem}-{model}" if model else path.stem, content)
        _check(study)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise UserError(f"{path}: a key is missing or unknown: {error}") from error
    return study


def _of_model(content: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """A study's content with the keys of one of its models in place of its own; `arms` and `paper` are merged."""
    changed = {**content, "limits": "", "takes": "", **model}
    for key in ("arms", "paper"):
        changed[key] = {**content.get(key, {}), **model.get(key, {})}
    return changed


def _build(name: str, content: Mapping[str, Any]) -> Study:
    """A study of the content of its file. Raises `KeyError` or `TypeError` for a key that is missing or unknown."""
    rest = dict(content)
    shared = rest.pop("settings")
    settings_of_arms = dict(rest.pop("arms", {}))
    axes = rest.pop("axes", {})
    if axes:
        # an arm for each combination of the values
        for values in product(*axes.values()):
            settings_of_arms["+".join(map(str, values))] = dict(zip(axes, values, strict=True))
        rest.setdefault("axis", " + ".join(axes).replace("-", " "))
    arms = {}
    for arm, settings in settings_of_arms.items():
        arms[arm] = _arm(arm, settings, shared)
    paper = Paper(**rest.pop("paper"))
    return Study(name=name, arms=arms, paper=paper, **rest)


def _arm(name: str, settings: Mapping[str, Any], shared: Mapping[str, Mapping[str, Any]]) -> Arm:
    """An arm of its settings and those `shared` by the arms of a command. Raises `UserError`."""
    rest = _underscored(settings)
    if "measured" in rest:
        return Arm(name, measured=rest["measured"])
    start = rest.pop("from", "")
    command = one_of(rest.pop("command", next(iter(shared))), COMMANDS, f"arms.{name}.command")
    return Arm(name, command, {**_underscored(shared.get(command, {})), **rest}, start)


def _check(study: Study) -> None:
    """Raises `UserError` for an arm, a baseline or a score that cannot be."""
    for arm in study.arms.values():
        if not arm.measured:
            arm.check(f"arms.{arm.name}")
        if arm.start:
            one_of(arm.start, study.arms, f"arms.{arm.name}.from")
    one_of(study.baseline, study.arms, "baseline")
    for name, suite in study.suites.items():
        one_of(suite.partition(" ")[0], SUITES, f"suites.{name}")
    for score in study.scores:
        if not any(study.has_score(arm, score) for arm in study.arms.values()):
            raise UserError(f"scores: no arm has a score {score}")


@dataclass(frozen=True)
class ArmRun:
    """One arm with one seed: the run in `folder`, which starts from the run in the folder `start`, and the suites."""

    arm: Arm
    seed: int
    folder: Path
    start: Path | None
    data: str
    suites: Mapping[str, str]

    @property
    def name(self) -> str:
        """The arm and the seed, for display."""
        return f"{self.arm.name} seed {self.seed}"

    @property
    def log(self) -> Path:
        """The file of everything that the commands print."""
        return self.folder.with_name(f"{self.folder.name}.log")

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the run, empty if it has none."""
        return read_optional_json(self.folder / "manifest.json")

    @property
    def scores(self) -> dict[str, Any]:
        """The scores of the run, empty if it has none."""
        return read_optional_json(self.folder / "scores.json")

    def suite_results(self, name: str) -> dict[str, Any]:
        """The results of a suite, empty if it has not been run."""
        module = self.suites[name].split()[0]
        return read_optional_json(self.folder / "suites" / name / f"{module.removesuffix('_suite')}.json")

    def pending(self) -> Iterator[Command]:
        """The commands that are still to be run, in order. Raises `UserError` as `is_trained` does."""
        if not self.arm.measured and not self.is_trained():
            yield self._training_command()
        for name in self.suites:
            command = self._suite_command(name)
            record = self.suite_results(name)
            # a suite that was stopped has kept the sets that it had, and is run again
            complete = record.get("complete", True)
            if record.get("command") != shlex.join(["python", *command]) or not complete:
                yield command

    def is_finished(self) -> bool:
        """Whether nothing is to be run."""
        return next(self.pending(), None) is None

    def is_trained(self) -> bool:
        """Whether the run is finished. Raises `UserError` if its settings or its starting encoder are others now."""
        manifest = self.manifest
        if not manifest:
            return False
        recorded = manifest["all_settings"]
        settings = {**self.arm.parsed().flat(), "seed": self.seed, "data": self.data}
        for item in fields(RunSettings):
            # where the run is, and how it logs
            del settings[item.name]
        if not settings["pooler"]:
            # the run has recorded the pooler of its starting weights
            del settings["pooler"]
        if self.start:
            settings.pop("weights")
            settings.pop("encoder", None)
        for name, value in settings.items():
            # flags of other versions of this project, in one of the two alone, are not compared
            if name in recorded and recorded[name] != value:
                change = f"{flag_name(name)} {recorded[name]}, now {value}"
                raise UserError(f"{self.folder}: a run with other settings ({change}): move it, or name other --runs")
        if not self.scores or not (self.folder / "encoder" / "model.safetensors").is_file():
            return False
        recorded_weights = manifest["weights"]
        encoder = self.start / "encoder" if self.start else Path(recorded_weights["folder"])
        kept = (encoder / "model.safetensors").is_file()
        if kept and weights.sha256(encoder) != recorded_weights["sha256"]:
            raise UserError(f"{self.folder}: did not start from {encoder} as it is now: move it")
        return True

    def last_line(self) -> str:
        """The last line of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing printed"

    def _training_command(self) -> Command:
        program = COMMANDS[self.arm.command][0]
        words = [os.path.relpath(ROOT / program)]
        if program.startswith("-m "):
            words = program.split()
        encoder = str(self.start / "encoder") if self.start else ""
        words += self.arm.words(encoder)
        words += ["--seed", str(self.seed), "--data", self.data]
        return [*words, "--run-dir", str(self.folder), "--resume"]

    def _suite_command(self, name: str) -> Command:
        module, *flags = shlex.split(self.suites[name])
        encoder = self.arm.measured or str(self.folder / "encoder")
        out = str(self.folder / "suites" / name)
        return ["-m", f"tasks.benchmarks.{module}", "--encoder", encoder, *flags, "--data", self.data, "--out", out]


def runs_of(study: Study, seeds: Sequence[int], data: str, folder: Path) -> list[ArmRun]:
    """The runs of a study in subfolders of `folder`, each after the one that it starts from.

    A measured arm has one run: no seed changes it.
    """

    def depth(arm: Arm) -> int:
        return 1 + depth(study.arms[arm.start]) if arm.start else 0

    def run_folder(arm: str, seed: int) -> Path:
        # an arm of [axes] may be named by a path
        return folder / arm.replace("/", "-") / f"seed-{seed}"

    runs = []
    for seed in seeds:
        for arm in sorted(study.arms.values(), key=depth):
            if arm.measured and seed != seeds[0]:
                continue
            start = run_folder(arm.start, seed) if arm.start else None
            suites = study.suites if study.is_scored(arm) else {}
            runs.append(ArmRun(arm, seed, run_folder(arm.name, seed), start, data, suites))
    return runs
