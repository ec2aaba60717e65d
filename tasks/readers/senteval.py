"""The evaluation sets in SentEval's layout, `DIR/downstream/...`: what there is stands in two tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minbert.errors import UserError
from minbert.files import present
from minbert.token_cache import Row, Skipped
from tasks.readers.nli import NLI
from tasks.readers.records import BOM, Record, opened, records
from tasks.readers.rows import BINARY, SCORE, Label, rows

Rows = Iterator[Row | Skipped]

# Folder (the first that is there) and subsets. SMT of STS13 is not free and is left out by SentEval too.
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

_STSB_NAMES = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")
_RELATED = Label(lambda value: 1 <= value <= 5, "is not between 1 and 5")
_SICK_NLI = Label(NLI.accepts, NLI.complaint, {name.upper(): value for name, value in NLI.words.items()})
QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_QUESTION = re.compile(r"([A-Z]+):\w+ (.*)")


@dataclass(frozen=True)
class ClassSet:
    """A classification set: per split its files, which are one reader's; `classes` of `texts` sentences a row."""

    kind: str
    classes: int
    texts: int
    splits: dict[str, tuple[str, ...]]


# Splits by file. Sets of one split are cross-validated by SentEval; of two, the first file's rows are class 1.
CLASSIFICATION = {
    "MR": ClassSet("two-files", 2, 1, {"all": ("MR/rt-polarity.pos", "MR/rt-polarity.neg")}),
    "CR": ClassSet("two-files", 2, 1, {"all": ("CR/custrev.pos", "CR/custrev.neg")}),
    "SUBJ": ClassSet("two-files", 2, 1, {"all": ("SUBJ/subj.objective", "SUBJ/subj.subjective")}),
    "MPQA": ClassSet("two-files", 2, 1, {"all": ("MPQA/mpqa.pos", "MPQA/mpqa.neg")}),
    "SST2": ClassSet(
        "text-label", 2, 1, {split: (f"SST/binary/sentiment-{split}",) for split in ("train", "dev", "test")}
    ),
    "TREC": ClassSet("questions", 6, 1, {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)}),
    "MRPC": ClassSet(
        "mrpc", 2, 2, {split: (f"MRPC/msr_paraphrase_{split}.txt",) for split in ("train", "test")}
    ),
    "SICK-E": ClassSet("sick", 3, 2, {split: (f"SICK/{name}",) for split, name in SICK.items()}),
}  # fmt: skip


def root(folder: Path) -> Path:
    """The folder `downstream`, given itself or its parent; `UserError` where it is neither."""
    for one in (folder / "downstream", folder / "senteval" / "downstream", folder):
        if any((one / name).is_dir() for name in ("STS", "SICK", "MR", "SST", "MRPC", "TREC", "stsbenchmark")):
            return one
    raise UserError(
        f"{folder}: no SentEval data there: neither downstream/STS nor STS; "
        f"python data/get_data.py senteval fetches it into data/"
    )


def scored(folder: Path, name: str, split: str = "test") -> dict[str, Rows]:
    """Pairs with a human score, by subset: `STS12` to `STS16` (test only), `STS-B` and `SICK` (train, dev, test).

    Scores are 0 to 5, of SICK 1 to 5. Pairs without one (a blank line of an STS gold file) are skipped. Raises
    `UserError` for a set, split or file that is not there.
    """
    base = root(folder)
    if name in STS and split == "test":
        place, subsets = STS[name]
        return {subset: sts(_file(base, f"{place}/STS.input.{subset}.txt")) for subset in subsets}
    if name == "STS-B" and split in SICK:
        places = [place for place in STSB if (base / place / f"sts-{split}.csv").is_file()]
        return {"STS-B": stsb(_file(base, f"{(*places, STSB[0])[0]}/sts-{split}.csv"))}
    if name == "SICK" and split in SICK:
        return {"SICK": sick(_file(base, f"SICK/{SICK[split]}"))}
    raise UserError(f"{name} {split}: no such set of scored pairs; there are {', '.join(SCORED)} (STS12-16: test only)")


