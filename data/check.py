"""Rows, skipped rows and overlaps of data files: `python data/get_data.py check`.

Files are known by the names that runs look for, in the folder of their set (`course`, `nli`, `senteval/downstream`,
`zh`) or in the data folder itself.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from minbert.errors import UserError
from tasks.readers import DataFile, chinese, open_as, senteval
from tasks.readers.overlap import ScoredRows, Texts
from tasks.tables import Table

# Set, folder, pattern of the files' names, and kind of rows and number of classes as for `open_as`.
TABLES = (
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
SPLIT = re.compile(r"(?<![a-z])(train|dev|test)(?![a-z])")
LINES_SHOWN = 5  # for each reason
# Smaller overlaps of different sets, as shares of the scored rows, are not shown.
SMALLEST_SAME = 0.01
SMALLEST_SHARING = 0.1
# A split may be used for training or model selection before the splits of a higher rank are scored.
RANKS = {"train": 0, "all": 1, "dev": 2, "test": 3}
NOTES = (
    "same: rows that are in the training split too, whatever their case, width, spaces and punctuation, and",
    "      pairs in either order; sharing: rows with a text of the training split. A dev split counts as",
    "      training data for what it chose.",
)


@dataclass(frozen=True)
class CheckedFile:
    """A file of a set: the texts of its kept rows, and (line, reason) of skipped rows and of kept ones with a gap."""

    set: str
    split: str
    name: str
    rows: Sequence[Texts]
    skipped: Sequence[tuple[int, str]]
    warnings: Sequence[tuple[int, str]]


def check(data: Path) -> None:
    """Read every known file of a folder, and print what they hold and how splits overlap.

    Raises `UserError` if no file is known, and for a row that cannot be read.
    """
    files = list(tqdm(read_files(data), "reading", leave=False, disable=None))
    if not files:
        raise UserError(
            f"--data: {data} holds no data file of a known name; "
            f"python data/get_data.py course --data {data} brings the course's files"
        )
    rows = []
    for file in files:
        kept = len(file.rows)
        skipped = len(file.skipped)
        rows.append({"": file.name, "read": f"{kept + skipped:,}", "kept": f"{kept:,}", "skipped": f"{skipped:,}"})
    print(Table(f"Files of {data}", pd.DataFrame(rows)).terminal())
    print(f"\n{overlap_table(overlaps(files)).terminal()}")
    print_reasons("Skipped rows", [(file.name, file.skipped) for file in files])
    print_reasons("Kept rows with a gap", [(file.name, file.warnings) for file in files])


def read_files(data: Path) -> Iterator[CheckedFile]:
    """All known files under a folder, in a fixed order. Raises `UserError` for a row that cannot be read."""
    for name, folder, pattern, kind, classes in TABLES:
        paths = sorted((data / folder).glob(pattern)) or sorted(data.glob(pattern))
        for path in paths:
            splits = SPLIT.findall(path.name)
            # a name may hold several, of which the last counts; a file without one is for training
            split = splits[-1] if splits else "train"
            yield checked(name, split, relative(path, data), open_as(path, kind, split, classes=classes))
    base = senteval.find_root(data)
    if base is not None:
        yield from read_senteval(data, base)
    for (name, split), path in chinese.files(data).items():
        kind = "pair-score" if name == "STS-B" else "pair-class"
        yield checked(f"zh {name}", split, relative(path, data), open_as(path, kind, split))


def read_senteval(data: Path, base: Path) -> Iterator[CheckedFile]:
    """The files of SentEval's sets below `base`."""
    for name in senteval.SCORED:
        splits = ("test",) if name in senteval.STS else tuple(senteval.SICK)
        for split in splits:
            for path in senteval.scored_files(base, name, split).values():
                if path.is_file():
                    yield checked(name, split, relative(path, data), open_as(path, "pair-score", split))
    for name, (kind, files_of_split) in senteval.CLASSIFICATION.items():
        for split, files in files_of_split.items():
            paths = [base / file for file in files]
            if not all(path.is_file() for path in paths):
                continue
            if kind == "polarity":
                both = f"{relative(paths[0], data)} + {paths[1].suffix}"
                yield checked(name, split, both, senteval.polarity(*paths))
            else:
                yield checked(name, split, relative(paths[0], data), open_as(paths[0], kind, split))


