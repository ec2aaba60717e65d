"""Settings of a command: plain dataclasses whose fields are its flags, read by `transformers.HfArgumentParser`.

The settings of a command are a dataclass of groups (encoder, training, run, ...), each a dataclass itself; the name of
a flag is unique among them. A preset changes the defaults, `--config FILE.toml` overrides the preset, and flags
override both. Preset and file are TOML tables whose keys are the names of flags; the values of a list are joined by
commas.
"""

import argparse
import copy
import dataclasses
import math
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, get_type_hints

from transformers import HfArgumentParser

from minbert.errors import UserError, one_of, suggestion
from minbert.files import expand_user, read_toml, require_file
from minbert.pooling import NAMES as POOLERS
from minbert.train import cli

RUN_HELP = "folder of the run: new, or empty, except with --resume"


def flag(default: Any, text: str, **options: Any) -> Any:
    """A field of a group: its default and its help; `options` are those of argparse, such as `metavar`."""
    if isinstance(default, int | float) and not isinstance(default, bool):
        options.setdefault("metavar", "N" if isinstance(default, int) else "X")
    return field(default=default, metadata={"help": text.replace("%", "%%"), **options})


def require_range(group: Any, name: str, low: float, high: float = float("inf")) -> None:
    """Raises `UserError`, naming the flag, if the value of `name` in a group is not from `low` to `high`."""
    value = getattr(group, name)
    if value is None or (low <= value <= high and math.isfinite(value)):
        return
    limits = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
    if value == float("inf"):
        limits = "finite"
    raise UserError(f"{flag_name(name)} {value}: must be {limits}")


def refuse_flags(names: Iterable[str], overrides: Mapping[str, Any], reason: str) -> None:
    """Raises `UserError` for a flag of `names` among the `overrides`; the `reason` follows the flag in its message."""
    for name in names:
        if name in overrides:
            raise UserError(f"{flag_name(name)} {reason}")


def flag_name(name: str) -> str:
    """The flag of a setting: `--max-length` of `max_length`."""
    return f"--{name.replace('_', '-')}"


def names_in(text: str) -> list[str]:
    """The names of a comma-separated list."""
    return [name.strip() for name in text.split(",") if name.strip()]


@dataclass(frozen=True)
class EncoderSettings:
    """The encoder that training starts from."""

    weights: str = flag(
        "bert-base-uncased", "starting weights: minilm, a folder, a run, or a hub name", metavar="NAME|DIR"
    )
    pooler: str = flag(
        "",
        f"how hidden states become one vector: {', '.join(POOLERS)} (default: as the folder of the weights says, else "
        "pooler)",
        metavar="NAME",
        choices=["", *POOLERS],
    )
    max_length: int = flag(128, "longest input in tokens (0: as many as the encoder has positions)")
    encoder_dropout: float | None = flag(
        None, "dropout inside the encoder (default: the rates of its config)", metavar="X"
    )

    def __post_init__(self) -> None:
        require_range(self, "encoder_dropout", 0, 0.99)


@dataclass(frozen=True)
class DataSettings:
    """How many rows of the data are read."""

    limit: int = flag(0, "train on N rows of each training set, drawn by seed (0: all)")
    limit_eval: int = flag(
        0, "for trials: evaluate and predict N rows of each dev and test set, the same for every --seed (0: all)"
    )
    allow_unknown: bool = flag(
        False, "read texts even if over half of their tokens are unknown to the encoder's vocabulary"
    )

    def __post_init__(self) -> None:
        require_range(self, "limit", 0)
        require_range(self, "limit_eval", 0)


