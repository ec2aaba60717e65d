"""Guards: the STS suite end to end on a folder made here: numbers by hand, files, poolers; known numbers of MiniLM.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_sts_suite.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_sts_suite.py -m realdata
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from minbert import Encoder, UserError
from minbert.pooling import NAMES
from tasks.benchmarks import encoders, options, results, sets, sts_suite
from tasks.benchmarks.encoders import System


def scored(out: Path) -> Any:
    return json.loads((out / "sts.json").read_text())


def values(found: Any, measure: str, pooler: str = "mean") -> dict[str, float]:
    """The numbers of one measure by set."""
    return {
        row["set"]: row["value"] for row in found["results"] if (row["measure"], row["pooler"]) == (measure, pooler)
    }


def plain_cosines(folder: Path, pooler: str, pairs: list[tuple[str, str]]) -> np.ndarray:
    encoder = Encoder.load(folder, pooler=pooler, precision="fp32")
    first, second = (encoder.encode([pair[side] for pair in pairs]).astype(np.float64) for side in (0, 1))
    return np.array([a @ b / np.sqrt((a @ a) * (b @ b)) for a, b in zip(first, second, strict=True)])


@pytest.fixture(scope="module")
def done(tiny: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_suite(tiny, folder, tmp_path_factory.mktemp("sts"))


def run_suite(tiny: Path, folder: Path, place: Path) -> Path:
    """The folder `out` that the suite writes where it is started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        sts_suite.main(f"--encoder {tiny} --pooler mean,cls --data {folder} --resamples 20 --out out".split())
    return place / "out"


def test_numbers_are_those_of_a_plain_computation(tiny: Path, folder: Path, done: Path) -> None:
    found = scored(done)
    for one in sets.read(folder, ["STS13", "SICK"]):
        for pooler in ("mean", "cls"):
            cosines = plain_cosines(tiny, pooler, one.pairs)
            for metric, function in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
                value = values(found, metric, pooler=pooler)[one.name]
                assert value == pytest.approx(function(cosines, one.gold).statistic, abs=1e-4)
    every = values(found, "spearman")
    assert list(every) == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "avg."]
    assert every["avg."] == pytest.approx(np.mean([every[name] for name in every if name != "avg."]))
    for row in found["results"]:
        if row["measure"] == "spearman":
            assert row["low"] < row["high"]


