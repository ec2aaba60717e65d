"""Natural language inference: premise and hypothesis with a label, and triplets of anchor, positive, hard negative."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from minbert.errors import UserError
from minbert.token_cache import Row, Skipped
from tasks.readers.records import Record, head, json_records, opened, quotes_of, records
from tasks.readers.rows import Label, rows

NAMES = ("entailment", "neutral", "contradiction")
_NUMBERS = {str(number): float(number) for number in range(3)}
NLI = Label(
    lambda value: False,
    "is not one of entailment, neutral, contradiction",
    words={name: float(number) for number, name in enumerate(NAMES)} | _NUMBERS,
    gaps=dict.fromkeys(("-", "-1", "hidden"), "no gold label"),
)
# Names of the three columns, the first that is there: the originals, their samples, the hub's copies.
COLUMNS = {
    "sentence1": ("sentence1", "premise"),
    "sentence2": ("sentence2", "hypothesis"),
    "label": ("gold_label", "label"),
}
TRIPLET = {
    "anchor": ("sent0", "anchor", "query"),
    "positive": ("sent1", "positive", "pos", "entailment"),
    "negative": ("hard_neg", "negative", "neg", "contradiction"),
}

_PAIR_FORMS = (
    "SNLI's and MultiNLI's .jsonl and .txt, tables and JSON lines with premise, hypothesis and label, and SentEval's "
    "s1.X, s2.X, labels.X side by side"
)
_TRIPLET_FORMS = (
    "tables and JSON lines with sent0, sent1, hard_neg or anchor, positive, negative, of which the third may be wanting"
)


def pairs(path: Path, split: str = "train") -> Iterator[Row | Skipped]:
    """(premise, hypothesis) with label 0 entailment, 1 neutral, 2 contradiction; the id is the line number.

    Reads SNLI's and MultiNLI's originals, `.jsonl` and `.txt` (a quote is a character there), GLUE's copies, any
    table with premise, hypothesis and label in its header, and SentEval's `s1.X`, `s2.X`, `labels.X`, of
    which any one is named. Rows without a gold label (`-`) or with an empty sentence are skipped.
    """
    if together := aligned(path):
        return rows(path, _aligned(together), ("sentence1", "sentence2"), NLI)
    keys, delimiter = head(path)
    chosen = _chosen(path, COLUMNS, keys, _PAIR_FORMS)
    found: Iterator[Record]
    if delimiter == "json":
        found = json_records(path, chosen, absent={chosen[2]: "-"})
    else:
        # GLUE's copy of SNLI has five annotators' labels, one in its header, and the gold label behind them.
        last = chosen[2] if keys[-1] == chosen[2] else ""
        quotes = "csv" if delimiter == "," else "none"
        found = records(path, chosen, delimiter=delimiter, quotes=quotes, wider=bool(last), final=last)
    return rows(path, found, chosen[:2], NLI, column=chosen[2])


def triplets(path: Path, split: str = "train") -> Iterator[Row | Skipped]:
    """(anchor, positive, hard negative), or (anchor, positive) where the file has no third column.

    Reads SimCSE's comma-separated `sent0,sent1,hard_neg`, and comma- or tab-separated files and JSON lines with
    `anchor`, `positive` and perhaps `negative`. All rows of a file have as many texts as its header says; a row with
    an empty one is skipped.
    """
    keys, delimiter = head(path)
    chosen = _chosen(path, {name: TRIPLET[name] for name in TRIPLET if name in _present(keys)}, keys, _TRIPLET_FORMS)
    if delimiter == "json":
        return rows(path, json_records(path, chosen), chosen)
    return rows(path, records(path, chosen, delimiter=delimiter, quotes=quotes_of(delimiter)), chosen)


def triplet_columns(path: Path) -> int:
    """How many texts a row of a file of triplets has: 3, or 2 without hard negatives."""
    return len(_present(head(path)[0]))


def _chosen(path: Path, wanted: Mapping[str, tuple[str, ...]], keys: Sequence[str], accepted: str) -> tuple[str, ...]:
    """The file's name for each wanted column; `UserError` for one that it has under none of its names."""
    chosen = {name: next((alias for alias in aliases if alias in keys), "") for name, aliases in wanted.items()}
    for name, found in chosen.items():
        if not found:
            named = " or ".join(map(repr, wanted[name]))
            there = ", ".join(map(repr, keys))
            raise UserError(f"{path}:1: no column {named}; the file has {there}; accepted are {accepted}")
    return tuple(chosen.values())


def _present(keys: Sequence[str]) -> list[str]:
    """Anchor and positive, which must be there, and the negative if it is."""
    return [name for name, aliases in TRIPLET.items() if name != "negative" or any(one in keys for one in aliases)]


def aligned(path: Path) -> list[Path]:
    """SentEval's three files, if `path` is one of them and has another beside it."""
    part, _, ending = path.name.partition(".")
    parts = ("s1", "s2", "labels")
    if part not in parts or not any(path.with_name(f"{other}.{ending}").is_file() for other in parts if other != part):
        return []
    return [path.with_name(f"{one}.{ending}") for one in parts]


def _aligned(paths: list[Path]) -> Iterator[Record]:
    """Records of three files of equal length."""
    with opened(paths[0]) as first, opened(paths[1]) as second, opened(paths[2]) as labels:
        files = (first, second, labels)
        line = 0
        while True:
            found = [next(file, None) for file in files]
            line += 1
            if all(cell is None for cell in found):
                return
            for cell, one in zip(found, paths, strict=True):
                if cell is None:
                    raise UserError(f"{one}: ends before line {line}, which its neighbours have")
            yield line, tuple(str(cell) for cell in found)
