"""A task of your own: a TOML file that names a kind of task, the data files and their columns.

kind = "classification"                     # or "pair-classification", "similarity"
train = "reviews.csv"                       # paths are relative to the TOML file
dev = "reviews-dev.csv"                     # without it, 10% of the training rows
test = "reviews-test.csv"                   # without it, none is predicted
text = "comment"                            # of pairs: text1, text2; without them, the usual names are found
label = "mood"
id = "number"                               # without it, the line is the id
labels = ["angry", "neutral", "happy"]      # without it, those of the training file, sorted
scale = [0, 1]                              # of a similarity: its lowest and its highest score
metric = "macro-f1"                         # accuracy, macro-f1; of a similarity pearson, spearman
weight = 0.5                                # of the task's loss beside those of other tasks
title = "customer reviews"                  # in tables and on the page

The name of the file is the task's name.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from minbert.errors import UserError, format_list, one_of, short_repr, suggestion
from minbert.files import read_toml, require_file
from minbert.train import distributed
from tasks.readers.formats import cell, has_semicolons, read_records
from tasks.readers.kinds import KINDS, find_columns
from tasks.readers.labels import is_number
from tasks.readers.rows import SPLITS
from tasks.readers.table import Record

READER_KINDS = {"classification": "single", "pair-classification": "pair-class", "similarity": "pair-score"}
"""The kinds of tasks -> the kind of rows, whose usual names of columns are found."""
_METRICS = {"accuracy": "accuracy", "macro-f1": "macro-F1", "pearson": "Pearson's r", "spearman": "Spearman's rho"}
_KEYS: dict[str, tuple[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("kind", "train", "dev", "test", "text", "text1", "text2", "label", "id"), ("a text", str)),
    **dict.fromkeys(("metric", "title"), ("a text", str)),
    "labels": ("a list of two or more texts", list),
    "scale": ("a list of the lowest and the highest score", list),
    "weight": ("a number above 0", (int, float)),
}
"""The keys of a task's file -> what each must be."""
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_RESERVED = {"kind", "step", "epoch", "score", "best", "seconds", "dev_norm", "sst", "quora", "para", "sts"}
_MANY_LABELS = 20


@dataclass(frozen=True)
class Definition:
    """What the file of a task says, and what its training file adds: the columns found, and the labels."""

    name: str
    kind: str
    title: str
    texts: tuple[str, ...]  # columns
    label: str
    id: str
    labels: tuple[str, ...]
    scale: tuple[float, float]
    metric: str
    weight: float
    files: Mapping[str, str]  # split -> path
    draws_dev: bool  # from the training rows
    source: str  # the TOML file

    @property
    def reading(self) -> dict[str, Any]:
        """What the rows of a data file depend on."""
        fields = asdict(self)
        for name in ("name", "title", "metric", "weight", "files", "source"):
            del fields[name]
        return fields


def is_of_split(record: Record, names: Sequence[str], split: str) -> bool:
    """Whether a record is of a split; without a column `split` all are."""
    return "split" not in names or str(record.get("split", "")).strip().lower() in SPLITS[split]


def read_definition(path: Path) -> Definition:
    """The task of a TOML file, with the columns and labels that its training file has; prints what it is.

    Raises `UserError`, naming the file, the key and what is accepted.
    """
    table = read_toml(require_file(path))
    for key, value in table.items():
        if key not in _KEYS:
            raise UserError(f"{path}: {key}: no such key{suggestion(key, _KEYS)}; the keys are {', '.join(_KEYS)}")
        expected, types = _KEYS[key]
        if not isinstance(value, types) or isinstance(value, bool):
            raise UserError(f"{path}: {key}: {short_repr(value)} is not {expected}")
    for key in ("kind", "train"):
        if key not in table:
            accepted = "the training file" if key == "train" else f"one of {', '.join(READER_KINDS)}"
            raise UserError(f"{path}: {key}: missing; it is {accepted}")
    kind = one_of(table["kind"], READER_KINDS, f"{path}: kind")
    files = {}
    for split in SPLITS:
        if split in table:
            files[split] = require_file(path.parent / table[split], f"{path}: {split}:")

    # the columns
    names, records = read_records(files["train"], READER_KINDS[kind])
    usual = find_columns(names, READER_KINDS[kind])
    keys = text_keys(1 if kind == "classification" else 2)
    columns = {}
    for key, role in [*zip(keys, KINDS[READER_KINDS[kind]].texts), ("label", "label"), ("id", "id")]:
        columns[key] = table.get(key, usual.get(role, ""))
        if columns[key] not in names and (columns[key] or key != "id"):
            column = f"no column {columns[key]!r}" if columns[key] else "not named, and no column has a usual name"
            raise UserError(f"{path}: {key}: {column}; the columns of {files['train']} are {format_list(names)}")
    for key in ("text", "text1", "text2"):
        if key in table and key not in keys:
            raise UserError(f"{path}: {key}: a {kind} has {' and '.join(keys)}")

    # the splits, by files or by a column
    rows = []
    splits = set()
    for line, record in records:
        for split in SPLITS:
            if "split" in names and is_of_split(record, names, split):
                splits.add(split)
        if is_of_split(record, names, "train"):
            rows.append(cell(files["train"], line, record, columns["label"]).strip())
    if not rows:
        of_split = " of the split 'train' in its column 'split'" if "split" in names else ""
        raise UserError(f"{files['train']}: no row{of_split}")
    for split in ("dev", "test"):
        if split in splits:
            files.setdefault(split, files["train"])
    draws_dev = "dev" not in files
    files.setdefault("dev", files["train"])

    definition = Definition(
        name=_task_name(path),
        kind=kind,
        title=table.get("title", path.stem.replace("_", " ").replace("-", " ")),
        texts=tuple(columns[key] for key in keys),
        label=columns["label"],
        id=columns["id"],
        labels=_labels(path, table, kind, rows),
        scale=_scale(path, table, kind),
        metric=_metric(path, table, kind),
        weight=float(table.get("weight", 1)),
        files={split: str(files[split]) for split in SPLITS if split in files},
        draws_dev=draws_dev,
        source=str(path),
    )
    if not 0 < definition.weight < math.inf:
        raise UserError(f"{path}: weight: {definition.weight:g} is not a number above 0")
    _say(path, definition)
    return definition


