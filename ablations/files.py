"""A study is one TOML file: a question, its arms and their settings, seeds and scores, and the paper's numbers.

An arm is one run of a training script, with settings under the flags' names. With `from` it starts at another arm's
encoder. `stage = true` marks an arm that only others start from. `measured` names an encoder that is not trained.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from minbert.errors import UserError, one_of, suggestion
from minbert.files import read_toml

STUDIES = Path(__file__).parent / "studies"
Value = str | int | float | bool
Values = dict[str, dict[str, float]]
Slips = dict[str, dict[str, str]]
Suite = Annotated[str, StringConstraints(pattern="^(sts_suite|transfer|probes)( |$)")]
Arms = dict[str, dict[str, Value]]
Axes = dict[str, list[Value] | dict[str, Value]]


class Section(BaseModel):
    """A table of a study's file: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Quoted(Section):
    """A row that the paper itself only quotes, with its source."""

    system: str
    source: str
    values: dict[str, float]


class Paper(Section):
    """The result to reproduce: the table or figure, its claim, and its values by arm and score, as printed.

    `slips` say what is wrong with a printed value, by arm or quoted system, and score.
    """

    table: str
    claim: str
    values: Values = {}
    quoted: list[Quoted] = []
    slips: Slips = {}


class Model(Section):
    """The same study with a model of the paper: what stands in place of its shared settings, arms, axes and values."""

    table: str
    settings: dict[str, Value]
    arms: Arms = {}
    axes: Axes = {}
    values: Values
    slips: Slips = {}


class StudyFile(Section):
    """The content of a study's file."""

    question: str
    paper: Paper
    baseline: str
    scores: list[str] = Field(min_length=1)
    seeds: list[int] = Field([1, 2, 3], min_length=1)
    limits: str = ""
    quick: dict[str, Value] = {}
    settings: dict[Literal["pretrain_cbcl", "multitask_train"], dict[str, Value]] = Field(min_length=1)
    arms: Arms = {}
    axes: Axes = {}
    grid: dict[str, str] = {}
    models: dict[str, Model] = {}
    suites: dict[str, Suite] = {}
    x: str = ""

    def shared(self, script: Any) -> dict[str, Value]:
        """The settings of all arms of a script, by flag name with underscores."""
        return underscored(self.settings.get(script, {}))

    def of_model(self, name: str) -> "StudyFile":
        """The file with the settings, axes and values of one of its models. Raises `UserError`."""
        if not self.models:
            raise UserError(f"--model {name}: the study has no models")
        model = self.models[one_of(name, self.models, "--model")]
        paper = Paper(table=model.table, claim=self.paper.claim, values=model.values, slips=model.slips)
        changed = {"settings": dict.fromkeys(self.settings, model.settings), "paper": paper, "limits": ""}
        return self.model_copy(update=changed | {"arms": model.arms or self.arms, "axes": model.axes or self.axes})


def underscored(settings: Mapping[str, Value]) -> dict[str, Value]:
    """Settings under the names that the scripts' records have."""
    return {key.replace("-", "_"): value for key, value in settings.items()}


def study_names() -> list[str]:
    """The names of the studies in `studies/`."""
    return sorted(path.stem for path in STUDIES.glob("*.toml"))


def study_path(name: str) -> Path:
    """The file of a study: `name` itself if it ends in .toml, else one of `studies/`. Raises `UserError`."""
    if name.endswith(".toml"):
        return Path(name)
    return Path(os.path.relpath(STUDIES / f"{one_of(name, study_names(), 'STUDY')}.toml"))


def read_file(name: str) -> StudyFile:
    """The content of a study's file, without a check of its arms. Raises `UserError` with file and key."""
    path = study_path(name)
    try:
        return StudyFile.model_validate(read_toml(path))
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        *_, key = keys = [str(key) for key in first["loc"]]
        unknown = first["type"] == "extra_forbidden"
        what = f"no such key{suggestion(key, StudyFile.model_fields)}" if unknown else first["msg"].lower()
        raise UserError(f"{path}: {'.'.join(keys)}: {what}") from None
