"""Guards: vectors by several poolers at once, averages and paired differences of scores, names, training data.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_common.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from minbert import Encoder
from minbert.pooling import NAMES
from tasks.benchmarks import common
from tasks.benchmarks.common import EmbeddingCache, NamedEncoder, Score


def test_poolers_at_once(tiny: Path) -> None:
    """In several batches, of which large ones end in one more sentence."""
    encoder = Encoder.load(tiny, precision="fp32")
    texts = ["who?", *(f"the cat sat {'very ' * (number % 50)}sad {number}" for number in range(200))]
    named = {name: NamedEncoder("x", name, tiny, encoder) for name in NAMES}
    cache = EmbeddingCache(list(named.values()))
    cache.raw(named["cls"], texts[:2])  # the rest is encoded when it is asked for
    for name in NAMES:
        alone = Encoder.load(tiny, pooler=name, precision="fp32").encode([*texts, texts[0]])
        assert np.allclose(cache.raw(named[name], [*texts, texts[0]]), alone, atol=2e-6), name


def test_averages_and_differences(tiny: Path) -> None:
    encoder = Encoder.load(tiny)
    first = NamedEncoder("a", "mean", tiny, encoder)
    other = NamedEncoder("b", "mean", tiny, encoder)
    samples = np.arange(100.0)
    scores = []
    for named, value in ((first, 0.5), (other, np.nan)):
        scores.append(Score(named, "spearman", "x", value, samples))
        scores.append(Score(named, "spearman", "y", 0.7 if named is first else 0.4, 3 * samples))
    means = common.averages(scores, "spearman")
    assert means[0].set == "avg." and means[0].value == pytest.approx(0.6)
    assert np.array_equal(means[0].samples, 2 * samples)
    assert np.isnan(means[1].value)
    rows = common.as_json(common.differences([*scores, *means], [first, other], "spearman"))
    differences = [(row["set"], row["difference"]) for row in rows]
    assert differences == [("x", None), ("y", pytest.approx(-0.3)), ("avg.", None)]
    row = common.as_json(common.frame_of(means))[0]
    assert (row["low"], row["high"]) == tuple(np.percentile(2 * samples, (2.5, 97.5)))


def test_pooler_and_name_of_run(
    tiny_copy: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # results go to runs/benchmarks by default
    folders = [tiny_copy(name=f"runs/{name}/cbcl/encoder") for name in ("a", "b")]
    for folder in folders:
        (folder / "minbert.json").write_text('{"pooler": "avg-first-last"}')
    options = common.parse(common.parser("sts_suite", ""), ["--encoder", str(folders[0].parent), str(folders[1])])
    first, second = common.load_encoders(options)
    assert first.pooler == second.pooler == "avg-first-last"
    assert (first.folder, second.folder) == tuple(folders)
    assert (first.name, second.name) == ("a/cbcl", "b/cbcl")


def test_training_data_of_run(tiny: Path, tmp_path: Path) -> None:
    named = NamedEncoder("run", "mean", tmp_path / "encoder", Encoder.load(tiny))
    assert common.training_data(named) == ""
    data = {name: {"file": f"d/{name}.csv", "sha256": "a", "kept": 1} for name in ("train", "sts_dev")}
    manifest = {"settings": {}, "data": data, "weights": {"folder": "/packages/all_MiniLM_L6_v2"}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    text = common.training_data(named)
    assert all(name in text for name in ("train.csv", "sts_dev.csv", "all-MiniLM-L6-v2"))

    # tasks may have any name
    tasks = {name: {"file": f"{name}.csv", "sha256": "a"} for name in ("dev", "test")}
    manifest = {"settings": {}, "all_settings": {"tasks": "dev,test"}, "data": {"train": tasks, "test": tasks}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert common.training_data(named) == "trained on dev.csv, test.csv"
