"""`--new-task`: a first version of a task's TOML file, guessed from a data file; the user checks it before training."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from minbert.errors import UserError, format_count, format_list
from minbert.files import require_file, write_atomic
from tasks.definitions import READER_KINDS, can_be_classes, can_name_task, text_keys
from tasks.readers.formats import cell, read_records
from tasks.readers.kinds import KINDS, find_columns, is_number
from tasks.readers.rows import SPLIT_NAMES, SPLITS, is_of_split

_SCALES = ((0, 1), (1, 5), (0, 5), (0, 10), (0, 100))
_SCORES = 10  # more different numbers than this are scores, not classes
_WORDS = 2  # cells of texts have more words than this, in the mean
_CHARACTERS = 20  # or are longer than this, in languages without spaces
_TRAIN = re.compile(r"(?<![a-z])train(ing)?(?=set|data|[^a-z]|$)", re.IGNORECASE)
_COMMA_SCORE = re.compile(r"-?\d+,\d+")  # as spreadsheets write it in many languages
_FEW_ROWS = 2000  # fewer rows than this need the higher learning rate of the preset for small files


def write_task(source: Path) -> Path:
    """Write `NAME.toml` for a data file into the current folder, and return its path.

    NAME is that of the file without the word train; then files of the same name with dev or test are taken, too. Raises
    `UserError` if the TOML file exists, or if the columns do not show which are texts and which is the label.
    """
    require_file(source, "--new-task")
    columns = _read_columns(source)
    name, files = _related_files(source)
    path = Path(f"{name}.toml")
    if path.exists():
        raise UserError(f"--new-task {source}: {path} exists already; move it, or train with --tasks {path}")

    texts, label = _texts_and_label(source, columns)
    labels = sorted(set(columns[label]) - {""})
    kind = _kind_of(labels, len(texts))
    num_rows = len(columns[label])
    _check_labels(source, label, labels, num_rows, kind)

    few = num_rows < _FEW_ROWS
    lines = [
        f"# A task, written from the columns of {source}: look at it, then train:",
        f"# python multitask_train.py --tasks {path} {'--preset sample' if few else '--weights minilm'}",
        f"kind = {_quoted(kind)}  # one of {', '.join(READER_KINDS)}",
    ]
    for split in SPLITS:
        if split in files:
            lines.append(f"{split} = {_quoted(str(files[split]))}")
        elif split == "dev" and "split" not in columns:
            lines.append("# without dev, every tenth training row is a dev row")
    lines += [f"{key} = {_quoted(column)}" for key, column in zip(text_keys(kind), texts, strict=True)]
    lines.append(f"label = {_quoted(label)}")
    if kind == "similarity":
        lines.append(f"scale = {list(_scale([float(text) for text in labels]))}")
        lines.append('metric = "pearson"  # or spearman')
    else:
        ordered = sorted(labels, key=float) if all(map(is_number, labels)) else labels
        lines.append(f"labels = [{', '.join(map(_quoted, ordered))}]")
        lines.append('metric = "accuracy"  # or macro-f1')
    ids = columns.get("id", [])
    if "" in ids or len(set(ids)) < len(ids):
        lines.append('id = ""  # the line, as the column id has gaps or is not unique')
    others = [name for name in columns if name and name not in {*texts, label, "split", "id"}]
    if others:
        lines.append(f"# not read: {format_list(others)}")
    write_atomic(path, "\n".join(lines) + "\n")
    return path


def _read_columns(source: Path) -> dict[str, list[str]]:
    """The cells of each column, without those of test rows, whose labels may be placeholders."""
    # a file without a header may have the layout of a published set of pairs
    for reader_kind in ("pair-class", "single"):
        names, records = read_records(source, reader_kind)
        if find_columns(names, reader_kind):
            break
    if not names:
        raise UserError(f"--new-task {source}: is plain text; it needs a table with a header")
    columns: dict[str, list[str]] = {name: [] for name in names}
    for line, record in records:
        if "split" in names and is_of_split(record, names, "test"):
            continue
        for name, cells in columns.items():
            # a JSON object may lack a key, and a list or a date is neither text nor label
            is_cell = isinstance(record.get(name), str | int | float)
            cells.append(cell(source, line, record, name).strip() if is_cell else "")
    return columns


def _texts_and_label(source: Path, columns: dict[str, list[str]]) -> tuple[list[str], str]:
    """The columns of the texts, one or two, and that of the labels."""
    texts = _text_columns(columns)
    label = _label_column(columns, texts)
    if not label and len(texts) == 2:
        # long names of classes look like texts, but are repeated
        fewest = min(texts, key=lambda name: len(set(columns[name])))
        if 2 * len(set(columns[fewest])) <= len(columns[fewest]):
            label = fewest
            texts.remove(fewest)
    if not texts or not label:
        missing = "texts" if not texts else "labels"
        raise UserError(f"--new-task {source}: no column looks like {missing}: it has {format_list(list(columns))}")
    return texts, label


def _kind_of(labels: Sequence[str], num_texts: int) -> str:
    """The kind of the task: its labels are classes, or scores of two texts."""
    if num_texts == 1:
        return "classification"
    if not all(map(is_number, labels)):
        return "pair-classification"
    are_scores = len(labels) > _SCORES or any(not float(text).is_integer() for text in labels)
    return "similarity" if are_scores else "pair-classification"


def _check_labels(source: Path, label: str, labels: Sequence[str], num_rows: int, kind: str) -> None:
    """Raises `UserError` if the labels are neither classes nor scores, or include the name of their column."""
    if label in labels:
        raise UserError(f"--new-task {source}: the first line has the label {label!r}, so it is no header; add one")
    if kind != "similarity" and not can_be_classes(labels, num_rows):
        counts = f"{len(labels):,} different values in {format_count(num_rows, 'rows')}"
        raise UserError(
            f"--new-task {source}: column {label!r} has {counts}, so they are no classes; scores are numbers, with a "
            "point before decimals, and belong to two texts"
        )
    if all(map(_COMMA_SCORE.fullmatch, labels)):
        raise UserError(f"--new-task {source}: column {label!r} has {labels[0]!r}; scores have a point before decimals")


def _related_files(source: Path) -> tuple[str, dict[str, Path]]:
    """The name of the task, and the files of its splits."""
    files = {"train": source}
    stem = Path(source.name.removesuffix(".gz")).stem
    ending = source.name.removeprefix(stem)
    name = stem
    match = _TRAIN.search(stem)
    if match:
        before = stem[: match.start()]
        after = stem[match.end() :]
        for split, words in SPLIT_NAMES.items():
            for word in words:
                path = source.with_name(before + word + after + ending)
                if path.is_file():
                    files.setdefault(split, path)
        name = (before + after).strip("-_ ")
        if name.lower() in ("", "set", "data"):
            name = source.absolute().parent.name
    name = re.sub(r"[^\w-]+", "-", name).strip("-_")
    return name if can_name_task(name) else f"my-{name}", files


def _text_columns(columns: dict[str, list[str]]) -> list[str]:
    """One or two columns of texts: with usual names, else those with the longest cells, of several words each."""
    usual = find_columns(list(columns), "pair")
    if len(usual.keys() - {"id"}) == 2:
        return [usual["sentence1"], usual["sentence2"]]
    usual = find_columns(list(columns), "single")
    if "sentence" in usual:
        return [usual["sentence"]]
    candidates = []
    for name, cells in columns.items():
        rows = max(len(cells), 1)
        words = sum(len(text.split()) for text in cells) / rows
        characters = sum(map(len, cells)) / rows
        if words > _WORDS or characters > _CHARACTERS:
            candidates.append((characters, name))
    chosen = {name for _, name in sorted(candidates)[-2:]}
    # in the order of the file
    return [name for name in columns if name in chosen]


def _label_column(columns: dict[str, list[str]], texts: Sequence[str]) -> str:
    """The column of labels: with a usual name, else the last of those with the fewest different cells, at least two."""
    others = {}
    for name, cells in columns.items():
        different = len(set(cells) - {""})
        if name not in texts and name != "split" and different > 1:
            others[name] = different
    for kind in KINDS:
        usual = find_columns(list(others), kind)
        if "label" in usual:
            return usual["label"]
    # row numbers can be as different as scores, and usually stand first
    return min(reversed(others), key=lambda name: others[name], default="")


def _scale(scores: Sequence[float]) -> tuple[float, float]:
    """The smallest usual scale that holds all scores, else their own ends."""
    for low, high in _SCALES:
        if low <= min(scores) and max(scores) <= high:
            return low, high
    return min(scores), max(scores)


def _quoted(text: str) -> str:
    """A text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False)
