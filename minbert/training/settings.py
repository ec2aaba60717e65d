"""Settings: one typed record per script, made of nested records, read from a preset, a TOML file and flags.

This module does not import torch, so that `--help` is fast.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from minbert.errors import UserError, one_of, quoted, suggestion
from minbert.files import expanded, present, read_toml
from minbert.training.cli import Parser, say

Presets = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Name -> (description, the settings it changes, by flag name)."""

Pooler = Literal["pooler", "cls", "mean", "max", "avg-first-last", "avg-static-last", "avg-last-two"]
"""`minbert.pooling.NAMES`, here because that module imports torch."""

PLACES = ("files", "run")
"""The records that do not affect a run's results: paths, checkpoints and logging."""


def flag(default: Any, text: str, *, ge: float | None = None, le: float | None = None) -> Any:
    """A field of a record: its default, its help text and, for numbers, its minimum and maximum."""
    return Field(default, description=text, ge=ge, le=le)


class Record(BaseModel):
    """A group of settings: each field is a flag."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _chosen(cls, value: Any, info: ValidationInfo) -> Any:
        """Match choices ignoring case."""
        choices = _kind(cls.model_fields[str(info.field_name)])[1]
        return next((one for one in choices if one.lower() == str(value).strip().lower()), value)


class Settings(BaseModel):
    """All settings of a script: each field is a `Record`. A flag's name is unique across the records."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, **flat: Any) -> Self:
        """Settings from values by flag name; all others have their defaults. Raises `UserError`."""
        return _validated(cls, flat, {})

    def changed(self, **flat: Any) -> Self:
        """A copy with some values changed, by flag name. Raises `UserError`."""
        return self.of(**self.flat() | flat)

    def flat(self, *without: str) -> dict[str, Any]:
        """Every value by flag name, except those in the records `without`."""
        records = self.model_dump(exclude={*without}).values()
        return {name: value for record in records for name, value in record.items()}

    def identity(self) -> dict[str, Any]:
        """The values that determine a run's results, by flag name: all but those in the records of `PLACES`."""
        return self.flat(*PLACES)


class EncoderSettings(Record):
    """The initial encoder."""

    weights: str = flag("bert-base-uncased", "starting weights: minilm, a folder, a run, or a hub name")
    max_length: int = flag(128, "longest input in tokens (0: as many as the encoder has positions)", ge=0)
    encoder_dropout: float | None = flag(
        None, "dropout inside the encoder (default: the rates of its config)", ge=0, le=0.99
    )

    @property
    def source(self) -> str:
        """The source of the initial weights: a folder, a run, or a name."""
        return self.weights


class DataSettings(Record):
    """How many rows of the data are read."""

    limit: int = flag(0, "train on N rows of each training set, drawn by seed (0: all)", ge=0)
    limit_eval: int = flag(0, "for trials: evaluate and predict only the first N rows of each other set (0: all)", ge=0)


class TrainingSettings(Record):
    """Training, evaluation and the selection of the final weights."""

    epochs: int = flag(10, "passes over the largest training set", ge=1, le=10_000)
    batch_size: int = flag(32, "examples in one update", ge=1)
    max_steps: int = flag(
        0,
        "stop after N steps, as if they were the whole run: --lr-schedule and --warmup span them, while --epochs "
        "still paces a curriculum (0: all epochs)",
        ge=0,
    )
    lr: float = flag(2e-5, "learning rate", ge=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = flag("constant", "learning-rate schedule")
    warmup: float = flag(0.0, "fraction of the steps with linear warm-up", ge=0, le=1)
    weight_decay: float = flag(0.0, "decoupled weight decay of matrices and embeddings", ge=0)
    clip: float = flag(1.0, "largest gradient norm (0: no clipping)", ge=0)
    evaluate_every: int = flag(0, "steps between evaluations (0: each epoch's end)", ge=0)
    patience: int = flag(0, "early stopping patience, in evaluations (0: never stop early)", ge=0)
    keep: Literal["best", "last"] = flag(
        "best", "the encoder to keep: that of the best evaluation, or of the last step"
    )
    average: float = flag(
        0.0,
        "end with the mean of the weights over the last fraction X of the steps (0: the weights of the last step)",
        ge=0,
        le=1,
    )
    seed: int = flag(11711, "random seed")
    precision: Literal["auto", "fp32", "bf16"] = flag("auto", "number format of the matrix products")

    @model_validator(mode="after")
    def _last_step_known(self) -> Self:
        if self.average and self.patience:
            raise UserError("--average and --patience exclude each other: it is not known which steps are the last")
        return self

    def idle(self) -> list[str]:
        """Warnings for settings with which nothing is trained."""
        return ["--lr 0: nothing is trained, the weights stay as they are"] if self.lr == 0 else []


class FileSettings(Record):
    """Paths of the data. They are not part of a run's identity; the hashes of the files are."""

    data: str = flag("", "folder with the data (default: $DATA_DIR, else data/)")


class RunSettings(Record):
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag("runs/run", "folder of the run")
    resume: bool = flag(False, "resume from the newest checkpoint, or start if there is none")
    save_every: int = flag(0, "save a checkpoint every N steps, in addition to the one after each evaluation", ge=0)
    keep_checkpoints: bool = flag(
        False,
        "keep the optimizer's state and both checkpoints of a finished run, which otherwise keeps the model only",
    )
    log_every: int = flag(
        50,
        "steps between two rows of metrics.jsonl; without a terminal a line is printed with each, and each minute",
        ge=1,
    )
    track: str = flag("none", "also record the run in tensorboard, wandb or both, by a comma")
    use_gpu: bool = flag(False, "require a CUDA device (by default one is used if there is one)")


S = TypeVar("S", bound=Settings)
Flags = Mapping[str, tuple[str, FieldInfo]]


def names_in(listed: str) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in listed.split(",") if name.strip()]


