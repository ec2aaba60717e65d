"""Settings: one typed object per script, made of groups, read from a preset, a TOML file and flags.

A script may have several kinds of settings, and one flag chooses among them; flags of another kind do not exist.
This module does not import torch, so that `--help` is fast.
"""

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from minbert.errors import UserError, one_of, short_repr, suggestion
from minbert.files import expand_user, read_toml, require_file
from minbert.train.cli import Parser, say

Presets = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Name -> (description, the settings it changes, by flag name)."""

Pooler = Literal["pooler", "cls", "mean", "max", "avg-first-last", "avg-static-last", "avg-last-two"]
"""`minbert.pooling.NAMES`, here because that module imports torch."""

WITHOUT_EFFECT = ("files", "run")
"""The groups that do not affect a run's results: paths, checkpoints and logging."""


def flag(
    default: Any,
    text: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    metavar: str = "",
    common: bool = False,
    path: bool = False,
) -> Any:
    """A field of a group: its default, its help text and, for numbers, its minimum and maximum.

    `metavar` stands for the value in the help. `--help` shows the `common` flags, `--help-all` the others too. A `path`
    does not affect a run's results: the hash of the file that it names does.
    """
    extra: dict[str, Any] = {"metavar": metavar, "common": common, "path": path}
    return Field(default, description=text, ge=ge, le=le, json_schema_extra=extra)


