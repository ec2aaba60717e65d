"""Guards: alignment, frequent tokens and length bias against plain loops, and the probes' command.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_probes.py
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from minbert import Encoder, Ragged
from minbert.encoder import pool
from tasks.benchmarks import common, probes, sets, weat
from tasks.benchmarks.common import EmbeddingCache, NamedEncoder
from tests.e2e.conftest import SAMPLE
from tests.tasks.contrastive.formulas import cosine


@pytest.fixture
def encoder(tiny: Path) -> Encoder:
    return Encoder.load(tiny, precision="fp32")


def mean_cosine(encoder: Encoder, first: str, second: str) -> float:
    """Of the mean vectors of two texts."""
    plain = Encoder(encoder.model, encoder.tokenizer, "mean", precision="fp32")
    u, v = plain.encode([first, second]).astype(np.float64)
    return cosine(u, v)


def test_ranks_count_special_tokens(encoder: Encoder) -> None:
    rank = probes.frequency_ranks(encoder, ["the cat", "the dog cat", "the the the"])
    ((the,), (cat,), (dog,)) = encoder.tokenizer.encode(["the", "cat", "dog"])
    # five times; [CLS] and [SEP] three times, once a text
    assert rank[the] == 0
    assert {rank[encoder.tokenizer.cls], rank[encoder.tokenizer.sep]} == {1, 2}
    assert (rank[cat], rank[dog]) == (3, 4)
    assert sorted(rank) == list(range(len(rank)))


@pytest.mark.parametrize("pooler", probes.LAYERS)
def test_mean_without_frequent_tokens(encoder: Encoder, pooler: str) -> None:
    texts = ["the cat sat", "the", "a happy dog runs under the tree"]
    rank = probes.frequency_ranks(encoder, ["the the the the", "the cat"])
    layers = probes.LAYERS[pooler]
    pools = {str(k): probes.mean_without(torch.from_numpy(rank), k, layers) for k in (0, 1, 3)}
    pools["plain"] = partial(pool, pooler=pooler)
    vectors = common.encode_with_pools(encoder, texts, pools)
    # nothing left out is the pooler itself
    assert np.allclose(vectors["0"], vectors["plain"], atol=1e-6)
    for k in (1, 3):
        for index, text in enumerate(texts):
            ids = [encoder.tokenizer.cls, *encoder.tokenizer.encode([text])[0], encoder.tokenizer.sep]
            ragged = Ragged.from_lists([ids])
            with torch.no_grad():
                states = encoder.model.encode(encoder.model.embed(ragged), ragged)
            x = torch.stack([states[layer] for layer in layers]).mean(0).numpy()
            kept = [row for row, token in zip(x, ids, strict=True) if rank[token] >= k]
            assert np.allclose(vectors[str(k)][index], np.mean(kept or list(x), axis=0), atol=1e-5)


def test_length_bias(encoder: Encoder) -> None:
    pairs = [("the cat sat on the mat", "a dog"), ("a bird", "the dog runs under a tree"), ("the cat", "a sad cat")]
    scored = sets.ScoredSet("x", list("abc"), pairs, np.array([1.0, 3.0, 2.0]))
    named = NamedEncoder("x", "mean", Path(), encoder)
    cache = EmbeddingCache([named])
    before = [mean_cosine(encoder, a, b) for a, b in pairs]
    after = [mean_cosine(encoder, a, b + " . .") for a, b in pairs]
    change = np.subtract(after, before)
    scores = {}
    for score in probes.length_shift(cache, named, scored, " . .", seed=2, resamples=50):
        scores[score.measure] = score
    assert scores["cosine"].value == pytest.approx(np.mean(before), abs=1e-6)
    assert scores["cosine after"].value == pytest.approx(np.mean(after), abs=1e-6)
    assert scores["change"].value == pytest.approx(np.mean(change), abs=1e-6)
    # only in the first pair is the second sentence the shorter one
    assert scores["lengths nearer"].value == pytest.approx(change[0], abs=1e-6)
    assert scores["lengths apart"].value == pytest.approx(np.mean(change[1:]), abs=1e-6)
    assert scores["spearman after"].value == pytest.approx(stats.spearmanr(after, scored.gold).statistic)
    samples = scores["change"].samples
    assert change.min() - 1e-6 <= samples.min() < samples.max() <= change.max() + 1e-6


def test_alignment_is_of_alike_pairs(encoder: Encoder, tmp_path: Path) -> None:
    pairs = [("the cat", "a dog"), ("a bird", "the dog"), ("the cat", "a sad cat")]
    scored = sets.ScoredSet("x", list("abc"), pairs, np.array([4.5, 4.0, 4.2]))
    named = NamedEncoder("x", "mean", Path(), encoder)
    options = common.parse(common.parser("probes", ""), ["--encoder", "x", "--out", str(tmp_path)])
    section = probes.probe_geometry(EmbeddingCache([named]), [named], scored, options)
    # of unit vectors |u - v|^2 = 2 - 2 cos(u, v)
    distances = [2 - 2 * mean_cosine(encoder, a, b) for a, b in (pairs[0], pairs[2])]
    alignment = section.content["results"][0]
    assert (alignment["rows"], alignment["value"]) == (2, pytest.approx(np.mean(distances), abs=1e-6))


def test_command(tiny: Path, tiny_copy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weat, "PARTITIONS", 200)
    (tiny_copy(name="other") / "minbert.json").write_text('{"pooler": "max"}')
    out = tmp_path / "out"
    flags = f"--data {SAMPLE} --resamples 40 --out {out}"
    probes.main(["--encoder", str(tmp_path / "other"), str(tiny), *flags.split()])
    content = json.loads((out / "probes.json").read_text())
    assert content["complete"]
    poolers = {}
    for probe in probes.PROBES:
        poolers[probe] = list(dict.fromkeys(row["pooler"] for row in content[probe]["results"]))
    own_poolers = ["max", Encoder.load(tiny).pooler]
    assert poolers["geometry"] == poolers["length"] == poolers["weat"] == own_poolers
    # neither pooler is a mean of tokens
    assert poolers["frequency"] == ["mean"]
    assert [row["removed"] for row in content["frequency"]["results"]] == 2 * list(probes.REMOVED)
    for probe in ("geometry", "length"):
        row = content[probe]["differences"][0]
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["difference"] != 0
    assert sorted(path.name for path in out.iterdir()) == ["probes-frequent-tokens.svg", "probes.json", "probes.md"]