def flags_of(kind: type[Settings]) -> Flags:
    """Flag name, with underscores -> (name of its record, its field)."""
    found: dict[str, tuple[str, FieldInfo]] = {}
    for record, field in kind.model_fields.items():
        assert isinstance(field.annotation, type) and issubclass(field.annotation, Record)
        for name, option in field.annotation.model_fields.items():
            assert name not in found, f"--{name} is in two records, {found[name][0]} and {record}"
            found[name] = record, option
    return found


@dataclass(frozen=True)
class Parsed(Generic[S]):
    """A parsed command line; `overrides` are the values given by flags or by a file."""

    settings: S
    preset: str
    overrides: dict[str, Any]
    command: str


def parse(
    kind: type[S], presets: Presets, arguments: Sequence[str], *, program: str, about: str, default: str
) -> Parsed[S]:
    """Parse a command line. Flags override `--config FILE.toml`, which overrides the preset (`default` if not given).

    `--a-b`, `--a_b` and `--record.a-b` are equivalent. Raises `UserError`; prints and exits for `--help` and
    `--list-presets`.
    """
    flags = flags_of(kind)
    parser = _parser(flags, program, about, default, presets[default][1])
    given, unknown = parser.parse_known_args([_declared(word, flags) for word in arguments])
    typed = vars(given)
    if unknown:
        known = [option for action in parser._actions for option in action.option_strings]
        raise UserError(f"{unknown[0]}: no such flag{suggestion(unknown[0], known)} (see --help)")
    if typed.pop("list_presets", False):
        say(_listed(presets, default))
        raise SystemExit(0)
    file = typed.pop("config", "")
    chosen = _from_toml(present(expanded(file), "--config"), flags) if file else {}
    chosen |= {name: (value, spelled(name, None)) for name, value in typed.items()}
    named, where = chosen.pop("preset", (default, ""))
    preset = one_of(str(named), presets, where)
    values = {name: value for name, (value, _) in chosen.items()}
    settings = _validated(kind, {**presets[preset][1], **values}, {name: where for name, (_, where) in chosen.items()})
    kept = settings.flat()
    return Parsed(settings, preset, {name: kept[name] for name in chosen}, shlex.join([parser.prog, *arguments]))


def _from_toml(path: Path, flags: Flags) -> dict[str, tuple[Any, str]]:
    """Read a TOML file of settings: name -> (value, file and key). Tables are optional and have the records' names.

    Raises `UserError` if the file cannot be read, or if a key is unknown or a duplicate.
    """
    content = read_toml(path)
    records = {record for record, _ in flags.values()}
    tables = {"": {key: value for key, value in content.items() if not isinstance(value, dict)}}
    tables |= {key: value for key, value in content.items() if isinstance(value, dict)}
    found: dict[str, tuple[Any, str]] = {}
    for table, entries in tables.items():
        if table and table not in records:
            raise UserError(f"{path}: [{table}]: no such table{suggestion(table, records)}")
        known = [name for name, (record, _) in flags.items() if table in ("", record)] + ["preset"] * (not table)
        for key, value in entries.items():
            name, where = key.replace("-", "_"), f"{path}: {table}{'.' * bool(table)}{key}"
            if name not in known:
                raise UserError(f"{where}: no such setting{suggestion(name, known)}")
            if name in found:
                raise UserError(f"{where}: the file has this setting twice")
            found[name] = value, where
    return found


