"""Rows, skipped rows and overlaps of data files: `python data/get_data.py check`.

Files are known by the names that runs look for, in the folder of their set (`course`, `nli`, `senteval/downstream`,
`zh`) or in the data folder itself.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from minbert.errors import UserError
from tasks.readers import DataFile, chinese, open_as, senteval
from tasks.readers.overlap import ScoredRows, Texts
from tasks.tables import Table

_TABLES = (
    ("SST", "course", "ids-sst-*.csv", "single", 5),
    ("CFIMDB", "course", "ids-cfimdb-*.csv", "single", 2),
    ("Quora", "course", "quora-*.csv", "pair-class", 2),
    ("course STS", "course", "sts-*.csv", "pair-score", None),
    ("SimCSE triplets", "nli", "nli_for_simcse.csv", "triplet", None),
    ("NLI triplets", "nli", "nli-triplets.csv", "triplet", None),
    ("NLI pairs", "nli", "nli-pairs.tsv", "nli", None),
    ("SNLI", "nli", "snli_1.0/snli_1.0_*.jsonl", "nli", None),
    ("MultiNLI", "nli", "multinli_1.0/multinli_1.0_*.jsonl", "nli", None),
)
"""Set, folder, pattern of the files' names, and kind of rows and number of classes as for `open_as`."""
_SPLIT = re.compile(r"(?<![a-z])(train|dev|test)(?![a-z])")
_FIRST = 5  # lines listed for each reason
_SAME, _SHARING = 0.01, 0.1  # shares of the scored rows; smaller overlaps of different sets are not shown
# A split may be used for training or model selection before the splits of a higher rank are scored.
_RANKS = {"train": 0, "all": 1, "dev": 2, "test": 3}
_NOTES = (
    "same: rows that are in the training split too, whatever their case, width, spaces and punctuation, and",
    "      pairs in either order; sharing: rows with a text of the training split. A dev split counts as",
    "      training data for what it chose.",
)


@dataclass(frozen=True)
class CheckedFile:
    """A file of a set: the texts of its kept rows, and (line, reason) of skipped rows and of kept ones with a gap.

    `name` is its path for display; `broken` is the error of a file that cannot be read.
    """

    set: str
    split: str
    name: str
    rows: Sequence[Texts] = ()
    skipped: Sequence[tuple[int, str]] = ()
    noted: Sequence[tuple[int, str]] = ()
    broken: str = ""


def check(data: Path) -> None:
    """Read every known file of a folder, and print what they hold and how splits overlap.

    Raises `UserError` if no file is known and, after printing, if any file is broken.
    """
    files = read_files(data)
    if not files:
        raise UserError(
            f"--data: {data} holds no data file of a known name; "
            f"python data/get_data.py course --data {data} brings the course's files"
        )
    sound = [one for one in files if not one.broken]
    broken = [one.broken for one in files if one.broken]
    rows = [
        {
            "": one.name,
            "read": f"{len(one.rows) + len(one.skipped):,}",
            "kept": f"{len(one.rows):,}",
            "skipped": f"{len(one.skipped):,}",
        }
        for one in sound
    ]
    print(Table(f"Files of {data}", pd.DataFrame(rows)).terminal())
    print(f"\n{_overlap_table(overlaps(sound)).terminal()}")
    for title, kind in (("Skipped rows", "skipped"), ("Kept rows with a gap", "noted")):
        if lines := [line for one in sound for line in _reasons(one.name, getattr(one, kind))]:
            print("\n".join(["", title, *lines]))
    if broken:
        print("\n".join(["", "Broken files, left out above", *(f"  {problem}" for problem in broken)]))
        raise UserError(f"{data}: {len(broken)} of {len(files)} files are broken, the first: {broken[0]}")


def read_files(data: Path) -> list[CheckedFile]:
    """All known files under a folder, in a fixed order."""
    known = [*_tables(data), *_senteval(data), *_chinese(data)]
    return [_read(*file) for file in tqdm(known, "reading", leave=False, disable=None)]


def _read(name: str, split: str, path: str, open_file: Callable[[], DataFile]) -> CheckedFile:
    try:
        data = open_file()
    except UserError as error:
        return CheckedFile(name, split, path, broken=str(error))
    skipped = [(issue.line, issue.reason) for issue in data.skipped]
    notes = [(row.line, row.note) for row in data.rows if row.note]
    return CheckedFile(name, split, path, [row.texts for row in data.rows], skipped, notes)


