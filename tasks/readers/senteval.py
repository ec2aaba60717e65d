"""Evaluation sets in SentEval's layout, `DIR/downstream/...`. Two tables list them: `STS` and `CLASSIFICATION`."""

from pathlib import Path

from minbert.errors import UserError
from minbert.files import require_file
from minbert.token_cache import Row
from tasks.readers.layouts import Rows, open_as
from tasks.readers.records import line_records

# Folder and subsets (STS-B: folders, the first that exists is read). SMT of STS13 is not free; SentEval omits it too.
STS = {
    "STS12": ("STS/STS12-en-test", ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")),
    "STS13": ("STS/STS13-en-test", ("FNWN", "headlines", "OnWN")),
    "STS14": ("STS/STS14-en-test", ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news")),
    "STS15": ("STS/STS15-en-test", ("answers-forums", "answers-students", "belief", "headlines", "images")),
    "STS16": (
        "STS/STS16-en-test",
        ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    ),
}
STSB = ("STS/STSBenchmark", "stsbenchmark")
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
SCORED = (*STS, "STS-B", "SICK")


CLASSIFICATION: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "MR": ("polarity", {"all": ("MR/rt-polarity.pos", "MR/rt-polarity.neg")}),
    "CR": ("polarity", {"all": ("CR/custrev.pos", "CR/custrev.neg")}),
    "SUBJ": ("polarity", {"all": ("SUBJ/subj.objective", "SUBJ/subj.subjective")}),
    "MPQA": ("polarity", {"all": ("MPQA/mpqa.pos", "MPQA/mpqa.neg")}),
    "SST2": ("single", {split: (f"SST/binary/sentiment-{split}",) for split in ("train", "dev", "test")}),
    "TREC": ("single", {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)}),
    "MRPC": ("pair-class", {split: (f"MRPC/msr_paraphrase_{split}.txt",) for split in ("train", "test")}),
    "SICK-E": ("nli", {split: (f"SICK/{name}",) for split, name in SICK.items()}),
}
"""Name -> (kind of rows as for `open_as`, split -> its files); SentEval cross-validates the sets with a single split.

The kind `polarity` has one file per class: the first holds class 1, the second class 0.
"""


def root(folder: Path) -> Path:
    """The folder `downstream`, given itself or a parent of it; raises `UserError` if there is no SentEval data."""
    if base := find_root(folder):
        return base
    raise UserError(
        f"{folder}: no SentEval data there: neither downstream/STS nor STS; "
        f"python data/get_data.py senteval fetches it into data/"
    )


def find_root(folder: Path) -> Path | None:
    """As `root`; None if there is no SentEval data."""
    for candidate in (folder / "downstream", folder / "senteval" / "downstream", folder):
        if any((candidate / name).is_dir() for name in ("STS", "SICK", "MR", "SST", "MRPC", "TREC", "stsbenchmark")):
            return candidate
    return None


def scored_files(base: Path, name: str, split: str = "test") -> dict[str, Path]:
    """The files of a set of `SCORED` below `root`, by subset; they need not exist.

    `STS12` to `STS16` have the split test alone, `STS-B` and `SICK` have train, dev and test.
    """
    if name in STS:
        directory, subsets = STS[name]
        return {subset: base / directory / f"STS.input.{subset}.txt" for subset in subsets}
    if name == "SICK":
        return {name: base / name / SICK[split]}
    candidates = [base / directory / f"sts-{split}.csv" for directory in STSB]
    return {name: next((path for path in candidates if path.is_file()), candidates[0])}


def scored(folder: Path, name: str, split: str = "test") -> dict[str, Rows]:
    """Pairs with a human score, by subset: `scored_files`, opened.

    Scores are from 0 to 5, in SICK from 1 to 5. Pairs without a score (a blank line of an STS gold file) are skipped.
    Raises `UserError` for a missing file.
    """
    files = scored_files(root(folder), name, split)
    return {subset: open_as(require_file(path), "pair-score").rows for subset, path in files.items()}


def classification(folder: Path, name: str) -> dict[str, Rows]:
    """Sentences (pairs for MRPC and SICK-E) with a class from 0, by split; `all` for sets that are cross-validated.

    Class 1 is positive, objective (SUBJ) or paraphrase (MRPC); TREC follows `layouts.QUESTIONS`, SICK-E
    `layouts.NLI_CLASSES`. Raises `UserError` for a missing file.
    """
    base, (kind, splits) = root(folder), CLASSIFICATION[name]
    files = {split: [require_file(base / file) for file in names] for split, names in splits.items()}
    if kind == "polarity":
        return {split: polarity(*paths) for split, paths in files.items()}
    return {split: open_as(paths[0], kind).rows for split, paths in files.items()}


def polarity(first: Path, second: Path) -> Rows:
    """The sentences of two latin-1 files, class 1 then class 0; ids are `{file suffix}-{line}`."""
    for path, label in ((first, 1.0), (second, 0.0)):
        for line, (text,) in line_records(path, "latin-1"):
            name = f"{path.suffix[1:]}-{line}"
            if text:
                yield Row(name, (text,), label)
            else:  # SentEval keeps these rows, and the published numbers count them
                yield Row(name, (".",), label, line=line, note=f"{path.name}: blank line, read as '.'")