def spelled(name: str, value: Any) -> str:
    """The flag of a setting as it is typed: `--max-length`, or `--projection` and `--no-projection` for a boolean."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"


def _listed(presets: Presets, default: str) -> str:
    """The presets and their settings, as `--list-presets` prints them."""
    lines = []
    for name, (text, values) in presets.items():
        lines.append(f"{name}{' (default)' if name == default else ''}: {text}")
        for key, value in values.items():
            said = "" if isinstance(value, bool) else f" {shlex.quote(str(value)) if value != '' else '(required)'}"
            lines.append(f"    {spelled(key, value)}{said}")
    return "\n".join(lines)


def _declared(word: str, flags: Flags) -> str:
    """A flag as the parser declares it: with dashes, without its record's name. Other words are not changed."""
    if not word.startswith("--"):
        return word
    name, equals, value = word[2:].partition("=")
    record, dot, last = name.replace("-", "_").rpartition(".")
    short = last if last in flags else last.removeprefix("no_")
    if dot and flags.get(short, ("",))[0] != record:
        dotted = [f"{known}.{one}".replace("_", "-") for one, (known, _) in flags.items()]
        raise UserError(f"--{name}: no such flag{suggestion(name, dotted)} (see --help)")
    return f"--{last.replace('_', '-')}{equals}{value}"


def _parser(flags: Flags, program: str, about: str, preset: str, defaults: Mapping[str, Any]) -> Parser:
    """The flags of a program; `defaults` are the values that its default preset sets."""
    parser = Parser(
        prog=program,
        description=about,
        epilog="Flags may be written with - or _, and with the name of their group before them, as in --training.lr. "
        "A TOML file for --config holds them under the same names, in tables named for the groups or without tables.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=36, width=110),
    )
    parser.add_argument("--preset", metavar="NAME", help=f"a named set of settings (default: {preset})")
    text = "settings in a file: flags override it, and it overrides the preset"
    parser.add_argument("--config", metavar="FILE.toml", help=text)
    parser.add_argument("--list-presets", action="store_true", help="print the presets and what they set, and stop")
    groups = {record: parser.add_argument_group(record) for record, _ in flags.values()}
    for name, (record, option) in flags.items():
        text, (kind, choices) = (option.description or "").replace("%", "%%"), _kind(option)
        shown = defaults.get(name, option.default)
        if kind is bool:  # with --no-..., so that what a preset turns on can be turned off
            action: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
            shown = "on" if shown else "off"
        else:
            usual = {int: "N", float: "X"}.get(kind, "PATH" if record in PLACES else "NAME")
            action = {"type": kind, "metavar": "{" + ",".join(filter(None, choices)) + "}" if choices else usual}
        default_text = "" if shown in ("", None) else f" (default: {shown})"
        groups[record].add_argument(f"--{name.replace('_', '-')}", help=text + default_text, **action)
    return parser


def _kind(option: FieldInfo) -> tuple[type, tuple[str, ...]]:
    """The type of a field's values, apart from None, and the choices of a `Literal`."""
    annotation: Any = option.annotation
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    return next((kind for kind in get_args(annotation) if kind is not NoneType), annotation), ()


def _validated(kind: type[S], flat: Mapping[str, Any], sources: Mapping[str, str]) -> S:
    """Settings from values by flag name; `sources` gives the flag, or the file and key, of those a user has given."""
    nested: dict[str, dict[str, Any]] = {}
    flags = flags_of(kind)
    for name, value in flat.items():
        nested.setdefault(flags[name][0], {})[name] = value
    try:
        return kind.model_validate(nested)
    except ValidationError as error:
        first: Any = error.errors()[0]
        raised = first.get("ctx", {}).get("error")
        if isinstance(raised, UserError):
            raise raised from None
        name, value, said = str(first["loc"][1]), first["input"], str(first["msg"])
        where = sources.get(name, spelled(name, None))
        if choices := _kind(flags[name][1])[1]:
            one_of(str(value), choices, where)
        raise UserError(f"{where}: {said[0].lower()}{said[1:]}, not {quoted(value)}") from None