def classification(folder: Path, name: str) -> dict[str, Rows]:
    """Sentences, or pairs of MRPC and SICK-E, with a class from 0, by split (`all` where SentEval cross-validates).

    Classes: 1 positive, objective (SUBJ), paraphrase; TREC in the order of `QUESTIONS`; SICK-E as `nli.NAMES`.
    `CLASSIFICATION` says how many there are. Raises `UserError` for a set or file that is not there.
    """
    if name not in CLASSIFICATION:
        raise UserError(f"{name}: no such classification set; there are {', '.join(CLASSIFICATION)}")
    base, known = root(folder), CLASSIFICATION[name]
    files = {split: [_file(base, one) for one in names] for split, names in known.splits.items()}
    if known.kind == "two-files":
        return {split: _two_files(*paths) for split, paths in files.items()}
    read = {"text-label": text_label, "questions": questions, "mrpc": mrpc, "sick": sick_entailment}[known.kind]
    return {split: read(paths[0]) for split, paths in files.items()}


def sts(path: Path) -> Rows:
    """Pairs of `STS.input.X.txt` with the scores of `STS.gs.X.txt` beside it; a blank score is a skipped pair."""
    return rows(gold(path), _with_scores(path, gold(path)), ("sentence1", "sentence2"), _GAPPED, column="score")


def gold(path: Path) -> Path:
    """The file of scores that belongs to an `STS.input.X.txt`."""
    return path.with_name(path.name.replace("input", "gs", 1))


_GAPPED = Label(SCORE.accepts, SCORE.complaint, gaps={"": "no gold score"})


def _with_scores(path: Path, gold: Path) -> Iterator[Record]:
    pairs = records(path, ("sentence1", "sentence2"), quotes="none", names=("sentence1", "sentence2"))
    with opened(gold) as scores:
        at = 0
        for line, cells in pairs:
            while at < line:
                score, at = next(scores, None), at + 1
            if score is None:
                raise UserError(f"{gold}: ends before line {line}, which {path.name} has")
            yield line, (*cells, score.strip())
        if next((rest for rest in scores if rest.strip()), None) is not None:
            raise UserError(f"{gold}: has more lines than {path.name}")


def stsb(path: Path) -> Rows:
    """STS-B: genre, file, year, number, score, two sentences, and in some rows their source and licence."""
    found = records(path, ("sentence1", "sentence2", "score"), quotes="none", names=_STSB_NAMES, wider=True)
    return rows(path, found, ("sentence1", "sentence2"), SCORE, column="score")


def sick(path: Path) -> Rows:
    """SICK pairs with their relatedness, 1 to 5."""
    return _sick(path, "relatedness_score", _RELATED)


def sick_entailment(path: Path) -> Rows:
    """SICK pairs with label 0 entailment, 1 neutral, 2 contradiction."""
    return _sick(path, "entailment_judgment", _SICK_NLI)


def _sick(path: Path, column: str, label: Label) -> Rows:
    found = records(path, ("sentence_A", "sentence_B", column, "pair_ID"), quotes="none")
    return rows(path, found, ("sentence_A", "sentence_B"), label, column=column, ident=True)


def mrpc(path: Path) -> Rows:
    """MRPC: pairs with 1 for a paraphrase; a quote is a character."""
    found = records(path, ("#1 String", "#2 String", "Quality"), quotes="none")
    return rows(path, found, ("#1 String", "#2 String"), BINARY, column="Quality")


def text_label(path: Path, label: Label = BINARY) -> Rows:
    """Lines of a text, a tab and a class, as in SST binary."""
    found = records(path, ("sentence", "label"), quotes="none", names=("sentence", "label"))
    return rows(path, found, ("sentence",), label)


def questions(path: Path) -> Rows:
    """TREC: questions with the coarse type that stands before the colon, as its place in `QUESTIONS`; latin-1."""
    with opened(path, "latin-1") as file:
        for line, text in enumerate(file, 1):
            match = _QUESTION.fullmatch(text.strip())
            if not match or match[1] not in QUESTIONS:
                raise UserError(f"{path}:{line}: label: the line does not begin with a type such as DESC:manner")
            yield Row(str(line), (match[2],), float(QUESTIONS.index(match[1])))


def _two_files(positive: Path, negative: Path) -> Rows:
    """The sentences of two latin-1 files: class 1, then class 0; ids are the file's ending and the line."""
    for path, label in ((positive, 1.0), (negative, 0.0)):
        with opened(path, "latin-1") as file:
            for line, text in enumerate(file, 1):
                name, found = f"{path.suffix[1:]}-{line}", text.strip().strip(BOM)
                if found:
                    yield Row(name, (found,), label)
                else:  # SentEval keeps these rows, and the published numbers count them
                    yield Row(name, (".",), label, line=line, note=f"{path.name}: blank line, read as '.'")


def _file(base: Path, name: str) -> Path:
    return present(base / name)