def relative(path: Path, data: Path) -> str:
    """The path below the data folder, for display."""
    return path.relative_to(data).as_posix()


def checked(set: str, split: str, name: str, file: DataFile) -> CheckedFile:
    """What the check needs of a file that was read."""
    texts = [row.texts for row in file.rows]
    skipped = [(issue.line, issue.reason) for issue in file.skipped]
    warnings = [(row.line, row.note) for row in file.rows if row.note]
    return CheckedFile(set, split, name, texts, skipped, warnings)


def overlaps(files: Iterable[CheckedFile]) -> pd.DataFrame:
    """The overlap of every two splits of a set, and of the train split of a set with the scored splits of another.

    A row for each: `training` and `scored` split, whether they are of the `same_set`, and the fields of `Overlap`.
    """
    splits: dict[tuple[str, str], list[Texts]] = {}
    for file in files:
        splits.setdefault((file.set, file.split), []).extend(file.rows)
    scored_splits = {}
    for (name, split), rows in splits.items():
        if split != "train":
            scored_splits[f"{name} {split}"] = rows
    scored = ScoredRows(scored_splits)
    results = []
    for (name, split), rows in tqdm(splits.items(), "comparing", leave=False, disable=None):
        training_texts = scored.numbers_in(rows)
        for other, other_split in splits:
            if RANKS[split] < RANKS[other_split] and (name == other or split == "train"):
                target = f"{other} {other_split}"
                overlap = scored.overlap(target, training_texts)
                results.append((f"{name} {split}", target, name == other, *overlap))
    return pd.DataFrame(results, columns=["training", "scored", "same_set", "rows", "same", "sharing"])


def overlap_table(pairs: pd.DataFrame) -> Table:
    """The overlaps inside sets, and the large ones between sets."""
    large_same = pairs["same"] >= SMALLEST_SAME * pairs["rows"]
    large_sharing = pairs["sharing"] >= SMALLEST_SHARING * pairs["rows"]
    # of one set every overlap is shown; different sets often share a few sentences
    large = pairs[(pairs["sharing"] > 0) & (pairs["same_set"] | large_same | large_sharing)]
    rows = []
    for pair in large.itertuples():
        rows.append(
            {
                "training split": pair.training,
                "scored split": pair.scored,
                "rows": f"{pair.rows:,}",
                "same": f"{pair.same:,} ({pair.same / pair.rows:.1%})",
                "sharing": f"{pair.sharing:,} ({pair.sharing / pair.rows:.1%})",
            }
        )
    hidden = f"{len(pairs) - len(large)} comparisons with less overlap or none are not shown."
    return Table("Overlaps of scored splits with training splits", pd.DataFrame(rows), (hidden, *NOTES), left=2)


def print_reasons(title: str, files: Iterable[tuple[str, Sequence[tuple[int, str]]]]) -> None:
    """Print, below the name of each file, every reason with its number of rows and its first lines."""
    lines = []
    for name, rows in files:
        reasons: dict[str, list[int]] = {}
        for line, reason in rows:
            reasons.setdefault(reason, []).append(line)
        if reasons:
            lines.append(f"  {name}")
        for reason, numbers in reasons.items():
            first = ", ".join(map(str, numbers[:LINES_SHOWN]))
            more = ", ..." if len(numbers) > LINES_SHOWN else ""
            lines.append(f"    {len(numbers):,}: {reason} (line {first}{more})")
    if lines:
        print("\n".join(["", title, *lines]))