def test_sentence_transformers_evaluator_as_documented_gives_the_same_spearman(
    tiny: Path, folder: Path, done: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    for ours, here in (('"DIR"', repr(str(folder))), ('"runs/cbcl/encoder"', f'{str(tiny)!r}, device="cpu"')):
        assert ours in code
        code = code.replace(ours, here)
    exec(code, {})
    theirs = float(capsys.readouterr().out)
    assert values(scored(done), "spearman")["STS-B"] == pytest.approx(theirs, abs=1e-6)


def test_sick_by_relation_and_the_papers_contradictions(tiny: Path, folder: Path, done: Path) -> None:
    part = sets.read(folder, ["SICK"])[0]
    cosines, found = plain_cosines(tiny, "mean", part.pairs), scored(done)["sick"]
    rows = [row for row in range(24) if row % 3 == 2]  # the relations go round in the folder made here
    (group,) = (one for one in found["relations"] if one["relation"] == "contradiction")
    assert group["pairs"] == 8 and group["human score"] == pytest.approx(np.mean(part.gold[rows]))
    assert group[f"cosine ({tiny.name}, mean)"] == pytest.approx(np.mean(cosines[rows]), abs=1e-5)
    examples = [part.ids.index("4489"), part.ids.index("8850")]  # in the order of the paper's table
    assert [one["human score"] for one in found["examples"]] == part.gold[examples].tolist()
    assert [(one["sentence 1"], one["sentence 2"]) for one in found["examples"]] == [
        part.pairs[row] for row in examples
    ]
    drawn = (done / "sts-sick-scatter.svg").read_text()
    ticks = [float(text) for text in re.findall(r">([\d.]+)</text>", drawn)]
    assert "human score / 5" in drawn and ticks and max(ticks) <= 1, "scores from 1 to 5 are shown as fifths"


@pytest.mark.filterwarnings("error")
def test_the_same_command_writes_the_same_bytes(tiny: Path, folder: Path, done: Path, tmp_path: Path) -> None:
    first, again = (
        {path.name: path.read_bytes() for path in out.iterdir()} for out in (done, run_suite(tiny, folder, tmp_path))
    )
    assert first == again and len(first) >= 3


def test_all_poolers_at_once_agree_with_one_at_a_time(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder.load(tiny, precision="fp32")
    monkeypatch.setattr(encoder, "batches", partial(encoder.batches, batch_size=2))
    texts = ["the cat sat on the mat", "a dog", "the dog sleeps under a tree!", "who?"]
    bank = encoders.Bank(texts).add(encoders.Loaded("x", tiny, encoder, NAMES))
    for name in NAMES:
        alone = Encoder.load(tiny, pooler=name, precision="fp32").encode(texts)
        assert np.allclose(bank.raw(System("x", name), texts), alone, atol=2e-6), name


def test_results_are_written_before_they_are_printed(
    tiny: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*texts: str, **how: str) -> None:
        raise BrokenPipeError  # as in `... | head`

    monkeypatch.setattr(results, "print", closed, raising=False)
    with pytest.raises(BrokenPipeError):
        sts_suite.main(f"--encoder {tiny} --data {folder} --sets STS13 --resamples 0 --out {tmp_path}".split())
    assert {path.name for path in tmp_path.iterdir()} >= {"sts.json", "sts.md"}


def test_chinese_sets(tiny: Path, folder: Path, tmp_path: Path) -> None:
    sts_suite.main(f"--encoder {tiny} --data {folder} --sets LCQMC --resamples 0 --out {tmp_path}".split())
    found = scored(tmp_path)
    assert found["sets"] == {"LCQMC": {"pairs": 12, "skipped": 0, "file": "LCQMC/test.txt"}}
    assert {row["low"] for row in found["results"]} == {None}
    assert sets.named("en") == list(sets.ENGLISH) and sets.named("zh") == list(sets.CHINESE)
    beside, inside = (sets.read(folder / name, ["LCQMC"])[0].pairs for name in ("senteval", "zh"))
    assert len(beside) == 12 and inside == beside


def test_the_folder_s_own_pooler_is_the_default_and_a_run_stands_for_its_encoder(
    tiny_copy: Callable[..., Path], tmp_path: Path
) -> None:
    encoder = tiny_copy(name="runs/cbcl/encoder")
    (encoder / "minbert.json").write_text('{"pooler": "avg-first-last"}')
    given = options.parser("sts_suite", "").parse_args(f"--encoder {encoder.parent} {encoder}".split())
    first, second = encoders.load(given)
    assert first.poolers == second.poolers == ("avg-first-last",) and first.folder == encoder
    assert (first.name, second.name) == (str(encoder.parent), str(encoder)), "two of one name are shown by their paths"
    assert encoders.short_names([str(encoder), "org/model"]) == ["cbcl", "model"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--sets", "STS17"], "--sets: 'STS17' is not one of en, zh, STS12"),
        (["--data", "/nowhere"], "--data /nowhere: no such folder"),
        (["--device", "abacus"], "--device abacus: not a device"),
        (["--out", "/proc/results"], "--out /proc/results/sts.json: no file can be written there"),
        (["--sets", "ATEC"], "zh: no test file of ATEC (in ATEC or ATEC_CCKS)"),
    ],
)
def test_mistakes_are_one_sentence(tiny: Path, folder: Path, more: list[str], words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        sts_suite.main(["--encoder", str(tiny), "--data", str(folder), *more])
    assert "\n" not in str(caught.value)


def test_an_average_is_undefined_where_a_set_is_and_its_draws_are_the_mean_of_theirs() -> None:
    one, other = System("a", "mean"), System("b", "mean")
    found, draws = results.Results(), np.arange(100.0)
    for system, value in ((one, 0.5), (other, None)):
        found.add(system, "spearman", "x", value, draws)
        found.add(system, "spearman", "y", 0.7, 3 * draws)
    found.add_average("spearman")
    mean, undefined = (found.frame("spearman", system).iloc[-1] for system in (one, other))
    assert mean["set"] == "avg." and mean["value"] == pytest.approx(0.6) and np.isnan(undefined["value"])
    assert (mean["low"], mean["high"]) == tuple(np.percentile(2 * draws, (2.5, 97.5)))
    apart = results.as_json(found.differences([(one, other)], "spearman"))
    assert [(row["set"], row["difference"]) for row in apart] == [("x", None), ("y", 0), ("avg.", None)]


KNOWN = {"STS-B": 82.03, "STS13": 80.60, "STS16": 78.99, "SICK-R": 77.15}
PAIRS = {"STS-B": 1379, "STS13": 1500, "STS16": 1186, "SICK-R": 4927}


@pytest.mark.realdata
@pytest.mark.usefixtures("minilm", "real_data")
def test_minilm_with_mean_pooling(tmp_path: Path) -> None:
    sts_suite.main(
        f"--encoder minilm --pooler mean --sets STS-B,STS13,STS16,SICK --resamples 0 --out {tmp_path}".split()
    )
    found = scored(tmp_path)
    assert {name: one["pairs"] for name, one in found["sets"].items()} == PAIRS
    for name, value in KNOWN.items():
        (row,) = (row for row in found["results"] if (row["measure"], row["set"]) == ("spearman", name))
        assert 100 * row["value"] == pytest.approx(value, abs=0.05)
    (contradictions,) = (one for one in found["sick"]["relations"] if one["relation"] == "contradiction")
    assert contradictions["pairs"] == 720 and contradictions["human score"] == pytest.approx(3.58, abs=0.005)
    first = found["sick"]["examples"][0]
    assert {first["sentence 1"], first["sentence 2"]} == {
        "A girl is brushing her hair",
        "There is no girl brushing her hair",
    }
    assert [one["human score"] for one in found["sick"]["examples"]] == [4.5, 3.9, 3.55, 3.5, 4.0], "SelfCCL, Table 6"
