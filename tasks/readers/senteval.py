"""Evaluation sets in SentEval's layout, `DIR/downstream/...`. Two tables list them: `STS` and `CLASSIFICATION`."""

import math
import re
from functools import partial
from itertools import zip_longest
from pathlib import Path

from minbert.errors import UserError
from minbert.files import require_file
from minbert.token_cache import Row
from tasks.readers.kinds import QUESTIONS, parse_name, parse_score
from tasks.readers.rows import DataFile, plain_lines, read_label
from tasks.readers.table import Table, read_lines

# Set -> its folder and its subsets. SMT of STS13 is not free; SentEval omits it too.
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
# the folder of STS-B in SentEval's download, and in STS-B's own
STSB = ("STS/STSBenchmark", "stsbenchmark")
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
SCORED = (*STS, "STS-B", "SICK")
_QUESTION = re.compile(r"([A-Z]+):\w+ (.*)")


CLASSIFICATION: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "MR": ("polarity", {"all": ("MR/rt-polarity.pos", "MR/rt-polarity.neg")}),
    "CR": ("polarity", {"all": ("CR/custrev.pos", "CR/custrev.neg")}),
    "SUBJ": ("polarity", {"all": ("SUBJ/subj.objective", "SUBJ/subj.subjective")}),
    "MPQA": ("polarity", {"all": ("MPQA/mpqa.pos", "MPQA/mpqa.neg")}),
    "SST2": ("single", {split: (f"SST/binary/sentiment-{split}",) for split in ("train", "dev", "test")}),
    "TREC": ("single", {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)}),
    "MRPC": ("pair-class", {split: (f"MRPC/msr_paraphrase_{split}.txt",) for split in ("train", "test")}),
}
"""Name -> (kind of rows as for `open_as`, split -> its files); SentEval cross-validates the sets with a single split.

Class 1 is positive, objective (SUBJ) or paraphrase (MRPC); TREC follows `kinds.QUESTIONS`. The kind `polarity` has one
file per class: the first holds class 1, the second class 0.
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


def polarity(first: Path, second: Path) -> DataFile:
    """The sentences of two latin-1 files, class 1 then class 0; ids are `{file suffix}-{line}`."""
    data = DataFile(first, 1)
    for path, label in ((first, 1.0), (second, 0.0)):
        for line, text in plain_lines(path, "latin-1"):
            row_id = f"{path.suffix[1:]}-{line}"
            if text:
                data.rows.append(Row(row_id, (text,), label))
            else:  # SentEval keeps these rows, and the published numbers count them
                note = f"{path.name}: blank line, read as '.'"
                data.rows.append(Row(row_id, (".",), label, line, note))
    return data


def is_trec(table: Table) -> bool:
    """Whether the first line is a question of TREC's, such as `DESC:manner How ...`."""
    match = _QUESTION.match(table.line)
    return match is not None and match[1] in QUESTIONS


def read_trec(path: Path, *, labelled: bool = True) -> DataFile:
    """The questions of a latin-1 file, each after its type; classes follow `kinds.QUESTIONS`.

    A type without a question is skipped. Raises `UserError` for a line without a type.
    """
    data = DataFile(path, 1)
    for line, text in plain_lines(path, "latin-1"):
        question_type, _, question = text.partition(" ")
        if not question:
            data.skip(line, "sentence: empty")
            continue
        name, _, _ = question_type.partition(":")
        label = read_label(path, line, "class", name, partial(parse_name, names=QUESTIONS))
        data.keep(line, (question.strip(),), label if labelled else math.nan)
    return data


def is_sts_input(path: Path) -> bool:
    """Whether a file is one of the sentence files of STS12 to STS16, whose scores stand in another file."""
    return path.name.startswith("STS.input.")


def gold_file(path: Path) -> Path:
    """The file of the scores of `STS.input.X.txt`."""
    return path.with_name(path.name.replace("input", "gs", 1))


def read_sts_input(path: Path, *, labelled: bool = True) -> DataFile:
    """Pairs with a tab between them, each with the score in the same line of the gold file.

    Pairs without a score are skipped, if scores are read. Raises `UserError` if one is missing, if they have different
    numbers of lines, or if a line has not two texts.
    """
    gold = require_file(gold_file(path))
    data = DataFile(path, 2)
    for line, (pair, score) in enumerate(zip_longest(read_lines(path), read_lines(gold)), 1):
        is_blank = not (pair or "").strip() and not (score or "").strip()
        if is_blank:
            continue
        if pair is None or score is None:
            shorter = path if pair is None else gold
            longer = gold if pair is None else path
            raise UserError(f"{shorter}: ends before line {line}, which {longer.name} has")
        cells = pair.split("\t")
        if len(cells) != 2:
            raise UserError(f"{path}:{line}: {len(cells)} columns, not 2")
        first = cells[0].strip()
        second = cells[1].strip()
        if not first or not second:
            data.skip(line, f"{'sentence2' if first else 'sentence1'}: empty")
        elif not labelled:
            data.keep(line, (first, second))
        elif not score.strip():
            data.skip(line, "no gold score")
        else:
            data.keep(line, (first, second), read_label(gold, line, "score", score.strip(), parse_score))
    return data
