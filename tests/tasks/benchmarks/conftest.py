"""A SentEval-like folder of sentences made here, small enough for a tiny random BERT, and its second encoder."""

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
MRPC_HEAD = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
RELATIONS = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")
GENERATOR = np.random.default_rng(3)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def sentences(count: int) -> list[str]:
    """Some of the sentences, drawn with replacement."""
    return [SENTENCES[index] for index in GENERATOR.integers(len(SENTENCES), size=count)]


def pairs(count: int) -> list[tuple[str, str]]:
    return list(zip(sentences(count), sentences(count), strict=True))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds `downstream/` and `zh/`."""
    base = tmp_path_factory.mktemp("senteval")

    def write(name: str, lines: list[str]) -> None:
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    for directory, subsets in senteval.STS.values():
        for count, subset in enumerate(subsets, start=8):
            scores = [f"{score:.3f}" for score in GENERATOR.uniform(0, 5, count)]
            write(f"downstream/{directory}/STS.input.{subset}.txt", [f"{a}\t{b}" for a, b in pairs(count)])
            write(f"downstream/{directory}/STS.gs.{subset}.txt", [*scores[:2], "", *scores[3:]])
    scored = [(i, score, *pair) for i, (score, pair) in enumerate(zip(GENERATOR.uniform(1, 5, 30), pairs(30)))]
    rows = [f"main\theadlines\t2014\t{i:04}\t{score:.2f}\t{a}\t{b}" for i, score, a, b in scored]
    write("downstream/STS/STSBenchmark/sts-test.csv", rows)
    ids = {2: "8850", 5: "4489"}  # two of the paper's examples
    rows = [f"{ids.get(i, i)}\t{a}\t{b}\t{score:.1f}\t{RELATIONS[i % 3]}" for i, score, a, b in scored[:24]]
    write("downstream/SICK/SICK_test_annotated.txt", [SICK_HEAD, *rows])
    for name in ("pos", "neg"):
        write(f"downstream/MR/rt-polarity.{name}", sentences(24))
    for split, count in (("train", 40), ("dev", 12), ("test", 16)):
        rows = [f"{text}\t{i % 2}" for i, text in enumerate(sentences(count))]
        write(f"downstream/SST/binary/sentiment-{split}", rows)
    for split in ("train", "test"):
        rows = [f"{i % 2}\t{i}\t{i}\t{a}\t{b}" for i, (a, b) in enumerate(pairs(20))]
        write(f"downstream/MRPC/msr_paraphrase_{split}.txt", [MRPC_HEAD, *rows])
    write("zh/LCQMC/test.txt", [f"{a}\t{b}\t{i % 2}" for i, (a, b) in enumerate(pairs(12))])
    return base
