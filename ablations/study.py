"""A checked study: its arms, with settings that their scripts accept, and changes from the command line."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import product
from typing import Any

from ablations.files import StudyFile, Value, read_file, study_path, underscored
from minbert.errors import UserError, one_of, suggestion
from minbert.train.settings import Parsed, Settings, flag_name, parse
from tasks.contrastive import settings as contrastive
from tasks.contrastive.settings import ContrastiveSettings
from tasks.settings import PRESETS, MultitaskSettings

PRETRAIN, FINETUNE = "pretrain_cbcl", "multitask_train"
SCRIPTS: dict[str, tuple[type[Settings], Any, str, str]] = {
    PRETRAIN: (ContrastiveSettings, contrastive.PRESETS, "cbcl", "weights"),
    FINETUNE: (MultitaskSettings, PRESETS, "default", "encoder"),
}
"""Script -> its settings, its presets, the default preset, and the flag that names another arm's encoder."""
STAGE_ONE = ("sts_dev_spearman", "frozen_loss", "triplet_accuracy", "alignment", "uniformity", "last_epoch_loss")
"""The scores of stage one. Stage two has `dev_norm`, a task's name, and `sst.f1.*`; a suite has `NAME/SET`."""
PER_CLASS = ("precision", "recall", "f1")
FROM_RUNNER = {"seed": "see seeds", "data": "--data", "run_dir": "--runs", "resume": "always", "encoder": "see from"}
"""Settings that the runner gives, and a study may not."""


@dataclass(frozen=True)
class Arm:
    """One arm: settings by flag name with underscores. `labels` are its values on the axes of a grid."""

    name: str
    script: str = ""
    settings: Mapping[str, Value] = field(default_factory=dict)
    upstream: str = ""
    measured: str = ""
    stage: bool = False
    labels: tuple[str, ...] = ()

    def words(self, encoder: str = "") -> list[str]:
        """The arm's settings as flags; `encoder` is the folder of the arm that it starts from."""
        words = []
        for name, value in self.settings.items():
            if encoder and name == "weights":
                continue
            words += [flag_name(name, value)] if isinstance(value, bool) else [flag_name(name, None), str(value)]
        return words + ([f"--{SCRIPTS[self.script][3]}", encoder] if encoder else [])

    def parsed(self, words: list[str]) -> Parsed[Any]:
        """The flags as the arm's script parses them. Raises `UserError`."""
        kind, presets, default, _ = SCRIPTS[self.script]
        return parse(kind, presets, words, program=f"{self.script}.py", description="", default=default)

    @cached_property
    def flat(self) -> dict[str, Any]:
        """Every setting of the script by flag name, as this arm has it."""
        flat: dict[str, Any] = self.parsed(self.words()).settings.flat()
        return flat

    def knows(self, name: str) -> bool:
        """Whether the arm has a setting; one that starts from another arm takes no other weights."""
        flags = [*self.flat, "preset"] if self.script else []
        return name in flags and not (name == "weights" and self.upstream)


@dataclass(frozen=True)
class Study:
    """A study that has been checked: every arm's settings are accepted by its script."""

    name: str
    file: StudyFile
    arms: dict[str, Arm]

    @property
    def x(self) -> str:
        """The setting along which the figure draws a line, as the scripts' records have it."""
        return self.file.x.replace("-", "_")

    @property
    def scored(self) -> dict[str, Arm]:
        """The arms in the tables: all but those with `stage = true`."""
        return {name: arm for name, arm in self.arms.items() if not arm.stage}

    def changed(self, settings: Mapping[str, Value]) -> "Study":
        """The study with some settings in every arm whose script has them; `weights` also replaces measured encoders.

        Raises `UserError` for a setting that no arm has, and if two arms would become the same.
        """
        new = underscored(settings)
        for name in new:
            if not any(arm.knows(name) for arm in self.arms.values()):
                flags = {flag for arm in self.arms.values() if arm.script for flag in arm.flat}
                raise UserError(f"--set {name}: no such setting{suggestion(name, sorted(flags))}")

        def of(arm: Arm) -> Arm:
            if arm.measured:
                return replace(arm, measured=str(new.get("weights", arm.measured)))
            own = {name: value for name, value in new.items() if arm.knows(name)}
            return replace(arm, settings={**arm.settings, **own})

        arms = {name: of(arm) for name, arm in self.arms.items()}
        listed = ", ".join(f"--set {name}={value}" for name, value in settings.items())
        before, after = (
            {repr((arm.script, sorted(arm.settings.items()), arm.upstream, arm.measured)) for arm in side.values()}
            for side in (self.arms, arms)
        )
        if len(after) < len(before):
            raise UserError(f"{listed}: two arms would be the same")
        for name, arm in arms.items():
            _check_settings(arm, f"--set, in arm {name}")
        limits = ", in place of: ".join(filter(None, [listed, self.file.limits]))
        return replace(self, file=self.file.model_copy(update={"limits": limits}), arms=arms)


def read_study(name: str, model: str = "") -> Study:
    """Read and check a study, with one of its models if one is named. Raises `UserError` with file and key."""
    path, file = study_path(name), read_file(name)
    try:
        file = file.of_model(model) if model else file
        study = Study(path.stem + f"-{model}" * bool(model), file, {arm.name: arm for arm in _arms(file)})
        for arm in study.arms.values():
            _check_arm(study, arm)
        _check_names(study)
        _check_suites(file)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return study