def text_keys(count: int) -> tuple[str, ...]:
    """The keys of the columns of texts, of which a row has one or two."""
    return ("text",) if count == 1 else ("text1", "text2")


def _task_name(path: Path) -> str:
    """The name of the file, which must be able to name a head, a row of metrics and a file."""
    if not can_name_task(path.stem):
        raise UserError(f"{path}: {path.stem!r} names another task, or has spaces or signs; rename the file")
    return path.stem


def can_name_task(name: str) -> bool:
    """Whether a task of a file may have a name: letters, digits, - and _, and none that this program uses."""
    return bool(_NAME.fullmatch(name)) and name not in _RESERVED and not hasattr(nn.ModuleDict, name)


def _labels(path: Path, table: Mapping[str, Any], kind: str, labels_of_rows: Sequence[str]) -> tuple[str, ...]:
    """The classes: those of the file, else all of the training rows, sorted; none of a similarity."""
    if kind == "similarity":
        if "labels" in table:
            raise UserError(f"{path}: labels: a similarity has a scale, such as scale = [0, 5]")
        return ()
    if "labels" in table:
        labels = [str(label) for label in table["labels"]]
        if len(labels) < 2 or len(set(labels)) < len(labels):
            raise UserError(f"{path}: labels: {short_repr(labels)} is not a list of two or more different texts")
        return tuple(labels)
    distinct = set(labels_of_rows) - {""}
    if len(distinct) < 2:
        raise UserError(f"{path}: label: the training rows have {format_list(distinct) or 'no label'}, not two or more")
    if len(distinct) > max(_MANY_LABELS, len(labels_of_rows) // 2):
        raise UserError(
            f"{path}: label: {len(distinct):,} different labels in {len(labels_of_rows):,} training rows: name another "
            'column, or kind = "similarity"'
        )
    if all(map(is_number, distinct)):
        # texts of equal numbers, such as 1 and 1.0, are different labels
        return tuple(sorted(distinct, key=lambda label: (float(label), label)))
    return tuple(sorted(distinct))


def _scale(path: Path, table: Mapping[str, Any], kind: str) -> tuple[float, float]:
    if kind != "similarity":
        if "scale" in table:
            raise UserError(f"{path}: scale: only a similarity has one; a {kind} has labels")
        return (0.0, 5.0)
    if "scale" not in table:
        raise UserError(f"{path}: scale: missing; it is the lowest and the highest score, such as scale = [0, 5]")
    scale = table["scale"]
    if len(scale) != 2 or not all(isinstance(end, int | float) for end in scale) or not scale[0] < scale[1] < math.inf:
        raise UserError(f"{path}: scale: {short_repr(scale)} is not a list of the lowest and the highest score")
    return float(scale[0]), float(scale[1])


def _metric(path: Path, table: Mapping[str, Any], kind: str) -> str:
    accepted = ["pearson", "spearman"] if kind == "similarity" else ["accuracy", "macro-f1"]
    return _METRICS[one_of(table.get("metric", accepted[0]), accepted, f"{path}: metric")]


def _say(path: Path, definition: Definition) -> None:
    """Print what a task is, so that a wrong column or label is seen before training."""
    texts = " and ".join(definition.texts)
    accepted = ", ".join(definition.labels[:_MANY_LABELS])
    if len(definition.labels) > _MANY_LABELS:
        accepted += f" and {len(definition.labels) - _MANY_LABELS:,} more"
    if not definition.labels:
        accepted = f"from {definition.scale[0]:g} to {definition.scale[1]:g}"
    if has_semicolons(Path(definition.files["train"])):
        texts += " (columns separated by semicolons)"
    drawn = "; dev: 10% of the training rows" if definition.draws_dev else ""
    distributed.say(f"{path}: {definition.kind} of {texts} by {definition.label}: {accepted}{drawn}")