class SettingsGroup(BaseModel):
    """A group of settings: each field is a flag."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _chosen(cls, value: Any, info: ValidationInfo) -> Any:
        """Match choices ignoring case."""
        choices = _kind(cls.model_fields[str(info.field_name)])[1]
        return next((choice for choice in choices if choice.lower() == str(value).strip().lower()), value)


class Settings(BaseModel):
    """All settings of a script: each field is a `SettingsGroup`. A flag's name is unique across the groups.

    `choice` is the flag that chooses among several `kinds` of settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    choice: ClassVar[str] = ""

    @classmethod
    def kinds(cls) -> Mapping[str, Callable[[], type[Self]]]:
        """Value of the flag `choice` -> a function that returns the class of its settings; empty for one kind.

        The default is the first. A function is called only when its kind is chosen, as it imports a file.
        """
        return {}

    @classmethod
    def kind(cls, values: Mapping[str, Any], label: str = "") -> type[Self]:
        """The settings that `values`, by flag name, choose. Raises `UserError`, which begins with `label`."""
        kinds = cls.kinds()
        if not kinds:
            return cls
        value = str(values.get(cls.choice, next(iter(kinds))))
        return kinds[one_of(value, kinds, label or flag_name(cls.choice, None))]()

    @classmethod
    def of(cls, **flat: Any) -> Self:
        """Settings from values by flag name; all others have their defaults. Raises `UserError`."""
        return _validated(cls.kind(flat), flat, {})

    def changed(self, **flat: Any) -> Self:
        """A copy with some values changed, by flag name. Raises `UserError`."""
        return self.of(**self.flat() | flat)

    def flat(self) -> dict[str, Any]:
        """Every value by flag name."""
        return {name: value for group in self.model_dump().values() for name, value in group.items()}

    def identity(self) -> dict[str, Any]:
        """The values that determine a run's results, by flag name: all but the `flags_without_effect`."""
        without = flags_without_effect(type(self))
        return {name: value for name, value in self.flat().items() if name not in without}

    def check(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for flags that must not be given together; `overrides` are the values of a user."""


class EncoderSettings(SettingsGroup):
    """The initial encoder."""

    weights: str = flag(
        "bert-base-uncased", "starting weights: minilm, a folder, a run, or a hub name", metavar="NAME|DIR", common=True
    )
    pooler: Literal["", Pooler] = flag(
        "", "how hidden states become one vector (default: as the folder of the weights says, else pooler)"
    )
    max_length: int = flag(128, "longest input in tokens (0: as many as the encoder has positions)", ge=0, common=True)
    encoder_dropout: float | None = flag(
        None, "dropout inside the encoder (default: the rates of its config)", ge=0, le=0.99
    )

    @property
    def source(self) -> str:
        """The source of the initial weights: a folder, a run, or a name. Raises `UserError` without one."""
        if not self.weights:
            raise UserError("--weights: name the encoder to start from, such as minilm or runs/consert-sup/encoder")
        return self.weights

    @property
    def source_flag(self) -> str:
        """The flag that names the source."""
        return "--weights"


class DataSettings(SettingsGroup):
    """How many rows of the data are read."""

    limit: int = flag(0, "train on N rows of each training set, drawn by seed (0: all)", ge=0, common=True)
    limit_eval: int = flag(0, "for trials: evaluate and predict the first N rows of dev and test sets (0: all)", ge=0)


class TrainingSettings(SettingsGroup):
    """Training, evaluation and the selection of the final weights."""

    metric: ClassVar[str]
    """The score of an evaluation, by which the best is chosen."""

    epochs: int = flag(10, "passes over the largest training set", ge=1, le=10_000, common=True)
    batch_size: int = flag(32, "examples in one update", ge=1, common=True)
    max_steps: int = flag(
        0,
        "stop after N steps, as if they were the whole run: --lr-schedule and --warmup span them, while --epochs "
        "still paces a curriculum (0: all epochs)",
        ge=0,
    )
    lr: float = flag(2e-5, "learning rate", ge=0, common=True)
    lr_schedule: Literal["constant", "linear", "cosine"] = flag("constant", "learning-rate schedule", common=True)
    warmup: float = flag(0.0, "fraction of the steps with linear warm-up", ge=0, le=1, common=True)
    weight_decay: float = flag(0.0, "decoupled weight decay of matrices and embeddings", ge=0)
    clip: float = flag(1.0, "largest gradient norm (0: no clipping)", ge=0)
    evaluate_every: int = flag(0, "steps between evaluations (0: each epoch's end)", ge=0, common=True)
    patience: int = flag(0, "early stopping patience, in evaluations (0: never stop early)", ge=0)
    keep: Literal["best", "last"] = flag(
        "best", "the weights to keep: those of the best evaluation, or of the last step", common=True
    )
    average: float = flag(
        0.0,
        "end with the mean of the weights over the last fraction X of the steps (0: the weights of the last step)",
        ge=0,
        le=1,
    )
    seed: int = flag(11711, "random seed", common=True)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = flag("auto", "number format of the matrix products")

    @model_validator(mode="after")
    def _last_step_known(self) -> Self:
        if self.average and self.patience:
            raise UserError("--average and --patience exclude each other: it is not known which steps are the last")
        return self

    @property
    def chooses(self) -> bool:
        """Whether the dev sets choose the weights that are kept, or when training stops."""
        return self.keep == "best" or self.patience > 0

    @property
    def selection(self) -> dict[str, Any]:
        """For the manifest: the weights to keep, the metric, and whether dev sets choose them."""
        how = {"keep": self.keep, "metric": self.metric, "patience": self.patience}
        return how | {"by_dev_pairs": self.chooses}


class FileSettings(SettingsGroup):
    """Paths of the data. They are not part of a run's identity; the hashes of the files are."""

    data: str = flag("", "folder with the data (default: $DATA_DIR, else data/)", metavar="DIR", common=True)


class RunSettings(SettingsGroup):
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag("runs/run", "folder of the run", metavar="DIR", common=True)
    resume: bool = flag(False, "resume from the newest checkpoint, or start if there is none", common=True)
    save_every: int = flag(0, "save a checkpoint every N steps, in addition to the one after each evaluation", ge=0)
    log_every: int = flag(
        50,
        "steps between two rows of metrics.jsonl; without a terminal a line is printed with each, and each minute",
        ge=1,
    )
    track: Literal["none", "tensorboard", "wandb"] = flag("none", "also record the run in TensorBoard, or in W&B too")
    use_gpu: bool = flag(False, "require a CUDA device (by default one is used if there is one)", common=True)


S = TypeVar("S", bound=Settings)
Flags = Mapping[str, tuple[str, FieldInfo]]


def names_in(listed: str) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in listed.split(",") if name.strip()]


def read_presets(path: Path) -> Presets:
    """The presets of a TOML file, a table for each; a table with a `base` changes some settings of an earlier one."""
    presets: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, table in read_toml(path).items():
        description, base = table.pop("about"), table.pop("base", "")
        presets[name] = description, (presets[base][1] if base else {}) | table
    return presets


def flags_of(kind: type[Settings]) -> dict[str, tuple[str, FieldInfo]]:
    """Flag name, with underscores -> (name of its group, its field)."""
    flags: dict[str, tuple[str, FieldInfo]] = {}
    for group, field in kind.model_fields.items():
        assert isinstance(field.annotation, type) and issubclass(field.annotation, SettingsGroup)
        for name, option in field.annotation.model_fields.items():
            assert name not in flags, f"--{name} is in two groups, {flags[name][0]} and {group}"
            flags[name] = group, option
    return flags


