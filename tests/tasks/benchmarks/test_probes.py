"""Guards: isotropy, frequent tokens, length bias and WEAT against plain loops, and the probes' command.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_probes.py
"""

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from minbert import Encoder, Ragged
from minbert.encoder import pool
from tasks.benchmarks import probes, sets, space, weat
from tasks.benchmarks.encoders import Bank, Loaded, System
from tasks.contrastive.evaluation import unit

RNG = np.random.default_rng(8)


@pytest.fixture
def encoder(tiny: Path) -> Encoder:
    return Encoder.load(tiny, precision="fp32")


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_ranks_count_the_special_tokens_too(encoder: Encoder) -> None:
    rank = space.frequency_ranks(encoder, ["the cat", "the dog cat", "the the the"])
    the, cat, dog = (encoder.tokenizer.encode([word])[0][0] for word in ("the", "cat", "dog"))
    assert rank[the] == 0, "five times"
    assert {rank[encoder.tokenizer.cls], rank[encoder.tokenizer.sep]} == {1, 2}, "three times, once a text"
    assert (rank[cat], rank[dog]) == (3, 4) and sorted(rank) == list(range(len(rank)))


@pytest.mark.parametrize("pooler", space.LAYERS)
def test_the_mean_without_frequent_tokens(encoder: Encoder, pooler: str) -> None:
    texts = ["the cat sat", "the", "a happy dog runs under the tree"]
    rank = space.frequency_ranks(encoder, ["the the the the", "the cat"])
    ways = {str(k): space.mean_without(torch.from_numpy(rank), k, space.LAYERS[pooler]) for k in (0, 1, 3)}
    every = {**ways, "plain": partial(pool, pooler=pooler)}
    found = Bank(texts).add(Loaded("x", Path(), encoder, ()), every).vectors
    assert np.allclose(found["0"], found["plain"], atol=1e-6), "nothing left out is the pooler itself"
    for k in (1, 3):
        for place, text in enumerate(texts):
            ids = [encoder.tokenizer.cls, *encoder.tokenizer.encode([text])[0], encoder.tokenizer.sep]
            ragged = Ragged.from_lists([ids])
            with torch.no_grad():
                states = encoder.model.encode(encoder.model.embed(ragged), ragged)
            x = torch.stack([states[layer] for layer in space.LAYERS[pooler]]).mean(0).numpy()
            kept = [row for row, number in zip(x, ids, strict=True) if rank[number] >= k] or list(x)
            assert np.allclose(found[str(k)][place], np.mean(kept, axis=0), atol=1e-5)


def test_length_bias_is_the_change_of_each_cosine(encoder: Encoder) -> None:
    texts = [("the cat sat on the mat", "a dog"), ("a bird", "the dog runs under a tree"), ("the cat", "a sad cat")]
    pairs = sets.ScoredSet("x", list("abc"), texts, np.array([1.0, 3.0, 2.0]))
    bank = Bank(text for a, b in texts for text in (a, b, b + " . .")).add(Loaded("x", Path(), encoder, ("mean",)))
    plain = Encoder(encoder.model, encoder.tokenizer, "mean", precision="fp32")
    before = [cosine(*plain.encode(list(pair)).astype(np.float64)) for pair in texts]
    after = [cosine(*plain.encode([a, b + " . ."]).astype(np.float64)) for a, b in texts]
    system, draw = System("x", "mean"), {"seed": 2, "resamples": 50}
    found = space.length_shift(bank, system, encoder, pairs, " . .", **draw)
    values = {measure: value for measure, (value, _) in found.items()}
    assert (values["cosine"], values["cosine then"]) == pytest.approx((np.mean(before), np.mean(after)), abs=1e-6)
    assert values["lengths nearer"] == pytest.approx(after[0] - before[0], abs=1e-6), "the first pair alone"
    assert values["lengths apart"] == pytest.approx(np.mean([after[i] - before[i] for i in (1, 2)]), abs=1e-6)
    assert values["spearman then"] == pytest.approx(stats.spearmanr(after, pairs.gold).statistic)
    change, draws = np.subtract(after, before), found["change"][1]
    assert values["change"] == pytest.approx(change.mean(), abs=1e-6)
    assert change.min() - 1e-6 <= draws.min() < draws.max() <= change.max() + 1e-6
    value, draws = space.length_shift(bank, system, encoder, pairs, "", **draw)["change"]
    assert value == 0 and len(draws) and not draws.any()