@dataclass(frozen=True)
class TrainingSettings:
    """Training, evaluation and the selection of the final weights."""

    metric: ClassVar[str] = ""
    """The score of an evaluation, by which the best is chosen."""

    epochs: int = flag(10, "passes over the largest training set")
    batch_size: int = flag(32, "examples in one update")
    max_steps: int = flag(
        0,
        "stop after N steps, as if they were the whole run: --lr-schedule and --warmup span them, a curriculum "
        "keeps the pace of --epochs (0: all epochs)",
    )
    lr: float = flag(2e-5, "learning rate")
    lr_schedule: Literal["constant", "linear", "cosine"] = flag("constant", "learning-rate schedule")
    warmup: float = flag(0.0, "fraction of the steps with linear warm-up")
    weight_decay: float = flag(0.0, "decoupled weight decay of matrices and embeddings")
    clip: float = flag(1.0, "largest gradient norm (0: no clipping)")
    evaluate_every: int = flag(0, "steps between evaluations (0: each epoch's end)")
    patience: int = flag(0, "early stopping patience, in evaluations (0: never stop early)")
    keep: Literal["best", "last"] = flag(
        "best", "the weights to keep: those of the best evaluation, or of the last step"
    )
    average: float = flag(
        0.0, "end with the mean of the weights over the last fraction X of the steps (0: the weights of the last step)"
    )
    seed: int = flag(11711, "random seed")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = flag("auto", "number format of the matrix products")

    def __post_init__(self) -> None:
        require_range(self, "epochs", 1, 10_000)
        require_range(self, "batch_size", 1)
        for name in ("max_steps", "lr", "weight_decay", "clip", "evaluate_every", "patience"):
            require_range(self, name, 0)
        require_range(self, "warmup", 0, 1)
        require_range(self, "average", 0, 1)
        if self.average and self.patience:
            raise UserError("--average and --patience exclude each other: it is not known which steps are the last")

    @property
    def selects_by_dev(self) -> bool:
        """Whether the dev sets choose the weights that are kept, or when training stops."""
        return self.keep == "best" or self.patience > 0


@dataclass(frozen=True)
class FileSettings:
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    data: str = flag("", "folder with the data (default: $DATA_DIR, else data/)", metavar="DIR")


@dataclass(frozen=True)
class RunSettings:
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag("runs/run", RUN_HELP, metavar="DIR")
    resume: bool = flag(False, "resume from the newest checkpoint, or start if there is none")
    save_every: int = flag(0, "save a checkpoint every N steps, in addition to the one at each evaluation")
    log_every: int = flag(
        50, "steps between two rows of metrics.jsonl; without a terminal a line is printed with each, and each minute"
    )
    track: Literal["none", "tensorboard", "wandb"] = flag("none", "also record the run in TensorBoard, or in W&B too")
    use_gpu: bool = flag(False, "require a CUDA device (by default one is used if there is one)")

    def __post_init__(self) -> None:
        require_range(self, "save_every", 0)
        require_range(self, "log_every", 1)


@dataclass(frozen=True)
class Settings:
    """All settings of a command: each field is a group."""

    @classmethod
    def groups(cls) -> dict[str, type]:
        """Name of a group -> its class."""
        hints = get_type_hints(cls)
        return {item.name: hints[item.name] for item in fields(cls)}

    @classmethod
    def of(cls, **flat: Any) -> Self:
        """Settings from values by flag name; all others have their defaults. Raises `UserError`."""
        arguments = {}
        for name, group in cls.groups().items():
            values = {item.name: flat.pop(item.name) for item in fields(group) if item.name in flat}
            arguments[name] = group(**values)
        assert not flat, f"no such settings: {flat}"
        return cls(**arguments)

    def changed(self, **flat: Any) -> Self:
        """A copy with some values changed, by flag name. Raises `UserError`."""
        return self.of(**self.flat() | flat)

    def flat(self) -> dict[str, Any]:
        """Every value by flag name."""
        values = {}
        for group in fields(self):
            values.update(dataclasses.asdict(getattr(self, group.name)))
        return values

    def identity(self) -> dict[str, Any]:
        """The values that determine a run's results, by flag name: those of all groups but paths and logging."""
        values = {}
        for group in fields(self):
            content = getattr(self, group.name)
            if not isinstance(content, FileSettings | RunSettings):
                values.update(dataclasses.asdict(content))
        return values

    def check_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for flags that must not be given together; `overrides` are those of flags and files."""


S = TypeVar("S", bound=Settings)


def flags_of(settings_class: type[Settings]) -> set[str]:
    """The names of a command's flags, with underscores."""
    names: set[str] = set()
    for group in settings_class.groups().values():
        names.update(item.name for item in fields(group))
    return names


