"""A study is one TOML file: a question, its arms and their settings, seeds and scores, and the paper's numbers.

An arm is one run of a training script, with settings under the flags' names. With `from` it starts at another arm's
encoder. `stage = true` marks an arm that only others start from. `measured` names an encoder that is not trained.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from minbert.errors import UserError, one_of, suggestion
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
STAGE_ONE = ("sts_dev_spearman", "full_pass_loss", "triplet_accuracy", "alignment", "uniformity", "last_epoch_loss")
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

    def ends(self, default: Value) -> list[Value]:
        """Low and high, as whole numbers for a setting whose default is one."""
        return [int(end) if isinstance(default, int) else end for end in (self.low, self.high)]


class Search(Table):
    """A search: Optuna chooses settings of one arm, one run for each trial, to maximise the script's dev score."""

    arm: str
    trials: int = Field(ge=1)
    settings: dict[str, Range | list[Value]]


class StudyFile(Table):
    """The content of a study's file."""

    question: str
    paper: Paper
    baseline: str
    scores: list[str] = Field(min_length=1)
    seeds: list[int] = Field([1, 2, 3], min_length=1)
    limits: str = ""
    settings: dict[str, dict[str, Value]] = Field(min_length=1)
    arms: dict[str, dict[str, Value]] = {}
    axes: dict[str, list[Value] | dict[str, Value]] = {}
    grid: dict[str, str] = {}
    suites: dict[str, str] = {}
    x: str = ""
    search: Search | None = None


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
            shared = {key.replace("-", "_"): value for key, value in self.file.settings.get(arm.script, {}).items()}
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
    """Read and check a study by its name, or by the path of its file. Raises `UserError` with file and line."""
    own = name.endswith(".toml")
    path = Path(name) if own else Path(os.path.relpath(STUDIES / f"{one_of(name, known_studies(), 'STUDY')}.toml"))
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a TOML file: {error}") from error
    return _Reader(path, _lines(text)).study(content)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Line of every table and key of a TOML text, by its path of keys."""
    key = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
    pattern = re.compile(rf"^\s*(?:\[\[?(?P<table>{key}(?:\.{key})*)\]|(?P<key>{key}(?:\s*\.\s*{key})*)\s*=)")
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        match = pattern.match(line)
        if match is None:
            continue
        words = tuple(word.strip("\"' ") for word in re.findall(key, match["table"] or match["key"]))
        table = words if match["table"] else table
        found.setdefault(words if match["table"] else table + words, number)
    return found


@dataclass(frozen=True)
class _Reader:
    """Reads and checks one file. Its errors name the line of a key."""

    path: Path
    lines: Mapping[tuple[str, ...], int]

    def error(self, sentence: str, *keys: str) -> UserError:
        place = keys
        while place and place not in self.lines:
            place = place[:-1]
        return UserError(f"{self.path}:{self.lines.get(place, 1)}: {sentence}")

    def study(self, content: dict[str, Any]) -> Study:
        try:
            file = StudyFile.model_validate(content)
        except ValidationError as error:
            first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
            keys = [str(key) for key in first["loc"]]
            unknown = first["type"] == "extra_forbidden"
            near = suggestion(keys[-1], StudyFile.model_fields) if unknown else ""
            what = f"no such key{near}" if unknown else first["msg"].lower()
            raise self.error(f"{'.'.join(keys)}: {what}", *keys) from None
        for script in file.settings:
            if script not in SCRIPTS:
                raise self.error(f"{script} is not one of {', '.join(SCRIPTS)}", "settings", script)
        arms = {arm.name: arm for arm in self.arms(file)}
        study = Study(self.path.stem, file, arms)
        for arm in arms.values():
            self.check_arm(study, arm)
        self.check_scores(study)
        self.check_names(study)
        return study

    def arms(self, file: StudyFile) -> Iterator[Arm]:
        """The named arms, then those of the grid."""
        for name, given in file.arms.items():
            yield self.arm(file, name, given, ("arms", name))
        if not file.axes:
            return
        labels = [list(axis) if isinstance(axis, dict) else [*map(str, axis)] for axis in file.axes.values()]
        values = [[*axis.values()] if isinstance(axis, dict) else axis for axis in file.axes.values()]
        for place in product(*(range(len(axis)) for axis in labels)):
            at = [axis[here] for axis, here in zip(labels, place, strict=True)]
            chosen = dict(zip(file.axes, (axis[here] for axis, here in zip(values, place, strict=True)), strict=True))
            try:
                given = {key: text.format_map(chosen) for key, text in file.grid.items()} if file.grid else chosen
            except KeyError as error:
                raise self.error(f"{error.args[0]} is not one of the axes {', '.join(file.axes)}", "grid") from None
            name = "+".join(at)
            if name in file.arms:
                raise self.error(f"{name} is an arm and a place of the axes", "arms", name)
            yield replace(self.arm(file, name, dict(given), ("axes",)), labels=tuple(at))

    def arm(self, file: StudyFile, name: str, given: dict[str, Value], keys: tuple[str, ...]) -> Arm:
        if not re.fullmatch(r"[\w.+-]+", name):
            raise self.error(f"{name}: an arm's name has letters, digits and - _ . + alone: it is a folder", *keys)
        own = {key.replace("-", "_"): value for key, value in given.items()}
        measured, upstream = str(own.pop("measured", "")), str(own.pop("from", ""))
        if measured and (own or upstream):
            raise self.error(f"{name}: an arm that is only measured has no settings", *keys)
        if measured:
            return Arm(name, measured=measured)
        script = str(own.pop("script", "") or next(iter(file.settings)))
        if script not in SCRIPTS:
            raise self.error(f"{name}: {script} is not one of {', '.join(SCRIPTS)}", *keys, "script")
        stage = own.pop("stage", False) is True
        shared = {key.replace("-", "_"): value for key, value in file.settings.get(script, {}).items()}
        return Arm(name, script, shared | own, upstream, stage=stage)

    def check_arm(self, study: Study, arm: Arm) -> None:
        """Raise `UserError` for settings that the arm's script does not accept, and for a cycle of `from`."""
        if arm.measured:
            return
        for name in arm.settings:
            keys = self.keys_of(study, arm, name)
            known = [*flags_of(SCRIPTS[arm.script][0]), "preset"]
            if name not in known:
                raise self.error(f"{arm.name}: {name}: no such setting{suggestion(name, known)}", *keys)
            if name in OURS:
                raise self.error(f"{arm.name}: {name} is given by the runner{_INSTEAD.get(name, '')}", *keys)
        chain = [arm.name]
        while upstream := study.arms[chain[-1]].upstream:
            before = study.arms.get(upstream)
            if before is None or before.measured:
                raise self.error(f"{chain[-1]}: from: no arm {upstream} is trained", "arms", chain[-1], "from")
            if upstream in chain:
                raise self.error(f"{' from '.join([*chain, upstream])}: a cycle", "arms", arm.name, "from")
            chain.append(upstream)
        try:
            arm.parsed(arm.words(encoder="runs" if arm.upstream else ""))
        except UserError as error:
            flags = re.findall(r"--(?:no-)?([a-z-]+)", str(error))
            named = [self.keys_of(study, arm, name.replace("-", "_")) for name in flags[:1]]
            raise self.error(f"{arm.name}: {error}", *(named[0] if named else ("arms", arm.name))) from error

    def keys_of(self, study: Study, arm: Arm, name: str) -> tuple[str, ...]:
        """The path of keys of an arm's setting: under the arm, the axes, or the settings of its script."""
        places = [("arms", arm.name), ("axes",), ("grid",), ("settings", arm.script)]
        spellings = (name, name.replace("_", "-"))
        found = [(*place, word) for place in places for word in spellings if (*place, word) in self.lines]
        return found[0] if found else ("arms", arm.name)

    def check_scores(self, study: Study) -> None:
        """Raise `UserError` for an unknown score, and for an arm without any score."""
        for score in study.file.scores:
            if not any(_gives(study, arm, score) for arm in study.scored.values()):
                raise self.error(f"{score}: no arm has such a score", "scores")
        for arm in study.scored.values():
            if not any(_gives(study, arm, score) for score in study.file.scores):
                why = "has none of the scores (an arm that others only start from says stage = true)"
                raise self.error(f"{arm.name}: {why}", "arms", arm.name)

    def check_names(self, study: Study) -> None:
        """Raise `UserError` if the baseline, the paper, a suite or the search names something unknown."""
        file, arms = study.file, study.scored
        if file.baseline not in arms:
            raise self.error(f"baseline: no arm {file.baseline}{suggestion(file.baseline, arms)}", "baseline")
        for name, values in file.paper.values.items():
            if name not in arms:
                raise self.error(f"no arm {name}{suggestion(name, arms)}", "paper", "values", name)
            self.check_values(file, values, "values", name)
        for row in file.paper.quoted:
            self.check_values(file, row.values, "quoted")
        for name, command in file.suites.items():
            if command.split()[:1] not in (["sts_suite"], ["transfer"], ["probes"]):
                raise self.error(f"{name}: begins with none of sts_suite, transfer, probes", "suites", name)
        if file.x and not any(file.x.replace("-", "_") in arm.settings for arm in arms.values()):
            raise self.error(f"x: no arm has a setting {file.x}", "x")
        if file.search:
            self.check_search(study, file.search)

    def check_search(self, study: Study, search: Search) -> None:
        """Raise `UserError` if the arm's script rejects an end of a range or a value of a list."""
        arm = study.arms.get(search.arm)
        if arm is None or arm.measured:
            raise self.error(f"search: no arm {search.arm} is trained", "search", "arm")
        known = [name for name in arm.flat if name not in OURS]
        for given, choice in search.settings.items():
            name, keys = given.replace("-", "_"), ("search", "settings", given)
            if name not in known:
                raise self.error(f"search: {given}: no such setting{suggestion(name, known)}", *keys)
            if isinstance(choice, Range) and choice.log and choice.low <= 0:
                raise self.error(f"search: {given}: a range on a logarithmic scale begins above 0", *keys)
            if isinstance(choice, Range) and not choice.low < choice.high:
                raise self.error(f"search: {given}: low {choice.low:g} is not below high {choice.high:g}", *keys)
            if not (values := choice.ends(arm.flat[name]) if isinstance(choice, Range) else choice):
                raise self.error(f"search: {given}: no value to choose from", *keys)
            for value in values:
                tried = replace(arm, settings={**arm.settings, name: value})
                try:
                    tried.parsed(tried.words(encoder="runs" if arm.upstream else ""))
                except UserError as error:
                    raise self.error(f"search: {error}", *keys) from error

    def check_values(self, file: StudyFile, values: Mapping[str, float], *keys: str) -> None:
        for score in values:
            if not any(matches(score, wanted) for wanted in file.scores):
                raise self.error(f"{score} is not one of the scores {', '.join(file.scores)}", "paper", *keys)


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