def flags_without_effect(kind: type[Settings]) -> set[str]:
    """The flags that do not affect a run's results: those in the groups of `WITHOUT_EFFECT`, and paths."""
    flags = flags_of(kind).items()
    return {name for name, (group, option) in flags if group in WITHOUT_EFFECT or _extra(option)["path"]}


@dataclass(frozen=True)
class Parsed(Generic[S]):
    """A parsed command line; `overrides` are the values given by flags or by a file."""

    settings: S
    preset: str
    overrides: dict[str, Any]
    command: str


def parse(
    kind: type[S], presets: Presets, arguments: Sequence[str], *, program: str, description: str, default: str
) -> Parsed[S]:
    """Parse a command line. Flags override `--config FILE.toml`, which overrides the preset (`default` if not given).

    `--a-b` and `--a_b` are equivalent. Of a preset for another kind of settings, the flags that this kind has are
    taken. Raises `UserError`; prints and exits for `--help`, `--help-all` and `--list-presets`.
    """
    words = [_with_dashes(word) for word in arguments]
    deciding = {name: flag for name, flag in flags_of(kind.kind({})).items() if name == kind.choice}
    first_parser = _parser(kind, deciding, program, description, default, {}, everything=False)
    first = vars(first_parser.parse_known_args(words)[0])  # the flags that decide which others there are
    if "list_presets" in first:
        say(_listed(presets, default))
        raise SystemExit(0)
    file = require_file(expand_user(first["config"]), "--config") if "config" in first else None
    table = {key.replace("-", "_"): value for key, value in read_toml(file).items()} if file else {}
    in_file = f"{file}: "
    by_file = str(table.pop("preset", default))
    preset = one_of(first.get("preset", by_file), presets, "--preset" if "preset" in first else f"{in_file}preset")
    by_preset = presets[preset][1]
    label = f"{in_file}{kind.choice}" if kind.choice in table and kind.choice not in first else ""
    chosen_kind = kind.kind({**by_preset, **table, **first}, label)
    flags = flags_of(chosen_kind)
    by_preset = {name: value for name, value in by_preset.items() if name in flags and name != kind.choice}
    parser = _parser(chosen_kind, flags, program, description, preset, by_preset, everything="help_all" in first)
    if "help" in first or "help_all" in first:
        say(parser.format_help().rstrip())
        raise SystemExit(0)
    typed, unknown = parser.parse_known_args(words)
    if unknown:
        raise UserError(f"{unknown[0]}: {_no_such_flag(unknown[0], kind, chosen_kind, parser)}")
    for key in table:
        if key not in flags:
            raise UserError(f"{in_file}{key}: no such setting{suggestion(key, flags)}")
    by_flags = {name: value for name, value in vars(typed).items() if name in flags}
    sources = {key: f"{in_file}{key}" for key in table} | {name: flag_name(name, None) for name in by_flags}
    settings = _validated(chosen_kind, {**by_preset, **table, **by_flags}, sources)
    flat = settings.flat()
    overrides = {name: flat[name] for name in {**table, **by_flags}}
    settings.check(overrides)
    return Parsed(settings, preset, overrides, shlex.join([parser.prog, *arguments]))


def _no_such_flag(word: str, kind: type[Settings], chosen_kind: type[Settings], parser: Parser) -> str:
    """Why a flag is refused: another kind of settings has it, or none."""
    name = word.lstrip("-").partition("=")[0].replace("-", "_").removeprefix("no_")
    owners = [value for value, candidate in kind.kinds().items() if name in flags_of(candidate())]
    if owners and name not in flags_of(chosen_kind):
        chosen = next(value for value, candidate in kind.kinds().items() if candidate() is chosen_kind)
        return f"--{kind.choice} {chosen} has no such flag (it belongs to --{kind.choice} {', '.join(owners)})"
    options = [option for action in parser._actions for option in action.option_strings]
    return f"no such flag{suggestion(word, options)} (see --help-all)"


def flag_name(name: str, value: Any) -> str:
    """The flag of a setting as it is typed: `--max-length`, or `--projection` and `--no-projection` for a boolean."""
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"


