"""A SentEval-like folder of sentences made here, small enough for a tiny random BERT, and its second encoder."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tasks.readers import senteval

WHO = ("the cat", "a dog", "the happy bird", "a very sad cat", "the dog")
WHAT = ("sat", "sleeps", "runs", "is not happy", "is sad")
WHERE = ("on the mat.", "under a tree.", "on a tree!", "under the mat.")
SENTENCES = [" ".join(parts) for parts in product(WHO, WHAT, WHERE)]
SICK_HEAD = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
RELATIONS = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")


def sentences(seed: int, count: int) -> list[str]:
    """Some of the sentences, drawn with replacement."""
    chosen = np.random.default_rng(seed).integers(len(SENTENCES), size=count)
    return [SENTENCES[place] for place in chosen]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds `downstream/` and `zh/`."""
    base = tmp_path_factory.mktemp("senteval")
    for number, (name, content) in enumerate(_files()):
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content(number), encoding="utf-8")
    return base


def _files() -> Iterator[tuple[str, Callable[[int], str]]]:
    for place, subsets in senteval.STS.values():
        for order, subset in enumerate(subsets):
            yield f"downstream/{place}/STS.input.{subset}.txt", lambda n, order=order: _pairs(7 + n // 2, 8 + order)
            yield f"downstream/{place}/STS.gs.{subset}.txt", lambda n, order=order: _gold(n, 8 + order)
    yield "downstream/STS/STSBenchmark/sts-test.csv", _stsb
    yield "downstream/SICK/SICK_test_annotated.txt", _sick
    for name in ("MR/rt-polarity.pos", "MR/rt-polarity.neg"):
        yield f"downstream/{name}", lambda n: "\n".join(sentences(n, 24)) + "\n"
    for split, count in (("train", 40), ("dev", 12), ("test", 16)):
        yield f"downstream/SST/binary/sentiment-{split}", lambda n, count=count: _labelled(n, count)
    for split in ("train", "test"):
        yield f"downstream/MRPC/msr_paraphrase_{split}.txt", _mrpc
    yield "zh/LCQMC/test.txt", lambda n: "".join(f"{a}\t{b}\t{i % 2}\n" for i, (a, b) in enumerate(_two(n, 12)))


def _two(seed: int, count: int) -> list[tuple[str, str]]:
    return list(zip(sentences(seed, count), sentences(seed + 1000, count), strict=True))


def _pairs(seed: int, count: int) -> str:
    return "".join(f"{a}\t{b}\n" for a, b in _two(seed, count))


def _gold(seed: int, count: int) -> str:
    scores = np.random.default_rng(seed).uniform(0, 5, count)
    return "".join("\n" if i == 2 else f"{score:.3f}\n" for i, score in enumerate(scores))


def _stsb(seed: int) -> str:
    scores = np.random.default_rng(seed).uniform(0, 5, 30)
    return "".join(
        f"main\theadlines\t2014\t{i:04}\t{scores[i]:.2f}\t{a}\t{b}\n" for i, (a, b) in enumerate(_two(seed, 30))
    )


def _sick(seed: int) -> str:
    scores = np.random.default_rng(seed).uniform(1, 5, 24)
    ids = {2: "8850", 5: "4489"}  # two of the paper's examples
    pairs = enumerate(_two(seed, 24))
    rows = [f"{ids.get(i, i)}\t{a}\t{b}\t{scores[i]:.1f}\t{RELATIONS[i % 3]}" for i, (a, b) in pairs]
    return "\n".join([SICK_HEAD, *rows]) + "\n"


def _labelled(seed: int, count: int) -> str:
    return "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(sentences(seed, count)))


def _mrpc(seed: int) -> str:
    rows = [f"{i % 2}\t{i}\t{i}\t{a}\t{b}" for i, (a, b) in enumerate(_two(seed, 20))]
    return "\n".join(["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows]) + "\n"
