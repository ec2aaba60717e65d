"""A study is one TOML file: a question, its arms and their settings, seeds and scores, and the paper's numbers.

An arm is one run of a training script, with settings under the flags' names. With `from` it starts at another arm's
encoder. `stage = true` marks an arm that only others start from. `measured` names an encoder that is not trained.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from minbert.errors import UserError, one_of, suggestion
from minbert.files import read_toml
from minbert.training.settings import Parsed, Settings, flags_of, parse, spelled
from tasks.contrastive import settings as contrastive
from tasks.contrastive.settings import ContrastiveSettings
from tasks.settings import PRESETS, MultitaskSettings

STUDIES = Path(__file__).parent / "studies"
PRETRAIN, FINETUNE = "pretrain_cbcl", "multitask_train"
SCRIPTS: dict[str, tuple[type[Settings], Any, str, str]] = {
    PRETRAIN: (ContrastiveSettings, contrastive.PRESETS, "cbcl", "weights"),
    FINETUNE: (MultitaskSettings, PRESETS, "default", "encoder"),
}
"""Script -> its settings, its presets, the default preset, and the flag that names another arm's encoder."""
STAGE_ONE = ("sts_dev_spearman", "frozen_loss", "triplet_accuracy", "alignment", "uniformity", "last_epoch_loss")
"""The scores of stage one. Stage two has `dev_norm`, a task's name, and `sst.f1.*`; a suite has `NAME/SET`."""
PER_CLASS = ("precision", "recall", "f1")
OURS = ("seed", "data", "run_dir", "resume", "encoder")
"""Settings that the runner gives, and a study may not."""
Value = str | int | float | bool


class Table(BaseModel):
    """A table of a study's file: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Quoted(Table):
    """A row that the paper itself only quotes, with its source."""

    system: str
    source: str
    values: dict[str, float]


class Paper(Table):
    """The result to reproduce: the table or figure, its claim, and its values by arm and score, as printed."""

    table: str
    claim: str
    values: dict[str, dict[str, float]] = {}
    quoted: list[Quoted] = []


class Range(Table):
    """The range of a searched setting; an integer setting has integer bounds."""

    low: float
    high: float
    log: bool = False

    @model_validator(mode="after")
    def _check(self) -> "Range":
        if not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError("a range on a logarithmic scale begins above 0")
        return self

    def ends(self, default: Value) -> list[Value]:
        """Low and high, as whole numbers for a setting whose default is one."""
        return [int(end) if isinstance(default, int) else end for end in (self.low, self.high)]


class Search(Table):
    """A search: Optuna chooses settings of one arm, one run for each trial, to maximise the script's dev score."""

    arm: str
    trials: int = Field(ge=1)
    settings: dict[str, Range | Annotated[list[Value], Field(min_length=1)]]


class StudyFile(Table):
    """The content of a study's file."""

    question: str
    paper: Paper
    baseline: str
    scores: list[str] = Field(min_length=1)
    seeds: list[int] = Field([1, 2, 3], min_length=1)
    limits: str = ""
    settings: dict[Literal["pretrain_cbcl", "multitask_train"], dict[str, Value]] = Field(min_length=1)
    arms: dict[str, dict[str, Value]] = {}
    axes: dict[str, list[Value] | dict[str, Value]] = {}
    grid: dict[str, str] = {}
    suites: dict[str, Annotated[str, StringConstraints(pattern="^(sts_suite|transfer|probes)( |$)")]] = {}
    x: str = ""
    search: Search | None = None

    def shared(self, script: Any) -> dict[str, Value]:
        """The settings of all arms of a script, by flag name with underscores."""
        return {key.replace("-", "_"): value for key, value in self.settings.get(script, {}).items()}