def _listed(presets: Presets, default: str) -> str:
    """The presets and their settings, as `--list-presets` prints them."""
    lines = []
    for name, (text, values) in presets.items():
        lines.append(f"{name}{' (default)' if name == default else ''}: {text}")
        for key, value in values.items():
            typed = "" if isinstance(value, bool) else f" {shlex.quote(str(value)) if value != '' else '(required)'}"
            lines.append(f"    {flag_name(key, value)}{typed}")
    return "\n".join(lines)


def _with_dashes(word: str) -> str:
    """A flag with dashes for underscores; other words are not changed."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}"


def _parser(
    kind: type[Settings],
    flags: Flags,
    program: str,
    description: str,
    preset: str,
    defaults: Mapping[str, Any],
    *,
    everything: bool,
) -> Parser:
    """The flags of a program; `defaults` are the values that the preset sets. Help shows the common ones, or all."""
    of_choice = f" of this {kind.choice.replace('_', ' ')}" if kind.choice else ""
    parser = Parser(
        prog=program,
        usage="%(prog)s [--preset NAME] [flags]",
        description=description,
        epilog="" if everything else f"--help-all shows every flag{of_choice}. A boolean flag has a --no- form.",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=30, width=118),
    )
    general = parser.add_argument_group("flags")
    general.add_argument("-h", "--help", action="store_true", help="show the common flags and exit")
    general.add_argument("--help-all", action="store_true", help=f"show every flag{of_choice} and exit")
    general.add_argument("--list-presets", action="store_true", help="show the presets and what they set, and exit")
    general.add_argument("--preset", metavar="NAME", help=f"a named set of settings (chosen: {preset})")
    text = "settings in a file: flags override it, and it overrides the preset"
    general.add_argument("--config", metavar="FILE.toml", help=text)
    titles = [group for group, _ in flags.values()]
    groups = {title: parser.add_argument_group(title) if everything else general for title in titles}
    for name, (group, option) in flags.items():
        text, (value_kind, choices) = (option.description or "").replace("%", "%%"), _kind(option)
        extra, shown = _extra(option), defaults.get(name, option.default)
        if name == kind.choice:
            choices = tuple(kind.kinds())
        if value_kind is bool:  # with --no-..., so that what a preset turns on can be turned off
            action: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
            shown = "on" if shown else "off"
        else:
            usual = {int: "N", float: "X"}.get(value_kind, "FILE" if extra["path"] else "NAME")
            listed = "{" + ",".join(filter(None, choices)) + "}" if choices else usual
            action = {"type": value_kind, "metavar": extra["metavar"] or listed}
        default_text = "" if shown in ("", None) else f" (default: {shown})"
        visible = everything or extra["common"]
        action["help"] = text + default_text if visible else argparse.SUPPRESS
        groups[group].add_argument(flag_name(name, None), **action)
    return parser


def _extra(option: FieldInfo) -> dict[str, Any]:
    """The properties of a field that `flag` records besides its text and range."""
    extra = option.json_schema_extra
    return extra if isinstance(extra, dict) else {"metavar": "", "common": False, "path": False}


def _kind(option: FieldInfo) -> tuple[type, tuple[str, ...]]:
    """The type of a field's values, apart from None, and the choices of a `Literal`."""
    annotation: Any = option.annotation
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    return next((kind for kind in get_args(annotation) if kind is not NoneType), annotation), ()


def _validated(kind: type[S], flat: Mapping[str, Any], sources: Mapping[str, str]) -> S:
    """Settings from values by flag name; `sources` gives the flag, or the file and key, of those a user has given."""
    nested: dict[str, dict[str, Any]] = {group: {} for group in kind.model_fields}
    flags = flags_of(kind)
    for name, value in flat.items():
        if name not in flags:
            raise UserError(f"{name}: no such setting{suggestion(name, flags)}")
        nested[flags[name][0]][name] = value
    try:
        return kind.model_validate(nested)
    except ValidationError as error:
        first: Any = error.errors()[0]
        raised = first.get("ctx", {}).get("error")
        if isinstance(raised, UserError):
            raise raised from None
        name, value, text = str(first["loc"][1]), first["input"], str(first["msg"])
        label = sources.get(name, flag_name(name, None))
        if choices := _kind(flags[name][1])[1]:
            one_of(str(value), choices, label)
        raise UserError(f"{label}: {text[0].lower()}{text[1:]}, not {short_repr(value)}") from None
