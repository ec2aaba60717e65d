"""Guards: triplets of NLI pairs are those of a plain loop over the rows; every row is kept, counted or listed.

They come from one file or several, of one kind.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_triplets.py
"""

import csv
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert import UserError
from minbert.token_cache import Issue, Row
from minbert.train.start import InitialEncoder
from tasks.contrastive import triplets
from tasks.contrastive.data import TrainingRows
from tasks.contrastive.triplets import find_triplets, fold, from_pairs, from_triplets
from tests.tasks.contrastive.conftest import texts_of, write_pairs

Pair = tuple[str, str, int]
E, N, C = triplets.ENTAILMENT, triplets.NEUTRAL, triplets.CONTRADICTION


def rows(pairs: list[Pair]) -> Iterator[Row]:
    for line, (premise, hypothesis, label) in enumerate(pairs, 1):
        yield Row(str(line), (premise, hypothesis), float(label), line)


def texts(merged: triplets.MergedTriplets) -> list[tuple[str, ...]]:
    return [row.texts for row in merged.triplets]


def test_defective_pairs_are_listed() -> None:
    pairs = [
        ("Rain falls.", "rain  FALLS.", E),  # its own premise
        ("Rain falls.", "It is wet.", E),
        ("Rain falls.", "It is wet.", E),  # a duplicate
        ("Rain falls.", "It is dry.", C),
        ("Rain falls.", "It pours.", E),  # contradictory with the next
        ("Rain falls.", "it pours.", C),
        ("Rain falls.", "It pours.", N),  # neutral is neither
    ]
    merged = from_pairs([iter([Issue(99, "label: '-'")]), rows(pairs)], "zip", names=["a.txt", "b.txt"])
    assert texts(merged) == [("Rain falls.", "It is wet.", "It is dry.")]
    assert merged.triplets[0].id == "b.txt:2-b.txt:4"
    assert [row.line for row in merged.skipped] == [99, 1, 5, 6, 3]
    assert merged.skipped[-1].reason == "b.txt: a duplicate of an earlier line"


def by_loop(pairs: list[Pair], per_premise: str) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """The module's docstring, one row at a time."""
    spelling: dict[str, str] = {}
    for pair in pairs:
        for text in pair[:2]:
            spelling.setdefault(fold(text), text)
    labels: dict[tuple[str, str], set[int]] = {}
    for premise, hypothesis, label in pairs:
        labels.setdefault((fold(premise), fold(hypothesis)), set()).add(label)
    counts = dict.fromkeys(("same_as_anchor", "contradictory", "duplicates", "neutral"), 0)
    premises: dict[str, dict[int, list[str]]] = {}
    for premise, hypothesis, label in pairs:
        p, h = fold(premise), fold(hypothesis)
        kept = premises.setdefault(p, {E: [], C: []})
        if p == h:
            counts["same_as_anchor"] += 1
        elif label == N:
            counts["neutral"] += 1
        elif {E, C} <= labels[p, h]:
            counts["contradictory"] += 1
        elif h in kept[label]:
            counts["duplicates"] += 1
        else:
            kept[label].append(h)
    counts |= {"premises": len(premises), "usable": 0, "unpaired": 0, "alone": 0}
    expected = []
    for p, kept in premises.items():
        zipped = list(zip(kept[E], kept[C]))
        chosen = {"first": zipped[:1], "zip": zipped, "cross": list(product(kept[E], kept[C]))}[per_premise]
        expected += [(spelling[p], spelling[e], spelling[c]) for e, c in chosen]
        paired = {(E, e) for e, _ in chosen} | {(C, c) for _, c in chosen}
        usable = len(kept[E]) + len(kept[C])
        counts["usable"] += usable
        counts["unpaired"] += usable - len(paired)
        counts["alone"] += bool(kept[E]) != bool(kept[C])
    return expected, counts


TEXT = st.sampled_from(["a", "A", "b", " b", "c", "d e", "d  E", "f"])


@given(
    st.lists(st.tuples(TEXT, TEXT, st.sampled_from([E, N, C])), max_size=40),
    st.sampled_from(["first", "zip", "cross"]),
    st.integers(0, 40),
)
def test_triplets_equal_plain_loop(pairs: list[Pair], per_premise: str, cut: int) -> None:
    pairs = [(p.strip(), h.strip(), label) for p, h, label in pairs]
    merged = from_pairs([rows(pairs[:cut]), rows(pairs[cut:])], per_premise)
    expected, counts = by_loop(pairs, per_premise)
    assert texts(merged) == expected
    assert counts.items() <= merged.counts.items()
    counted = merged.counts
    dropped = counted["skipped"] + counted["same_as_anchor"] + counted["contradictory"] + counted["duplicates"]
    assert counted["read"] == len(pairs) == dropped + counted["neutral"] + counted["usable"]
    assert (len(merged.skipped), counted["triplets"]) == (dropped, len(expected))


def test_defective_triplets_are_listed() -> None:
    rows_of_file = [
        ("Birds sing.", "There is song.", "It is quiet."),
        ("Birds sing.", "there is song.", "It is quiet."),  # a duplicate
        ("Birds sing.", "There is song.", "Birds sleep."),  # another triplet of the anchor
        ("Birds sing.", "birds sing.", "Birds sleep."),  # its own anchor
        ("Kids play.", "Kids have fun.", "Kids have fun."),  # contradictory in itself
        ("Kids play.", "Kids run.", "Kids sit."),  # contradictory with the next
        ("Kids play.", "Kids sit.", "Kids cry."),
        ("Kids nap.", "Kids sit.", "Kids run."),  # another anchor: nothing is wrong
    ]
    merged = from_triplets([[Row(str(line), row, line=line) for line, row in enumerate(rows_of_file, 1)]])
    assert texts(merged) == [rows_of_file[0], rows_of_file[2], rows_of_file[7]]
    assert [row.line for row in merged.skipped] == [4, 5, 6, 7, 2]
    assert (merged.counts["same_as_anchor"], merged.counts["contradictory"], merged.counts["duplicates"]) == (1, 3, 1)
    assert (merged.counts["read"], merged.counts["triplets"], merged.counts["premises"]) == (8, 3, 3)


