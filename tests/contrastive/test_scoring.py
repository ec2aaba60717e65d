"""Guards: cosines are those of the encoder's vectors, each text is encoded once, and the cache is whole or absent.

python -m pytest --import-mode=importlib tests/contrastive/test_scoring.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from minbert import UserError
from minbert.encode import Encoder
from minbert.token_cache import Row
from tasks.contrastive import __main__ as show
from tasks.contrastive import scoring, triplets
from tasks.examples import Examples

TEXTS = [
    ("the cat sat on the mat", "a cat sat", "the dog runs"),
    ("the cat sat on the mat", "the cat is on a mat", "a bird sleeps"),
    ("who is happy ?", "what is the very happy dog ?", "the cat sat on the mat"),
    ("a bird sleeps under the tree", "a bird sleeps", "the bird is not sad"),
]
LONG = ("the dog runs " * 9, "a dog runs", "the dog sleeps on the mat")

Make = Callable[..., Examples]


@pytest.fixture
def encoder(tiny: Path) -> Encoder:
    return Encoder.load(tiny, pooler="mean", precision="fp32")


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call of the encoder was given, from now on."""
    calls: list[int] = []
    real = Encoder.encode_ids

    def spy(self: Encoder, rows: list, **more: object) -> np.ndarray:
        calls.append(len(rows))
        return real(self, rows, **more)

    monkeypatch.setattr(Encoder, "encode_ids", spy)
    return calls


def similarities(encoder: Encoder, made: Examples, weights: str) -> scoring.Similarities:
    return scoring.similarities(encoder, made, weights, np.arange(len(made)))


def plain(encoder: Encoder, texts: list[tuple[str, ...]]) -> np.ndarray:
    """Each cosine by itself, in float64: [2, N]."""
    found = []
    for row in texts:
        a, p, n = (encoder.encode([text])[0].astype(np.float64) for text in row)
        found.append([a @ side / np.sqrt((a @ a) * (side @ side)) for side in (p, n)])
    return np.array(found).T