@dataclass(frozen=True)
class Arm:
    """One arm: settings by flag name with underscores. `labels` are its places on the axes of a grid."""

    name: str
    script: str = ""
    settings: Mapping[str, Value] = field(default_factory=dict)
    upstream: str = ""
    measured: str = ""
    stage: bool = False
    labels: tuple[str, ...] = ()

    def words(self, encoder: str = "") -> list[str]:
        """The arm's settings as flags; `encoder` is the folder of the arm that it starts from."""
        found = []
        for name, value in self.settings.items():
            found += [spelled(name, value)] if isinstance(value, bool) else [spelled(name, None), str(value)]
        return found + ([f"--{SCRIPTS[self.script][3]}", encoder] if encoder else [])

    def parsed(self, words: list[str]) -> Parsed[Any]:
        """The flags as the arm's script parses them. Raises `UserError`."""
        kind, known, default, _ = SCRIPTS[self.script]
        return parse(kind, known, words, program=f"{self.script}.py", about="", default=default)

    @cached_property
    def flat(self) -> dict[str, Any]:
        """Every setting of the script by flag name, as this arm has it."""
        found: dict[str, Any] = self.parsed(self.words()).settings.flat()
        return found


@dataclass(frozen=True)
class Study:
    """A study that has been checked: every arm's settings are accepted by its script."""

    name: str
    file: StudyFile
    arms: dict[str, Arm]

    @property
    def scored(self) -> dict[str, Arm]:
        """The arms in the tables: all but those with `stage = true`."""
        return {name: arm for name, arm in self.arms.items() if not arm.stage}

    def with_settings(self, weights: str = "", **changed: int | None) -> "Study":
        """The study with other starting weights and limits, except in arms that set these themselves."""
        given = {name: value for name, value in (changed | {"weights": weights or None}).items() if value is not None}

        def of(arm: Arm) -> Arm:
            if arm.measured:
                return replace(arm, measured=weights or arm.measured)
            shared = self.file.shared(arm.script)
            free = {name: value for name, value in given.items() if arm.settings.get(name) == shared.get(name)}
            if arm.upstream:
                free.pop("weights", None)
            return replace(arm, settings={**arm.settings, **free})

        limits = [f"--{name.replace('_', '-')} {value:,}" for name, value in changed.items() if value is not None]
        said = ", ".join([*limits, *([f"in place of: {self.file.limits}"] if limits and self.file.limits else [])])
        file = self.file.model_copy(update={"limits": said}) if limits else self.file
        return replace(self, file=file, arms={name: of(arm) for name, arm in self.arms.items()})


def known_studies() -> list[str]:
    """The names of the studies in `studies/`."""
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def read_study(name: str) -> Study:
    """Read and check a study by its name, or by the path of its file. Raises `UserError` with file and key."""
    own = name.endswith(".toml")
    path = Path(name) if own else Path(os.path.relpath(STUDIES / f"{one_of(name, known_studies(), 'STUDY')}.toml"))
    content = read_toml(path)
    try:
        file = _validated(content)
        study = Study(path.stem, file, {arm.name: arm for arm in _arms(file)})
        for arm in study.arms.values():
            _check_arm(study, arm)
        _check_scores(study)
        _check_names(study)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return study


def _validated(content: dict[str, Any]) -> StudyFile:
    try:
        return StudyFile.model_validate(content)
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        keys = [str(key) for key in first["loc"]]
        unknown = first["type"] == "extra_forbidden"
        near = suggestion(keys[-1], StudyFile.model_fields) if unknown else ""
        what = f"no such key{near}" if unknown else first["msg"].removeprefix("Value error, ").lower()
        raise UserError(f"{'.'.join(keys)}: {what}") from None


def _arms(file: StudyFile) -> Iterator[Arm]:
    """The named arms, then those of the grid."""
    for name, given in file.arms.items():
        yield _arm(file, name, given)
    if not file.axes:
        return
    axes = [
        list(axis.items()) if isinstance(axis, dict) else [(str(value), value) for value in axis]
        for axis in file.axes.values()
    ]
    for place in product(*axes):
        labels, values = zip(*place, strict=True)
        chosen = dict(zip(file.axes, values, strict=True))
        try:
            given = {key: text.format_map(chosen) for key, text in file.grid.items()} if file.grid else chosen
        except KeyError as error:
            raise UserError(f"grid: {error.args[0]} is not one of the axes {', '.join(file.axes)}") from None
        name = "+".join(labels)
        if name in file.arms:
            raise UserError(f"arms.{name}: is also a place of the axes")
        yield replace(_arm(file, name, dict(given)), labels=labels)