LABELS = ["entailment", "neutral", "contradiction"]
PAIRS = [
    ("The cat sleeps on the mat.", "A cat sleeps.", "entailment"),
    ("The cat sleeps on the mat.", "The cat is happy.", "neutral"),
    ("The cat sleeps on the mat.", "The cat runs.", "contradiction"),
    ("A dog runs, fast.", "The dog is not asleep.", "entailment"),
    ("The cat sleeps on the mat.", "A cat is on a mat.", "entailment"),
    ("A dog runs, fast.", "The dog sat.", "contradiction"),
    ("The cat sleeps on the mat.", "The mat is under a dog.", "contradiction"),
    ("The bird is sad.", "A bird is not happy.", "entailment"),
    ("The cat sleeps on the mat.", "A cat is not awake.", "entailment"),
    ("A dog runs, fast.", "A dog.", "-"),
]
TRIPLETS = [
    ("The cat, who sat.", "A cat sat.", "A cat runs."),
    ("A tree.", "The tree.", 'A "bird".'),
    ("Who is happy?", "Who is not sad?", "Who is sad?"),
]


def read(paths: Sequence[Path], initial: InitialEncoder, per_premise: str = "first") -> TrainingRows:
    files = find_triplets(", ".join(map(str, paths)), "")
    return triplets.read_triplets(files, per_premise, initial.tokenizer, initial.max_length)


def write_table(path: Path, header: list[str], rows: Sequence[Sequence[str]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return path


def test_premises_are_merged_over_files(initial: InitialEncoder, tmp_path: Path) -> None:
    paths = [write_pairs(tmp_path / "0.tsv", PAIRS[:4]), write_pairs(tmp_path / "1.tsv", PAIRS[4:])]
    examples, entry = read(paths, initial, "zip")
    labelled = [(premise, hypothesis, LABELS.index(label)) for premise, hypothesis, label in PAIRS[:-1]]
    assert texts_of(examples) == by_loop(labelled, "zip")[0]
    assert entry["per_premise"] == "zip"
    assert [file["file"] for file in entry["files"]] == [str(path) for path in paths]
    counts = entry["counts"]
    assert counts["read"] == len(PAIRS) == counts["skipped"] + counts["neutral"] + counts["usable"]
    assert entry["skipped"] == [{"line": len(PAIRS) - 3, "why": "1.tsv: no gold label"}]


@pytest.mark.parametrize("header", [["sent0", "sent1", "hard_neg"], ["anchor", "positive"]])
def test_every_triplet_is_kept_or_listed(initial: InitialEncoder, tmp_path: Path, header: list[str]) -> None:
    width = len(header)
    good = [row[:width] for row in TRIPLETS]
    same = ("A tree.", " a  TREE.", "A mat.")[:width]
    empty = ("", "A cat.", "A dog.")[:width]
    rows = [*good[:2], good[0], same, empty, good[2]]
    examples, entry = read([write_table(tmp_path / "own.csv", header, rows)], initial)
    assert texts_of(examples) == good
    assert entry["counts"]["read"] == len(rows) == len(examples) + len(entry["skipped"])
    assert sorted(row["line"] for row in entry["skipped"]) == [4, 5, 6]


def test_a_split_column_keeps_training_rows(initial: InitialEncoder, tmp_path: Path) -> None:
    rows = [(*row, "train") for row in TRIPLETS]
    rows.append(("A test.", "A cat.", "A dog.", "test"))
    path = write_table(tmp_path / "all.csv", ["anchor", "positive", "negative", "split"], rows)
    examples, entry = read([path], initial)
    assert texts_of(examples) == TRIPLETS
    assert entry["counts"]["read"] == len(TRIPLETS)
    assert (entry["read"], entry["left_out"]) == (len(rows), 1)


def test_files_of_different_kinds_are_refused(tmp_path: Path) -> None:
    with_negatives = write_table(tmp_path / "hard.csv", ["sent0", "sent1", "hard_neg"], TRIPLETS)
    without = write_table(tmp_path / "two.csv", ["anchor", "positive"], [row[:2] for row in TRIPLETS])
    pairs = write_pairs(tmp_path / "pairs.tsv", PAIRS)
    for first, second in ((pairs, with_negatives), (with_negatives, pairs), (with_negatives, without)):
        with pytest.raises(UserError, match=f"--triplets: {first} .*{second} "):
            find_triplets(f"{first},{second}", "")


def test_rules_have_their_own_cache(initial: InitialEncoder, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv", PAIRS)
    first = read([path], initial, "first").examples
    assert read([path], initial, "cross").examples.cache.sha256 != first.cache.sha256
    assert read([path], initial, "first").examples.cache.sha256 == first.cache.sha256
    write_pairs(path, [*PAIRS, ("A tree.", "Trees.", "entailment"), ("A tree.", "A dog.", "contradiction")])
    assert len(read([path], initial, "first").examples) == len(first) + 1