@dataclass(frozen=True)
class Preset:
    """A named set of settings; `values` are by flag name."""

    about: str
    values: Mapping[str, Any]


Presets = Mapping[str, Mapping[str, Preset]]
"""A command, such as `pretrain_cbcl.py` -> its presets by name."""


def read_presets(path: Path, command: str) -> dict[str, dict[str, Preset]]:
    """The presets of a TOML file by command, a table for each preset.

    A table with a `base` has the settings of an earlier table and its own in place of them. Its `command` is the one
    that it belongs to, by default that of its base, else the argument.
    """
    tables: dict[str, dict[str, Any]] = {}
    presets: dict[str, dict[str, Preset]] = {}
    for name, table in read_toml(path).items():
        inherited = {"command": command}
        if "base" in table:
            inherited = tables[table.pop("base")]
        about = table.pop("about")
        tables[name] = {**inherited, **table}
        values = dict(tables[name])
        presets.setdefault(values.pop("command"), {})[name] = Preset(about, values)
    return presets


@dataclass(frozen=True)
class Parsed(Generic[S]):
    """A parsed command line; `overrides` are the values of flags and of `--config`."""

    settings: S
    preset: str
    overrides: dict[str, Any]
    program: str
    """The script, such as `multitask_train.py`, or `-m MODULE`."""
    command: str
    """The command as `python PROGRAM FLAGS`."""


# flags by the names that transformers' Trainer, and scripts written for it, have for them
_TRAINER_FLAGS = {
    "learning_rate": "--lr",
    "lr_scheduler_type": "--lr-schedule",
    "max_grad_norm": "--clip",
    "num_train_epochs": "--epochs",
    "per_device_train_batch_size": "--batch-size",
    "eval_steps": "--evaluate-every",
    "save_steps": "--save-every",
    "logging_steps": "--log-every",
    "max_seq_length": "--max-length",
    "model_name_or_path": "--weights",
    "output_dir": "--run-dir",
    "report_to": "--track",
}


