"""Labelled NLI pairs, and single texts of two classes beside them, for the commands that classify.

| flag | rows |
|---|---|
| `--nli-pairs` | pairs of a premise and a hypothesis: 0 entailment, 1 neutral, 2 contradiction |
| `--phrases` | texts as pairs without a second text, their classes after those of NLI: 3 negative, 4 positive |
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from minbert.files import data_path, distinct_names, expand_user
from minbert.token_cache import Issue, ReaderReport, Row
from minbert.train import distributed
from minbert.train.settings import flag
from minbert.train.start import InitialEncoder
from tasks.contrastive.data import TrainingRows, cache_rows, training_files
from tasks.contrastive.settings import FileSettings
from tasks.examples import Examples
from tasks.readers import find_optional_file, kind_of, open_as, senteval, text_key
from tasks.readers.kinds import NLI_CLASSES, POLARITIES

_ORIGINALS = ("snli_1.0/snli_1.0_train.jsonl", "multinli_1.0/multinli_1.0_train.jsonl")


@dataclass(frozen=True)
class NliFileSettings(FileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    nli_pairs: str = flag(
        "",
        "in place of nli/nli-pairs.tsv, else SNLI's and MultiNLI's originals: files of labelled NLI pairs, by commas",
        metavar="FILES",
    )


@dataclass(frozen=True)
class PhraseFileSettings(NliFileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    phrases: str = flag(
        "",
        "with --objective cross also classify single texts labelled 0 or 1: sst = the phrases of SST's training "
        "sentences in SentEval's layout, negative or positive; or a file",
        metavar="sst|FILE",
    )


def find_pairs(files: NliFileSettings) -> list[Path]:
    """The files of labelled pairs. Raises `UserError` if one is missing or has another header."""
    paths = training_files(files.nli_pairs, files.data, "nli-pairs.tsv", *_ORIGINALS)
    # the first of the originals that is there was found; the other one, if it is there, belongs to it
    if not files.nli_pairs and paths[0].name != "nli-pairs.tsv":
        folder = paths[0].parent.parent
        paths = [folder / name for name in _ORIGINALS if (folder / name).is_file()]
    for path in paths:
        kind_of(path, ("nli",))
    return paths


def find_phrases(files: PhraseFileSettings) -> list[Path]:
    """The file of `--phrases`, if it is given. Raises `UserError` if it is missing or has another header."""
    if not files.phrases:
        return []
    path = expand_user(files.phrases)
    if files.phrases == "sst":
        (name,) = senteval.CLASSIFICATION["SST2"][1]["train"]
        path = senteval.root(data_path(files.data)) / name
    kind_of(path, ("single",))
    return [path]


def read_pairs(pairs: list[Path], phrases: list[Path], data: str, encoder: InitialEncoder) -> TrainingRows:
    """Labelled pairs, then phrases as pairs without a second text; `data` is the data folder as `--data` gives it."""
    evaluated = _sst_files(data) if phrases else []
    paths = [*pairs, *phrases]
    # ids and reasons name the file if there are several
    prefixes = [""]
    if len(paths) > 1:
        prefixes = [f"{name}:" for name in distinct_names(paths)]

    # lazy, as a cache hit reads nothing
    def rows() -> Iterator[Row | Issue | ReaderReport]:
        opened = [open_as(path, "nli", "train") for path in pairs]
        sources = [file.rows_and_issues() for file in opened]
        for path in phrases:
            texts = open_as(path, "single", "train", classes=len(POLARITIES))
            opened.append(texts)
            sources.append(list(_as_pairs(texts.rows_and_issues(), evaluated)))
        yield {"other_splits": sum(file.other_splits for file in opened)}
        for source, prefix in zip(sources, prefixes, strict=True):
            for row in source:
                if isinstance(row, Issue):
                    yield replace(row, reason=f"{prefix} {row.reason}".strip())
                else:
                    yield replace(row, id=f"{prefix}{row.id}")

    rule = ["nli", *prefixes]
    if phrases:
        rule.append("phrases")
    tokenizer = encoder.tokenizer
    cache, files = cache_rows(paths, rows(), rule, tokenizer, further=evaluated)
    entry = {**cache.manifest_entry(), "files": files}
    # the first file, and the hash of the whole cache; `files` has each file with its own
    del entry["file"], entry["sha256"]
    return TrainingRows(Examples(cache, tokenizer, encoder.max_length), entry)


def _sst_files(data: str) -> list[Path]:
    """The course's dev and test files of SST; phrases that equal one of their sentences are skipped.

    Warns for each file that does not exist.
    """
    folder = data_path(data)
    paths = []
    for name in ("ids-sst-dev.csv", "ids-sst-test-student.csv"):
        path = find_optional_file(folder, "course", [name])
        if path is not None:
            paths.append(path)
        else:
            distributed.note(f"--phrases: {folder} has no {name}, so phrases that equal its sentences are not skipped")
    return paths


def _as_pairs(rows: list[Row | Issue], evaluated: list[Path]) -> Iterator[Row | Issue]:
    """Single texts as pairs without a second text, their classes after those of NLI.

    Skips those that equal, by `readers.text_key`, a sentence of the files in `evaluated`.
    """
    file_of_text = {}
    for path in evaluated:
        for sentence in open_as(path, "single", "test").rows:
            file_of_text[text_key(sentence.texts[0])] = path.name
    for row in rows:
        if isinstance(row, Issue):
            yield row
            continue
        name = file_of_text.get(text_key(row.texts[0]))
        if name is not None:
            yield Issue(row.line, f"equals a sentence of {name}")
        else:
            yield replace(row, texts=(*row.texts, ""), label=len(NLI_CLASSES) + row.label)
