"""Guards: triplets are scored by the frozen starting encoder, once; `show` prints a premise's triplets.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_scoring.py
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from minbert import UserError
from minbert.encoder import Encoder
from tasks.contrastive import __main__ as show
from tasks.contrastive import scoring
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import write_pairs
from tests.tasks.contrastive.formulas import cosine

TEXTS = [
    ("the cat sat on the mat", "a cat sat", "the dog runs"),
    ("the cat sat on the mat", "the cat is on a mat", "a bird sleeps"),
    ("who is happy ?", "what is the very happy dog ?", "the cat sat on the mat"),
    ("a bird sleeps under the tree", "a bird sleeps", "the bird is not sad"),
]


def score(
    encoder: Encoder, triplets: Examples, weights: str = "weights", rows: Any = range(4)
) -> dict[str, np.ndarray]:
    some = replace(triplets, cache=triplets.cache.subset(np.array(rows)))
    return scoring.similarities(encoder, some, weights)


def test_scores_are_cosines(
    encoder: Encoder, examples_of: Callable[..., Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout off, each distinct text of a block encoded once, and read from the cache later."""
    monkeypatch.setattr(scoring, "_BLOCK", 3)
    encoder.model.train()
    scores = score(encoder, examples_of(TEXTS))
    assert [texts for _, texts in calls] == [7, 3]
    again = score(encoder, examples_of(TEXTS))
    assert len(calls) == 2, "from the cache"
    np.testing.assert_equal(again, scores)
    for number, texts in enumerate(TEXTS):
        anchor, positive, negative = encoder.encode(list(texts))
        assert scores["positive"][number] == pytest.approx(cosine(anchor, positive), abs=1e-6)
        assert scores["negative"][number] == pytest.approx(cosine(anchor, negative), abs=1e-6)


def test_cache_key_covers_all_inputs(
    encoder: Encoder, examples_of: Callable[..., Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    triplets = examples_of(TEXTS, max_length=16)
    score(encoder, triplets)
    score(encoder, triplets, "other weights")
    score(encoder, triplets, rows=[0, 1])
    score(encoder, examples_of(TEXTS, max_length=8))
    score(encoder, examples_of([*TEXTS[1:], TEXTS[0]], max_length=16))
    for attribute, value in (("pooler", "cls"), ("precision", "bf16")):
        setattr(encoder, attribute, value)
        score(encoder, triplets)
    monkeypatch.setattr("torch.get_num_threads", lambda: 99)
    score(encoder, triplets)
    assert len(calls) == 8


def test_scores_are_of_the_same_data(tmp_path: Path) -> None:
    save_file({"loss": np.array([0.5, 0.25])}, tmp_path / scoring.SCORES_FILE)
    more = {"loss": np.array([0.4, 0.3, 0.0])}
    np.testing.assert_equal(scoring.scores_of_run(tmp_path, ("loss",), 3, torch.device("cpu"), lambda: more), more)


def test_easiest_triplets_are_shown_first() -> None:
    texts = [("a", "b", "c"), ("a", "d", "e"), ("a", "f", "g")]
    table = show.table(texts, np.array([0.5, 0.9, 0.4]), np.array([0.45, 0.1, 0.6]), margin=0.2)
    assert table.rows.values.tolist() == [
        ["d", "e", "0.900", "0.100", "0.800", "easy"],
        ["b", "c", "0.500", "0.450", "0.050", "semi-hard"],
        ["f", "g", "0.400", "0.600", "−0.200", "hard"],
    ]


def test_show_prints_triplets_of_premise(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All triplets of labelled pairs, whatever the premise's case and spaces; those of a file of triplets."""
    pairs = tmp_path / "pairs.tsv"
    triplets = tmp_path / "triplets.csv"
    positives = tmp_path / "positives.csv"
    rows = [("a cat", "entailment"), ("the dog runs", "contradiction"), ("a bird", "contradiction")]
    write_pairs(pairs, [("the cat sat", *row) for row in rows])
    triplets.write_text("anchor,positive,negative\nthe cat sat,a cat,the dog runs\n")
    positives.write_text("anchor,positive\nthe cat sat,a cat\n")

    def printed(path: Path, premise: str) -> str:
        flags = ["--triplets", str(path), "--weights", str(tiny), "--pooler", "mean"]
        monkeypatch.setattr("sys.argv", ["show", "show", "--premise", premise, *flags])
        show.main()
        return capsys.readouterr().out

    assert "2 triplets: " in printed(pairs, "The  cat sat")
    assert "1 triplet: " in printed(triplets, "the cat sat")
    with pytest.raises(UserError, match="'nothing'"):
        printed(pairs, "nothing")
    with pytest.raises(UserError, match="without a hard negative"):
        printed(positives, "the cat sat")
