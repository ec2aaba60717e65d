"""A task of your own: a TOML file that names a kind of task, the data files and their columns.

kind = "classification"                     # or "pair-classification", "similarity"
train = "reviews.csv"                       # paths are relative to the TOML file
dev = "reviews-dev.csv"                     # without it, 10% of the training rows
test = "reviews-test.csv"                   # without it, none is predicted
text = "comment"                            # of pairs: text1, text2; without them, the usual names are found
label = "mood"
id = "number"                               # "" takes the line, as if there is no column id
labels = ["angry", "neutral", "happy"]      # without it, those of the training file, sorted
scale = [0, 1]                              # of a similarity: its lowest and its highest score
metric = "macro-f1"                         # accuracy, macro-f1; of a similarity pearson, spearman
weight = 0.5                                # of the task's loss beside those of other tasks
title = "customer reviews"                  # in tables and on the page

The name of the file is the task's name.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from minbert.errors import UserError, format_list, one_of, short_repr, suggestion
from minbert.files import expand_user, read_toml, require_file
from minbert.train import distributed
from minbert.train.progress import NOT_METRICS
from tasks.readers.formats import cell, has_semicolons, read_records
from tasks.readers.kinds import KINDS, find_columns, is_number
from tasks.readers.rows import SPLITS, is_of_split

READER_KINDS = {"classification": "single", "pair-classification": "pair-class", "similarity": "pair-score"}
"""The kinds of tasks -> the kind of rows, whose usual names of columns are found."""
_METRICS = {"accuracy": "accuracy", "macro-f1": "macro-F1", "pearson": "Pearson's r", "spearman": "Spearman's rho"}
_COMMON_KEYS = ("kind", "train", "dev", "test", "label", "id", "metric", "weight", "title")
_KEYS = {
    "classification": (*_COMMON_KEYS, "text", "labels"),
    "pair-classification": (*_COMMON_KEYS, "text1", "text2", "labels"),
    "similarity": (*_COMMON_KEYS, "text1", "text2", "scale"),
}
"""The keys that the file of a task may have, by its kind."""
_NAME = re.compile(r"[\w-]+")
# the columns of metrics.jsonl, and the course's tasks with the names of their flags
_RESERVED = {*NOT_METRICS, "dev_norm", "sst", "quora", "para", "sts"}
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


def read_definition(path: Path) -> Definition:
    """The task of a TOML file, with the columns and labels that its training file has; prints what it is.

    Raises `UserError`, naming the file, the key and what is accepted.
    """
    table = _read_keys(path)
    kind = table["kind"]
    files = {}
    for split in SPLITS:
        if split in table:
            files[split] = require_file(path.parent / expand_user(table[split]), f"{path}: {split}:")
    train = files["train"]
    names, records = read_records(train, READER_KINDS[kind])
    columns = _find_columns(path, table, names)
    for name in names:
        if name != "split" and name.strip().lower() == "split":
            distributed.note(f"{train}: column {name!r} is not read: rows of dev and test are named by a column split")

    # a column `split` may name dev and test rows in the training file
    labels = []
    splits: dict[str, None] = {}  # a set in order of appearance
    for line, record in records:
        splits[str(record.get("split", ""))] = None
        if is_of_split(record, names, "train"):
            labels.append(cell(train, line, record, columns["label"]).strip())
        elif is_of_split(record, names, "dev"):
            files.setdefault("dev", train)
        elif is_of_split(record, names, "test"):
            files.setdefault("test", train)
    if not labels:
        found = f": the column 'split' has {format_list(splits)}, not train" if "split" in names else ""
        raise UserError(f"{train}: no row to train on{found}")
    draws_dev = "dev" not in files
    files.setdefault("dev", train)

    definition = Definition(
        name=path.stem,
        kind=kind,
        title=table.get("title", path.stem.replace("_", " ").replace("-", " ")),
        texts=tuple(columns[key] for key in text_keys(kind)),
        label=columns["label"],
        id=columns["id"],
        labels=() if kind == "similarity" else _labels(path, table, labels),
        scale=_scale(path, table) if kind == "similarity" else (0.0, 5.0),
        metric=_metric(path, table, kind),
        weight=_weight(path, table),
        files={split: str(files[split]) for split in SPLITS if split in files},
        draws_dev=draws_dev,
        source=str(path),
    )
    _say(path, definition)
    return definition


def recorded_definition(entry: Mapping[str, Any]) -> Definition:
    """A definition from its fields in JSON, where tuples are lists."""
    values = dict(entry)
    for key in ("texts", "labels", "scale"):
        values[key] = tuple(values[key])
    return Definition(**values)


def _read_keys(path: Path) -> dict[str, Any]:
    """The keys of a task's file, each of which its kind has. The file's name is the task's."""
    table = read_toml(path)
    if not can_name_task(path.stem):
        raise UserError(f"{path}: {path.stem!r} names another task, or has spaces or signs; choose another name")
    for key, accepted in (("kind", f"one of {', '.join(READER_KINDS)}"), ("train", "the training file")):
        if key not in table:
            raise UserError(f"{path}: {key}: missing; it is {accepted}")
    table["kind"] = one_of(str(table["kind"]), READER_KINDS, f"{path}: kind")
    keys = _KEYS[table["kind"]]
    for key, value in table.items():
        if key not in keys:
            similar = suggestion(key, keys)
            raise UserError(f"{path}: {key}: a {table['kind']} has no such key{similar}; it has {', '.join(keys)}")
        if key not in ("labels", "scale", "weight") and not isinstance(value, str):
            raise UserError(f"{path}: {key}: {short_repr(value)} is not a text")
    return table


