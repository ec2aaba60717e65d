"""Guards: settings become the right steps: who scores and is cached, in which order, how many updates; `show` runs.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_pace.py
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert import UserError
from minbert.encoder import Encoder
from tasks.contrastive import __main__ as show
from tasks.contrastive import curriculum, scoring
from tasks.contrastive.curriculum import Paced
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples

SUBJECTS = ("the cat", "a very happy dog", "the bird", "who", "a sad cat under the tree")
VERBS = ("sleeps", "runs on", "is not sad", "sat under a tree", "is happy ?")
ANCHORS = [f"{subject} {verb}" for subject in SUBJECTS for verb in VERBS]
POSITIVES = [f"{verb} {subject}" for verb in VERBS for subject in SUBJECTS]
NEGATIVES = [f"not {VERBS[(n + 2) % 5]} {SUBJECTS[n % 4]}" for n in range(25)]
COUNT = len(ANCHORS)
TECHNIQUES = ("groups", "entailment", "contradiction")


@pytest.fixture
def examples(examples_of: Callable[..., Examples]) -> Examples:
    return examples_of([*zip(ANCHORS, POSITIVES, NEGATIVES, strict=True)], max_length=32)


def settings(**more: Any) -> ContrastiveSettings:
    usual = {"epochs": 3, "batch_size": 4, "power": 1.0, "seed": 2, "precision": "fp32", "pooler": "mean"}
    return ContrastiveSettings.of(**(usual | more))


def paced(how: ContrastiveSettings, encoder: Encoder, examples: Any, weights_sha256: str) -> Paced:
    found = scoring.score(how, encoder, examples, weights_sha256)
    order, groups = curriculum.sort(how.objective.curriculum, found, how.training.seed)
    return curriculum.pace(how.objective.curriculum, how.training, order, groups)


def steps(made: Paced) -> list[list[int]]:
    return [made.plan.at(step).rows.tolist() for step in range(made.plan.total)]


def cosines(folder: Path, pooler: str) -> tuple[np.ndarray, np.ndarray]:
    """cos(anchor, positive), cos(anchor, hard negative) of each row, in float64, under a folder's encoder."""
    encoder = Encoder.load(folder, pooler=pooler, precision="fp32")
    sides = [encoder.encode(texts).astype(np.float64) for texts in (ANCHORS, POSITIVES, NEGATIVES)]
    anchor, positive, negative = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    return (anchor * positive).sum(1), (anchor * negative).sum(1)