class _Parser(HfArgumentParser, cli.Parser):
    """The parser of a command's flags: those of `preset_parser`, and those of its groups, each a group of the help."""

    def __init__(
        self, settings_class: type[Settings], preset_parser: cli.Parser, program: str, doc: str | None
    ) -> None:
        # no wider than the terminal
        width = min(118, shutil.get_terminal_size((120, 24)).columns - 2)
        super().__init__(
            parents=[preset_parser],
            prog=f"python {program}",
            usage="%(prog)s [--preset NAME] [flags]",
            doc=doc,
            formatter_class=partial(_HelpFormatter, max_help_position=30, width=width),
        )
        for name, group in settings_class.groups().items():
            titled: Any = group
            titled._argument_group_name = name
            self._add_dataclass_arguments(titled)
        for action in self._actions:
            option = action.option_strings[-1]
            if option.startswith("--no-"):
                action.help = f"turns off --{option.removeprefix('--no-')}"
            elif action.nargs == "?" and action.metavar is None:
                action.metavar = "true|false"

    def values(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """The value of every flag, and the names of the flags that `words` hold. Raises `UserError`."""
        namespace, unknown = self.parse_known_args(words)
        if unknown:
            if not unknown[0].startswith("-"):
                raise UserError(f"{unknown[0]}: belongs to no flag; a list has commas and no spaces (see --help)")
            word = unknown[0].partition("=")[0]
            options = chain.from_iterable(action.option_strings for action in self._actions)
            # one of the two spellings, as in the help
            option_strings = [option for option in options if "_" not in option]
            word = _TRAINER_FLAGS.get(word.replace("-", "_").lstrip("_"), word)
            raise UserError(f"{unknown[0]}: no such flag{suggestion(word, option_strings)} (see --help)")
        typed_options = {word.partition("=")[0] for word in words}
        typed = [action.dest for action in self._actions if not typed_options.isdisjoint(action.option_strings)]
        return namespace, typed


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows each flag once, with hyphens, and the default of every flag that has one."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        shown = copy.copy(action)
        shown.option_strings = [option for option in action.option_strings if "_" not in option]
        return super()._format_action_invocation(shown)

    def _split_lines(self, text: str, width: int) -> list[str]:
        # names, such as round-robin, stay whole
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        described = "(default" in (action.help or "")
        if described or action.default is None or action.default is False or action.default == "":
            return action.help
        return super()._get_help_string(action)


def parse(
    settings_class: type[S],
    presets: Presets,
    arguments: Sequence[str],
    *,
    program: str,
    default: str,
    doc: str | None = None,
) -> Parsed[S]:
    """Parse a command line. `presets` are those of all commands, and `default` is the preset if none is named.
    `--help` shows the first line of `doc`, the docstring of the command's module.

    `--a-b` and `--a_b` are equivalent. Raises `UserError`; prints and exits for `--help` and `--list-presets`.
    """
    # these flags are read before all others, so that --help shows the values of the preset as defaults
    preset_parser = cli.Parser(add_help=False)
    preset_parser.add_argument("--preset", metavar="NAME", help="a named set of settings")
    preset_parser.add_argument("--config", metavar="FILE.toml", help="settings in a file: they override the preset's")
    preset_parser.add_argument(
        "--list-presets", "--list_presets", action="store_true", help="show the presets and what they set, and exit"
    )
    chosen, _ = preset_parser.parse_known_args(arguments)
    if chosen.list_presets:
        cli.say(_describe(presets[program], default))
        raise SystemExit(0)

    table: dict[str, Any] = {}
    label = ""
    if chosen.config:
        file = require_file(expand_user(chosen.config), "--config")
        table = read_toml(file)
        label = f"{file}: "
        if "config" in table:
            raise UserError(f"{label}config: a file of settings cannot name another")
    preset_of_file = table.pop("preset", default)
    preset = chosen.preset or str(preset_of_file)
    for command, command_presets in presets.items():
        if preset in command_presets and preset not in presets[program]:
            raise UserError(f"--preset {preset}: belongs to another command: python {command} --preset {preset}")
    preset = one_of(preset, presets[program], "--preset")
    parser = _Parser(settings_class, preset_parser, program, doc)
    parser.set_defaults(**_table_values(parser, presets[program][preset].values, ""))
    from_file = _table_values(parser, table, label)
    parser.set_defaults(**from_file, preset=preset)
    namespace, typed = parser.values(arguments)

    names = flags_of(settings_class)
    flat = {name: value for name, value in vars(namespace).items() if name in names}
    settings = settings_class.of(**flat)
    # without --preset and --config, which are no settings
    overrides = {name: flat[name] for name in [*from_file, *typed] if name in flat}
    settings.check_overrides(overrides)
    return Parsed(settings, preset, overrides, program, shlex.join([*parser.prog.split(), *arguments]))


def _table_values(parser: _Parser, table: Mapping[str, Any], label: str) -> dict[str, Any]:
    """The values of a TOML table, checked as those of flags. Raises `UserError`, which begins with `label`."""
    words = []
    for key, value in table.items():
        text = ",".join(map(str, value)) if isinstance(value, list) else value
        words.append(f"{flag_name(key)}={text}")
    try:
        namespace, names = parser.values(words)
    except UserError as error:
        raise UserError(f"{label}{error}") from None
    return {name: getattr(namespace, name) for name in names}


def _describe(presets: Mapping[str, Preset], default: str) -> str:
    """The presets and their settings, as `--list-presets` prints them."""
    lines = []
    for name, preset in presets.items():
        lines.append(f"{name}{' (default)' if name == default else ''}: {preset.about}")
        for key, value in preset.values.items():
            # a preset with an empty value, such as that of --weights, leaves it to the user
            text = shlex.quote(str(value)) if value != "" else "(required)"
            lines.append(f"    {flag_name(key)} {text}")
    return "\n".join(lines)
