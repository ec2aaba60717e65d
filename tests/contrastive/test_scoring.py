"""Guards: blocks change no cosine, what a cosine depends on is in the key of the cache, and `show` prints the table.

python -m pytest --import-mode=importlib tests/contrastive/test_scoring.py
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from minbert import UserError
from minbert.encode import Encoder
from tasks.contrastive import __main__ as show
from tasks.contrastive import scoring
from tasks.examples import Examples

TEXTS = [
    ("the cat sat on the mat", "a cat sat", "the dog runs"),
    ("the cat sat on the mat", "the cat is on a mat", "a bird sleeps"),
    ("who is happy ?", "what is the very happy dog ?", "the cat sat on the mat"),
    ("a bird sleeps under the tree", "a bird sleeps", "the bird is not sad"),
]
LONG = ("the dog runs " * 9, "a dog runs", "the dog sleeps on the mat")

Make = Callable[..., Examples]
Calls = list[tuple[str, int]]


def similarities(encoder: Encoder, made: Examples, weights: str) -> scoring.Similarities:
    return scoring.similarities(encoder, made, weights, np.arange(len(made)))


def test_blocks_of_triplets_change_no_cosine(
    encoder: Encoder, examples_of: Make, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = examples_of(TEXTS, max_length=16)
    whole = similarities(encoder, made, "whole")
    monkeypatch.setattr(scoring, "_BLOCK", 3)
    parts = similarities(encoder, made, "in blocks")
    np.testing.assert_allclose([parts.positive, parts.negative], [whole.positive, whole.negative], atol=1e-6)
    assert [texts for _, texts in calls] == [9, 7, 3], "each text of a block once"


def test_what_the_numbers_depend_on_is_in_the_key(
    encoder: Encoder, examples_of: Make, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*TEXTS, LONG]
    similarities(encoder, examples_of(texts, max_length=16), "weights")
    similarities(encoder, examples_of(texts, max_length=16), "other weights")
    similarities(encoder, examples_of(texts, max_length=8), "weights")
    similarities(encoder, examples_of([*texts[1:], texts[0]], max_length=16), "weights")
    encoder.pooler = "cls"
    similarities(encoder, examples_of(texts, max_length=16), "weights")
    encoder.precision = "bf16"
    similarities(encoder, examples_of(texts, max_length=16), "weights")
    monkeypatch.setattr("torch.get_num_threads", lambda: 99)
    similarities(encoder, examples_of(texts, max_length=16), "weights")
    assert len(calls) == 7


def test_the_table_of_a_premise() -> None:
    rows = [("He pulls.", "Nobody."), ("A man.", "He swings."), ("A rope.", "No rope.")]
    texts = [("A man pulls.", *row) for row in rows]
    scores = scoring.Similarities(np.float32([0.55, 0.9, 0.5]), np.float32([0.5, 0.1, 0.75]))
    lines = show.table(texts, scores, 0.2).terminal().split("\n")
    assert lines[0] == "A man pulls." and lines[1].split()[-4:] == ["cos+", "cos-", "gap", "difficulty"]
    assert [line.split()[-4:] for line in lines[2:5]] == [
        ["0.900", "0.100", "0.800", "easy"],
        ["0.550", "0.500", "0.050", "semi-hard"],
        ["0.500", "0.750", "−0.250", "hard"],
    ]
    assert lines[5] == "3 triplets: 1 easy, 1 semi-hard, 1 hard (margin 0.2)"


def test_show_from_the_command_line(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of labelled pairs every triplet, whatever the premise's case and spaces; of triplets those of the file."""
    pairs, own, two = (tmp_path / name for name in ("pairs.tsv", "triplets.csv", "two.csv"))
    rows = ("a cat\tentailment", "the dog runs\tcontradiction", "a bird\tcontradiction")
    pairs.write_text("premise\thypothesis\tlabel\n" + "".join(f"the cat sat\t{row}\n" for row in rows))
    own.write_text("anchor,positive,negative\nthe cat sat,a cat,the dog runs\n")
    two.write_text("anchor,positive\nthe cat sat,a cat\n")

    def shown(path: Path, premise: str) -> str:
        how = ["--triplets", str(path), "--weights", str(tiny), "--pooler", "mean"]
        monkeypatch.setattr("sys.argv", ["show", "show", "--premise", premise, *how])
        show.main()
        return capsys.readouterr().out

    said = shown(pairs, "The  cat sat")
    assert "2 triplets: " in said and "mean pooling" in said
    assert "1 triplet: " in shown(own, "the cat sat")
    for path, premise, words in ((pairs, "nothing", "'the cat sat'"), (two, "the cat sat", "without a hard negative")):
        with pytest.raises(UserError, match=words):
            shown(path, premise)