_Known = tuple[str, str, str, Callable[[], DataFile]]
"""Set, split, path for display, and the function that opens a file."""


def _known(data: Path, name: str, split: str, path: Path, kind: str, classes: int | None = None) -> _Known:
    return name, split, path.relative_to(data).as_posix(), lambda: open_as(path, kind, split, classes=classes)


def _tables(data: Path) -> Iterator[_Known]:
    for name, folder, pattern, kind, classes in _TABLES:
        for path in sorted((data / folder).glob(pattern)) or sorted(data.glob(pattern)):
            split = _SPLIT.findall(f"train {path.name}")[-1]  # the one named last in its name
            yield _known(data, name, split, path, kind, classes)


def _senteval(data: Path) -> Iterator[_Known]:
    base = senteval.find_root(data)
    if base is None:
        return
    for name in senteval.SCORED:
        for split in ["test"] if name in senteval.STS else senteval.SICK:
            for path in senteval.scored_files(base, name, split).values():
                if path.is_file():
                    yield _known(data, name, split, path, "pair-score")
    for name, (kind, parts) in senteval.CLASSIFICATION.items():
        for split, files in parts.items():
            path = base / files[0]
            if not path.is_file() or kind == "nli":  # SICK-E has the rows of SICK
                continue
            if kind == "polarity":
                shown = " + ".join([path.relative_to(data).as_posix(), *(Path(other).suffix for other in files[1:])])
                yield name, split, shown, partial(senteval.polarity, *(base / file for file in files))
            else:
                yield _known(data, name, split, path, kind)


def _chinese(data: Path) -> Iterator[_Known]:
    for (name, split), path in chinese.files(data).items():
        yield _known(data, f"zh {name}", split, path, "pair-score" if name == "STS-B" else "pair-class")


def overlaps(files: Sequence[CheckedFile]) -> pd.DataFrame:
    """The overlap of every two splits of a set, and of the train split of a set with the scored splits of another.

    A row for each: `training` and `scored` split, whether they are of the `same_set`, and the fields of `Overlap`.
    """
    splits: dict[tuple[str, str], list[Texts]] = {}
    for one in files:
        splits.setdefault((one.set, one.split), []).extend(one.rows)
    scored = ScoredRows({" ".join(key): rows for key, rows in splits.items() if key[1] != "train"})
    results = []
    for (name, split), rows in tqdm(splits.items(), "comparing", leave=False, disable=None):
        texts = scored.numbers_in_all(rows)
        for other, other_split in splits:
            if _RANKS[split] < _RANKS[other_split] and (name == other or split == "train"):
                target = f"{other} {other_split}"
                results.append((f"{name} {split}", target, name == other, *scored.overlap(target, texts)))
    return pd.DataFrame(results, columns=["training", "scored", "same_set", "rows", "same", "sharing"])


def _overlap_table(pairs: pd.DataFrame) -> Table:
    large = (pairs["same"] >= _SAME * pairs["rows"]) | (pairs["sharing"] >= _SHARING * pairs["rows"])
    shown = pairs[(pairs["sharing"] > 0) & (pairs["same_set"] | large)]
    counts = {
        name: [f"{count:,} ({count / rows:.1%})" for count, rows in zip(shown[name], shown["rows"], strict=True)]
        for name in ("same", "sharing")
    }
    names = {"training split": shown["training"], "scored split": shown["scored"]}
    cells = pd.DataFrame({**names, "rows": shown["rows"].map("{:,}".format), **counts})
    hidden = f"{len(pairs) - len(shown)} comparisons with less overlap or none are not shown."
    title = "Overlaps of scored splits with training splits"
    return Table(title, cells, (hidden, *_NOTES), left=2)


def _reasons(name: str, rows: Sequence[tuple[int, str]]) -> list[str]:
    """For each reason its number of rows and its first lines, below the name of the file."""
    reasons: dict[str, list[int]] = {}
    for line, reason in rows:
        reasons.setdefault(reason, []).append(line)
    lines = []
    for reason, numbers in reasons.items():
        first = ", ".join(map(str, numbers[:_FIRST])) + (", ..." if len(numbers) > _FIRST else "")
        lines.append(f"    {len(numbers):,}: {reason} (line {first})")
    return [f"  {name}", *lines] if lines else []
