"""Guards: the difficulty of a triplet is the loss of a run's similarity head, and the script takes it from there.

python -m pytest --import-mode=importlib tests/tasks/test_difficulty.py
"""

from pathlib import Path

import pytest

from minbert import UserError, token_cache
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from tasks import difficulty, predict
from tasks.examples import Examples
from tests.tasks.test_predict import finished_run

TRIPLETS = [
    ("A dog runs.", "An animal moves.", "The dog sleeps."),
    ("who", "who", "a bird's tree"),
    ("Two men eat.", "Men are eating.", "Nobody eats."),
]


@pytest.mark.parametrize("pairs", ["bi", "cross"])
def test_losses_are_those_of_single_pairs(tiny: Path, tmp_path: Path, pairs: str) -> None:
    run = finished_run(tmp_path / "run", tiny, pairs)
    tokenizer = Tokenizer.load(tiny)
    cache = token_cache.in_memory([Row("", TRIPLETS[2]), Row("", TRIPLETS[0])], tokenizer)
    triplets = Examples(cache, tokenizer, 24)
    predictor = predict.load(run)
    expected = []
    for anchor, positive, negative in (TRIPLETS[2], TRIPLETS[0]):
        (similar,) = predictor.predict("sts", [(anchor, positive)])
        (unrelated,) = predictor.predict("sts", [(anchor, negative)])
        expected.append((similar - 5.0) ** 2 + unrelated**2)
    (losses,) = difficulty.similarity_losses(run, triplets).values()
    assert losses == pytest.approx(expected, rel=1e-4)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_run_without_the_head(tiny: Path, tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", tiny, tasks="sst")
    with pytest.raises(UserError, match="the run has no head for sts"):
        difficulty.input_files(run)