def _arms(file: StudyFile) -> Iterator[Arm]:
    """The named arms, then those of the grid."""
    for name, settings in file.arms.items():
        yield _arm(file, name, settings)
    if not file.axes:
        return
    axes = [
        list(axis.items()) if isinstance(axis, dict) else [(str(value), value) for value in axis]
        for axis in file.axes.values()
    ]
    for combination in product(*axes):
        labels, values = zip(*combination, strict=True)
        chosen: dict[str, Value] = dict(zip(file.axes, values, strict=True))
        settings = {key: _filled(key, text, chosen) for key, text in file.grid.items()} if file.grid else chosen
        name = "+".join(labels)
        if name in file.arms:
            raise UserError(f"arms.{name}: is also a combination of the axes")
        yield replace(_arm(file, name, dict(settings)), labels=labels)


def _filled(key: str, text: str, chosen: Mapping[str, Value]) -> str:
    """A setting of the grid with the values of the axes. Raises `UserError` for any brace but {AXIS}."""
    try:
        return text.format_map(chosen)
    except (KeyError, ValueError, AttributeError) as error:
        axes = ", ".join(chosen)
        raise UserError(f"grid.{key}: {text!r}: braces hold the name of an axis: {axes}") from error


def _arm(file: StudyFile, name: str, settings: dict[str, Value]) -> Arm:
    if not re.fullmatch(r"[\w.+-]+", name):
        raise UserError(f"arms.{name}: an arm's name has letters, digits and - _ . + alone: it is a folder")
    own = underscored(settings)
    measured, upstream = str(own.pop("measured", "")), str(own.pop("from", ""))
    if measured and (own or upstream):
        raise UserError(f"arms.{name}: an arm that is only measured has no settings")
    if measured:
        return Arm(name, measured=measured)
    script = one_of(str(own.pop("script", next(iter(file.settings)))), SCRIPTS, f"arms.{name}.script")
    stage = own.pop("stage", False) is True
    return Arm(name, script, file.shared(script) | own, upstream, stage=stage)


def _check_arm(study: Study, arm: Arm) -> None:
    """Raise `UserError` for settings that the arm may not have, and for a cycle of `from`."""
    chain = [arm.name]
    while upstream := study.arms[chain[-1]].upstream:
        before = study.arms.get(upstream)
        if before is None or before.measured:
            raise UserError(f"arms.{chain[-1]}.from: no arm {upstream} is trained")
        if upstream in chain:
            raise UserError(f"arms.{arm.name}.from: a cycle: {' from '.join([*chain, upstream])}")
        chain.append(upstream)
    _check_settings(arm, f"arms.{arm.name}")


def _check_settings(arm: Arm, where: str) -> None:
    """Raise `UserError` for settings that the runner gives, or that the arm's script does not accept."""
    if arm.measured:
        return
    for name in FROM_RUNNER.keys() & arm.settings.keys():
        raise UserError(f"{where}: {name} is given by the runner ({FROM_RUNNER[name]})")
    try:
        arm.parsed(arm.words(encoder="runs" if arm.upstream else ""))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _check_names(study: Study) -> None:
    """Raise `UserError` for an unknown baseline, score or `x`, and for an arm without any score."""
    file, arms = study.file, study.scored
    if file.baseline not in arms:
        raise UserError(f"baseline: no arm {file.baseline}{suggestion(file.baseline, arms)}")
    for score in file.scores:
        if not any(_gives(study, arm, score) for arm in arms.values()):
            raise UserError(f"scores: no arm has a score {score}")
    for arm in arms.values():
        if not any(_gives(study, arm, score) for score in file.scores):
            why = "has none of the scores (an arm that others only start from says stage = true)"
            raise UserError(f"arms.{arm.name}: {why}")
    if file.x and not any(isinstance(arm.flat.get(study.x), int | float) for arm in arms.values() if arm.script):
        raise UserError(f"x: no arm has a number for {file.x}")


def _check_suites(file: StudyFile) -> None:
    """Raise `UserError` for a flag that a suite does not take, and for a suite that scores several systems."""
    for name, command in file.suites.items():
        module, *words = shlex.split(command)
        try:
            flags = import_module(f"tasks.benchmarks.{module}").parse(["--encoder", "of the arm", *words])
        except UserError as error:
            raise UserError(f"suites.{name}: {error}") from error
        if "," in flags.pooler or flags.pooler.lower() in ("every", "all"):
            raise UserError(f"suites.{name}: scores several systems, of which a table can show one")


def matches(score: str, wanted: str) -> bool:
    """Whether a score is `wanted`, or matches its pattern, such as `sst.f1.*` or `sts/*`."""
    return score == wanted or (wanted.endswith("*") and score.startswith(wanted[:-1]))


def _gives(study: Study, arm: Arm, score: str) -> bool:
    """Whether an arm's run, or a suite on its encoder, yields a score."""
    suite, slash, _ = score.partition("/")
    if slash:
        return suite in study.file.suites
    if arm.script != FINETUNE:
        return arm.script == PRETRAIN and score in STAGE_ONE
    task, dot, more = score.partition(".")
    return score == "dev_norm" or (
        task in arm.flat["tasks"].split(",") and (not dot or more.partition(".")[0] in PER_CLASS)
    )