def plain_weat(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Caliskan et al. 2017 word by word: effect size, and the exact one-sided p."""

    def s(w: np.ndarray) -> float:
        return sum(cosine(w, one) for one in a) / len(a) - sum(cosine(w, one) for one in b) / len(b)

    values = [s(w) for w in [*x, *y]]
    n, mean = len(x), sum(values) / len(values)
    spread = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    observed = sum(values[:n]) - sum(values[n:])
    every = [sum(values[i] for i in some) * 2 - sum(values) for some in combinations(range(2 * n), n)]
    return observed / n / spread, sum(one >= observed - 1e-9 for one in every) / len(every)


def test_weat(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, a, b = (RNG.normal(size=(n, 6)) for n in (5, 5, 4, 3))
    x += a.mean(0)
    expected = plain_weat(x, y, a, b)
    assert weat.association_test(*map(unit, (x, y, a, b))) == pytest.approx(expected, abs=1e-9)
    assert weat.association_test(*map(unit, (y, x, a, b)))[0] == pytest.approx(-expected[0])
    alike = np.ones((5, 6)) / 6**0.5
    assert np.isnan(weat.association_test(alike, alike, alike, alike)).all()
    monkeypatch.setattr(weat, "PARTITIONS", 200)  # fewer than there are: a sample by the seed
    first, again, other = (weat.association_test(*map(unit, (x, y, a, b)), seed=seed)[1] for seed in (0, 0, 1))
    assert first == again != other and first == pytest.approx(expected[1], abs=0.1)


def test_the_command(
    tiny: Path,
    tiny_copy: Callable[..., Path],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(weat, "PARTITIONS", 200)
    (tiny_copy(name="other") / "minbert.json").write_text('{"pooler": "max"}')
    more = f"--data {folder} --resamples 40 --out {tmp_path / 'out'}".split()
    probes.main(["--encoder", str(tmp_path / "other"), str(tiny), *more])
    found = json.loads((tmp_path / "out" / "probes.json").read_text())
    rows = {probe: found[probe]["results"] for probe in probes.PROBES}
    poolers = {probe: list(dict.fromkeys(row["pooler"] for row in rows[probe])) for probe in rows}
    every = ["max", Encoder.load(tiny).pooler]
    assert poolers["geometry"] == poolers["length"] == poolers["weat"] == every
    assert poolers["frequency"] == ["mean"], "neither is a mean of tokens"
    assert [row["removed"] for row in rows["frequency"]] == 2 * list(space.STEPS)
    assert len({row["set"] for row in rows["length"]}) == len(space.ADDED)
    for name, measure in {"geometry": "alignment", "length": "change"}.items():
        row = found[name]["differences"][0]
        assert row["low"] <= row["difference"] <= row["high"] and row["difference"] != 0
        values = [one["value"] for one in rows[name] if (one["measure"], one["set"]) == (measure, row["set"])]
        assert row["difference"] == pytest.approx(values[1] - values[0])
    assert "95% interval, paired" in capsys.readouterr().out
    assert len(found["contamination"]) == 2, "one for each encoder"
    page = (tmp_path / "out" / "probes.md").read_text()
    assert re.findall(r"\(([\w-]+\.svg)\)", page) == [path.name for path in (tmp_path / "out").glob("*.svg")]
    assert page.count(".svg") == 1 and "Length bias" in page