def _find_columns(path: Path, table: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Key of a text, `label` or `id` -> the column, which the file names or which has a usual name; no id is needed."""
    rows = READER_KINDS[table["kind"]]
    usual = find_columns(names, rows)
    roles = dict(zip(text_keys(table["kind"]), KINDS[rows].texts, strict=True))
    roles |= {"label": "label", "id": "id"}
    columns = {}
    for key, role in roles.items():
        column = table.get(key, usual.get(role, ""))
        is_missing = not column or column not in names  # pandas writes its index as a column without a name
        if is_missing and (column or key != "id"):
            problem = f"no column {column!r}" if column else "not named, and no column has a usual name"
            train = path.parent / expand_user(table["train"])
            raise UserError(f"{path}: {key}: {problem}; the columns of {train} are {format_list(names)}")
        columns[key] = column
    return columns


def text_keys(kind: str) -> tuple[str, ...]:
    """The keys of the columns of texts."""
    return ("text",) if kind == "classification" else ("text1", "text2")


def can_be_classes(labels: Collection[str], rows: int) -> bool:
    """Whether so many different labels of some rows can be classes, and are no scores, ids or texts."""
    return len(labels) <= max(_MANY_LABELS, rows // 2)


def can_name_task(name: str) -> bool:
    """Whether a task of a file may have a name: letters, digits, - and _, and none that this program uses.

    It names a head, which is a module of torch, the task's rows of metrics, and its prediction files.
    """
    return bool(_NAME.fullmatch(name)) and name not in _RESERVED and not hasattr(nn.ModuleDict(), name)


def _labels(path: Path, table: Mapping[str, Any], labels_of_rows: Sequence[str]) -> tuple[str, ...]:
    """The classes: those of the file, else all of the training rows, sorted."""
    if "labels" in table:
        labels = table["labels"]
        names = []
        if isinstance(labels, list):
            # as the cells of a column: true, 1 for 1.0
            names = [cell(path, 1, {"labels": label}, "labels") for label in labels]
        if len(names) < 2 or len(set(names)) < len(names):
            raise UserError(f"{path}: labels: {short_repr(labels)} is not a list of two or more different texts")
        return tuple(names)
    distinct = set(labels_of_rows) - {""}
    if len(distinct) < 2:
        raise UserError(f"{path}: label: the training rows have {format_list(distinct) or 'no label'}, not two or more")
    if not can_be_classes(distinct, len(labels_of_rows)):
        raise UserError(
            f"{path}: label: {len(distinct):,} different labels in {len(labels_of_rows):,} training rows: name another "
            'column, or kind = "similarity"'
        )
    if all(map(is_number, distinct)):
        # texts of equal numbers, such as 1 and 1.0, are different labels
        return tuple(sorted(distinct, key=lambda label: (float(label), label)))
    return tuple(sorted(distinct))


def _scale(path: Path, table: Mapping[str, Any]) -> tuple[float, float]:
    """The lowest and the highest score of a similarity, which its rows may not show."""
    match table.get("scale"):
        case [int() | float() as low, int() | float() as high] if -math.inf < low < high < math.inf:
            return float(low), float(high)
    raise UserError(f"{path}: scale: it is a list of the lowest and the highest score, such as scale = [0, 5]")


def _weight(path: Path, table: Mapping[str, Any]) -> float:
    weight = table.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise UserError(f"{path}: weight: {short_repr(weight)} is not a number above 0")
    return float(weight)


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