def _arm(file: StudyFile, name: str, given: dict[str, Value]) -> Arm:
    if not re.fullmatch(r"[\w.+-]+", name):
        raise UserError(f"arms.{name}: an arm's name has letters, digits and - _ . + alone: it is a folder")
    own = {key.replace("-", "_"): value for key, value in given.items()}
    measured, upstream = str(own.pop("measured", "")), str(own.pop("from", ""))
    if measured and (own or upstream):
        raise UserError(f"arms.{name}: an arm that is only measured has no settings")
    if measured:
        return Arm(name, measured=measured)
    script = one_of(str(own.pop("script", next(iter(file.settings)))), SCRIPTS, f"arms.{name}.script")
    stage = own.pop("stage", False) is True
    return Arm(name, script, file.shared(script) | own, upstream, stage=stage)


def _check_arm(study: Study, arm: Arm) -> None:
    """Raise `UserError` for settings that the arm's script does not accept, and for a cycle of `from`."""
    if arm.measured:
        return
    known = [*flags_of(SCRIPTS[arm.script][0]), "preset"]
    for name in arm.settings:
        if name not in known:
            raise UserError(f"arms.{arm.name}.{name}: no such setting{suggestion(name, known)}")
        if name in OURS:
            raise UserError(f"arms.{arm.name}.{name}: is given by the runner{_INSTEAD.get(name, '')}")
    chain = [arm.name]
    while upstream := study.arms[chain[-1]].upstream:
        before = study.arms.get(upstream)
        if before is None or before.measured:
            raise UserError(f"arms.{chain[-1]}.from: no arm {upstream} is trained")
        if upstream in chain:
            raise UserError(f"arms.{arm.name}.from: a cycle: {' from '.join([*chain, upstream])}")
        chain.append(upstream)
    _check_words(arm, f"arms.{arm.name}")


def _check_words(arm: Arm, where: str) -> None:
    try:
        arm.parsed(arm.words(encoder="runs" if arm.upstream else ""))
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _check_scores(study: Study) -> None:
    """Raise `UserError` for an unknown score, and for an arm without any score."""
    for score in study.file.scores:
        if not any(_gives(study, arm, score) for arm in study.scored.values()):
            raise UserError(f"scores: no arm has a score {score}")
    for arm in study.scored.values():
        if not any(_gives(study, arm, score) for score in study.file.scores):
            why = "has none of the scores (an arm that others only start from says stage = true)"
            raise UserError(f"arms.{arm.name}: {why}")


def _check_names(study: Study) -> None:
    """Raise `UserError` if the baseline, the paper, x or the search names something unknown."""
    file, arms = study.file, study.scored
    for where, name in [("baseline", file.baseline), *(("paper.values", name) for name in file.paper.values)]:
        if name not in arms:
            raise UserError(f"{where}: no arm {name}{suggestion(name, arms)}")
    printed = [("paper.values", values) for values in file.paper.values.values()]
    for where, values in [*printed, *(("paper.quoted", row.values) for row in file.paper.quoted)]:
        for score in values:
            if not any(matches(score, wanted) for wanted in file.scores):
                raise UserError(f"{where}: {score} is not one of the scores {', '.join(file.scores)}")
    if file.x and not any(file.x.replace("-", "_") in arm.settings for arm in study.arms.values()):
        raise UserError(f"x: no arm has a setting {file.x}")
    if file.x:
        along = [arm.flat.get(file.x.replace("-", "_"), 0) for arm in arms.values() if not arm.measured]
        if wrong := [value for value in along if not isinstance(value, int | float)]:
            raise UserError(f"x: {file.x} is not a number in every arm: {wrong[0]!r}")
    if file.search:
        _check_search(study, file.search)


def _check_search(study: Study, search: Search) -> None:
    """Raise `UserError` if the arm's script rejects an end of a range or a value of a list."""
    arm = study.arms.get(search.arm)
    if arm is None or arm.measured:
        raise UserError(f"search.arm: no arm {search.arm} is trained")
    known = [name for name in arm.flat if name not in OURS]
    for given, choice in search.settings.items():
        name, where = given.replace("-", "_"), f"search.settings.{given}"
        if name not in known:
            raise UserError(f"{where}: no such setting{suggestion(name, known)}")
        for value in choice.ends(arm.flat[name]) if isinstance(choice, Range) else choice:
            _check_words(replace(arm, settings={**arm.settings, name: value}), where)


_INSTEAD = {"seed": "; see seeds", "encoder": "; see from"}


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