def test_blocks_of_triplets_change_no_cosine(
    encoder: Encoder, examples_of: Make, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = examples_of(TEXTS, max_length=16)
    whole = similarities(encoder, made, "whole")
    monkeypatch.setattr(scoring, "_BLOCK", 3)
    parts = similarities(encoder, made, "in blocks")
    np.testing.assert_allclose([parts.positive, parts.negative], [whole.positive, whole.negative], atol=1e-6)
    assert encoded == [9, 7, 3], "each text of a block once"


@pytest.mark.parametrize("pooler", ["pooler", "mean", "avg-static-last"])
def test_cosines_are_those_of_the_vectors(encoder: Encoder, examples_of: Make, pooler: str) -> None:
    encoder.pooler = pooler
    found = similarities(encoder, examples_of(TEXTS, max_length=16), "weights")
    assert found.positive.dtype == found.negative.dtype == np.float32
    np.testing.assert_allclose([found.positive, found.negative], plain(encoder, TEXTS), atol=2e-6)
    np.testing.assert_allclose(found.gap, plain(encoder, TEXTS)[0] - plain(encoder, TEXTS)[1], atol=4e-6)


def test_each_distinct_text_is_encoded_once_and_the_cache_spares_all(
    encoder: Encoder, examples_of: Make, encoded: list[int]
) -> None:
    similarities(encoder, examples_of(TEXTS, max_length=16), "weights")
    assert encoded == [len({text for row in TEXTS for text in row})] == [9]
    again = similarities(encoder, examples_of(TEXTS, max_length=16), "weights")
    assert len(encoded) == 1 and again.positive.shape == (len(TEXTS),)


def test_what_the_numbers_depend_on_is_in_the_key(encoder: Encoder, examples_of: Make, encoded: list[int]) -> None:
    texts = [*TEXTS, LONG]
    similarities(encoder, examples_of(texts, max_length=16), "weights")
    similarities(encoder, examples_of(texts, max_length=16), "other weights")
    similarities(encoder, examples_of(texts, max_length=8), "weights")
    similarities(encoder, examples_of([*texts[1:], texts[0]], max_length=16), "weights")
    encoder.pooler = "cls"
    similarities(encoder, examples_of(texts, max_length=16), "weights")
    encoder.precision = "bf16"
    similarities(encoder, examples_of(texts, max_length=16), "weights")
    assert len(encoded) == 6


PREMISE = "A man with a long grey beard and work gloves is pulling hard on a rope that hangs from the old stone tower."
FOUND = [
    (PREMISE, "A man pulls a rope.", "Nobody is there."),
    (
        PREMISE,
        "Somebody has a beard, and it is grey and long.",
        "A clean-shaven man swings on a rope above the river with both hands.",
    ),
    (PREMISE, "A rope.", "No rope."),
]


def test_the_table_of_a_premise() -> None:
    scores = scoring.Similarities(np.float32([0.55, 0.9, 0.5]), np.float32([0.5, 0.1, 0.75]))
    lines = show.table(FOUND, scores, 0.2).terminal().split("\n")
    assert lines[0] == PREMISE and lines[1].split()[-4:] == ["cos+", "cos-", "gap", "difficulty"]
    assert [line.split()[-4:] for line in lines[2:5]] == [
        ["0.900", "0.100", "0.800", "easy"],
        ["0.550", "0.500", "0.050", "semi-hard"],
        ["0.500", "0.750", "−0.250", "hard"],
    ]
    assert lines[5] == "3 triplets: 1 easy, 1 semi-hard, 1 hard (margin 0.2)"


def test_a_premise_is_found_in_any_spelling_and_others_are_named() -> None:
    more = [
        ("A woman reads.", "She has a book.", "She runs."),
        ("Two boys row a boat.", "They row.", "They sit."),
        ("A boy pulls on a rope.", "A rope.", "No rope."),
        ("Dogs bark.", "It is loud.", "It is silent."),
    ]
    made = triplets.checked([[Row(str(i), row, line=i) for i, row in enumerate([*FOUND, *more], 1)]])
    assert show.of_premise(made, PREMISE.upper().replace(" ", "  ")) == FOUND
    with pytest.raises(UserError) as caught:
        show.of_premise(made, "A boy pulled on a rope.")
    assert str(caught.value).startswith("--premise: ") and "the nearest are 'A boy pulls on a rope.', " in str(
        caught.value
    )
    assert str(caught.value).count("', '") == 2


def test_a_file_is_triplets_or_pairs_by_its_columns(tmp_path: Path) -> None:
    lines = [{"anchor": "a label here", "positive": "a label", "negative": "no label"}]
    path = tmp_path / "triplets.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = show.every_triplet(path)
    assert sorted(found.source.text(number) for number in found.table[0]) == ["a label", "a label here", "no label"]
    path = tmp_path / "two.csv"
    path.write_text("anchor,positive\na label here,a label\n")
    with pytest.raises(UserError, match="rows without a hard negative"):
        show.every_triplet(path)


def test_show_from_the_command_line(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pairs.tsv"
    lines = [
        "premise\thypothesis\tlabel\tsource",
        "the cat sat\ta cat\tentailment\tx",
        "the cat sat\tthe dog runs\tcontradiction\tx",
        "the cat sat\ta bird\tcontradiction\tx",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    how = ["--triplets", str(path), "--weights", str(tiny), "--pooler", "mean"]
    monkeypatch.setattr("sys.argv", ["show", "show", "--premise", "The cat sat", *how])
    show.main()
    said = capsys.readouterr().out
    assert "2 triplets: " in said and "mean pooling" in said
    monkeypatch.setattr("sys.argv", ["show", "show", "--premise", "nothing", *how])
    with pytest.raises(UserError, match="'the cat sat'"):
        show.main()