def test_a_random_order_keeps_the_pacing_and_asks_no_encoder(
    encoder: Encoder, examples: Any, calls: list[tuple[str, int]]
) -> None:
    plain = paced(settings(order="none"), encoder, examples, "w")
    assert plain.plan.lengths == [math.ceil(COUNT / 4)] * 3 and plain.manifest_entry() is None
    for pacing in ("epoch", "step"):
        made = paced(settings(order="random", pacing=pacing), encoder, examples, "w")
        assert made.plan.lengths == [math.ceil(n / 4) for n in (COUNT // 3, 2 * COUNT // 3, COUNT)]
    equal = paced(settings(order="random", equal_steps=True), encoder, examples, "w")
    assert equal.plan.lengths == [math.ceil(COUNT / 4)] * 3
    made = paced(settings(order="random"), encoder, examples, "w")
    seen = [
        {row for step in range(end - length, end) for row in made.plan.at(step).rows}
        for end, length in zip(made.plan.ends, made.plan.lengths, strict=True)
    ]
    assert [len(rows) for rows in seen] == [COUNT // 3, 2 * COUNT // 3, COUNT]
    assert seen[0] < seen[1] and seen[0] != set(range(COUNT // 3)), "a prefix that grows, of a random order"
    assert not calls and made.groups is None
    assert steps(paced(settings(order="random", seed=3), encoder, examples, "w")) != steps(made)


@pytest.mark.parametrize("technique", TECHNIQUES)
@pytest.mark.parametrize("order", ["curriculum", "anti"])
def test_what_is_easy_comes_first_by_every_technique(
    encoder: Encoder, examples: Any, tiny: Path, technique: str, order: str
) -> None:
    positive, negative = cosines(tiny, "mean")
    gap = positive - negative
    margin = float(np.quantile(gap, 0.7))
    hardness = {
        "groups": np.select([gap > margin, gap > 0], [0, 1], 2),
        "entailment": -positive,
        "contradiction": negative,
    }[technique]
    how = settings(technique=technique, order=order, margin=margin, within="sorted", epochs=1, batch_size=5)
    rows = [row for batch in steps(paced(how, encoder, examples, "w")) for row in batch]
    assert sorted(rows) == list(range(COUNT))
    found = hardness[rows] if order == "curriculum" else hardness[rows][::-1]
    assert (np.diff(found) >= -1e-6).all() and found[0] < found[-1]


def test_scores_are_the_trained_encoders_and_a_second_start_reads_them(
    encoder: Encoder, examples: Any, tiny: Path, calls: list[tuple[str, int]]
) -> None:
    made = paced(settings(), encoder, examples, "w")
    assert made.groups is not None and {pooler for pooler, _ in calls} == {"mean"}
    found = scoring.score(settings(), encoder, examples, "w").cosines
    positive, negative = cosines(tiny, "mean")
    np.testing.assert_allclose(found.positive, positive, atol=1e-5)
    np.testing.assert_allclose(found.negative, negative, atol=1e-5)
    calls.clear()
    assert steps(paced(settings(), encoder, examples, "w")) == steps(made) and not calls
    paced(settings(pooler="cls", projection="kept"), Encoder(encoder.model, encoder.tokenizer, "pooler"), examples, "v")
    assert {pooler for pooler, _ in calls} == {"cls"}, "a projection that starts from random weights does not score"
    paced(settings(), encoder, examples, "other weights")
    assert calls[-1][0] == "mean", "other weights are scored anew"


def test_a_limit_scores_and_counts_the_rows_it_draws(
    encoder: Encoder, examples: Any, tiny: Path, calls: list[tuple[str, int]]
) -> None:
    how = settings(limit=7, technique="contradiction", within="sorted", epochs=1)
    made = paced(how, encoder, examples, "w")
    rows = [row for batch in steps(made) for row in batch]
    assert calls[0][1] <= 3 * 7
    positive, negative = cosines(tiny, "mean")
    gap = positive - negative
    assert rows == sorted(rows, key=lambda row: negative[row]) and len(set(rows)) == 7
    counts = made.manifest_entry()
    easy, hard = int((gap[rows] > how.objective.margin).sum()), int((gap[rows] <= 0).sum())
    assert (counts["easy"], counts["semi-hard"], counts["hard"]) == (easy, 7 - easy - hard, hard)


TEXTS = [
    ("the cat sat on the mat", "a cat sat", "the dog runs"),
    ("the cat sat on the mat", "the cat is on a mat", "a bird sleeps"),
    ("who is happy ?", "what is the very happy dog ?", "the cat sat on the mat"),
    ("a bird sleeps under the tree", "a bird sleeps", "the bird is not sad"),
]
LONG = ("the dog runs " * 9, "a dog runs", "the dog sleeps on the mat")


def similarities(encoder: Encoder, made: Examples, weights: str) -> scoring.Similarities:
    return scoring.similarities(encoder, made, weights, np.arange(len(made)))


def test_blocks_of_triplets_change_no_cosine(
    encoder: Encoder, examples_of: Callable[..., Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = examples_of(TEXTS, max_length=16)
    whole = similarities(encoder, made, "whole")
    monkeypatch.setattr(scoring, "_BLOCK", 3)
    parts = similarities(encoder, made, "in blocks")
    np.testing.assert_allclose([parts.positive, parts.negative], [whole.positive, whole.negative], atol=1e-6)
    assert [texts for _, texts in calls] == [9, 7, 3], "each text of a block once"


def test_what_the_numbers_depend_on_is_in_the_key(
    encoder: Encoder, examples_of: Callable[..., Any], calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*TEXTS, LONG]
    made = examples_of(texts, max_length=16)
    similarities(encoder, made, "weights")
    similarities(encoder, made, "other weights")
    similarities(encoder, examples_of(texts, max_length=8), "weights")
    similarities(encoder, examples_of([*texts[1:], texts[0]], max_length=16), "weights")
    for place, value in (("pooler", "cls"), ("precision", "bf16")):
        setattr(encoder, place, value)
        similarities(encoder, made, "weights")
    monkeypatch.setattr("torch.get_num_threads", lambda: 99)
    similarities(encoder, made, "weights")
    assert len(calls) == 7


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
    for path, premise, words in ((pairs, "nothing", "'nothing'"), (two, "the cat sat", "without a hard negative")):
        with pytest.raises(UserError, match=words):
            shown(path, premise)
