"""What the tests of stage one share: triplets and pairs over the tiny BERT's vocabulary, and a model to train."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert import token_cache
from minbert.bert import BertModel
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from tasks.contrastive.draws import Draw
from tasks.examples import Pair, Single, Triplet

ANCHORS = ["the cat sat on a mat", "a dog runs", "the bird is happy", "who is sad ?", "a tree", "the dog sleeps"]
POSITIVES = ["a cat sat", "the dog runs on", "the bird is not sad", "who is not happy ?", "the tree .", "a dog sleeps"]
NEGATIVES = ["a cat runs", "the dog sleeps", "the bird is sad", "what is happy ?", "the mat", "the dog runs !"]


@pytest.fixture
def view(tiny: Path, tmp_path: Path) -> Callable[..., Any]:
    """A function that makes examples of texts, rows of 1, 2 or 3, with labels."""

    def make(*columns: list[str], labels: list[float] | None = None) -> Any:
        texts = list(zip(*columns, strict=True))
        values = labels or [float("nan")] * len(texts)
        rows = [Row(str(number), row, value) for number, (row, value) in enumerate(zip(texts, values, strict=True))]
        source = tmp_path / f"rows-{len(list(tmp_path.iterdir()))}.txt"
        source.write_text(repr(rows))
        tokenizer = Tokenizer.load(tiny)
        cache = token_cache.load(source, lambda _: iter(rows), "rows of a test", len(columns), tokenizer)
        kind = {1: Single, 2: Pair, 3: Triplet}[len(columns)]
        return kind(cache, tokenizer.cls, tokenizer.sep, 64)

    return make


@pytest.fixture
def triplets(view: Callable[..., Any]) -> Triplet:
    """Six triplets."""
    found: Triplet = view(ANCHORS, POSITIVES, NEGATIVES)
    return found


@pytest.fixture
def bert(tiny: Path) -> BertModel:
    """The tiny BERT."""
    return BertModel.from_pretrained(tiny)


def of_batch(seed: int, epoch: int, keys: Sequence[int] | np.ndarray) -> Draw:
    """The draws of a batch that holds the same sentences twice: all of view 0, then all of view 1."""
    rows = np.asarray(keys, dtype=np.int64)
    return Draw(seed, epoch, np.tile(rows, 2), np.repeat([0, 1], len(rows)))
