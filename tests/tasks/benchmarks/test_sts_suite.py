"""Guards: the STS suite on the sample against scipy, its files; MiniLM's known numbers.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_sts_suite.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_sts_suite.py -m realdata
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from minbert import Encoder, UserError
from minbert.train.cli import Interrupted
from tasks.benchmarks import sets, sts_suite
from tests.e2e.conftest import SAMPLE
from tests.tasks.contrastive.formulas import cosine


def results(out: Path) -> Any:
    return json.loads((out / "sts.json").read_text())


def values(content: Any, measure: str, pooler: str = "mean") -> dict[str, float]:
    """The numbers of one measure by set."""
    by_set = {}
    for row in content["results"]:
        if (row["measure"], row["pooler"]) == (measure, pooler):
            by_set[row["set"]] = row["value"]
    return by_set


def plain_cosines(folder: Path, pooler: str, pairs: list[tuple[str, str]]) -> np.ndarray:
    encoder = Encoder.load(folder, pooler=pooler, precision="fp32")
    cosines = []
    for pair in pairs:
        u, v = encoder.encode(list(pair)).astype(np.float64)
        cosines.append(cosine(u, v))
    return np.array(cosines)


@pytest.fixture(scope="module")
def out(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_suite(tiny, tmp_path_factory.mktemp("sts"))


def run_suite(tiny: Path, where: Path) -> Path:
    """The folder `out` that the suite writes in the folder in which it is started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        patch.setattr(sts_suite, "SICK_EXAMPLES", ("31", "4489", "26"))  # the second is not in the sample
        sts_suite.main(f"--encoder {tiny} --pooler mean,cls --data {SAMPLE} --resamples 20 --out out".split())
    return where / "out"


def test_correlations(tiny: Path, out: Path) -> None:
    content = results(out)
    assert content["complete"]
    for scored in sets.read(SAMPLE, ["STS13", "SICK"]):
        for pooler in ("mean", "cls"):
            cosines = plain_cosines(tiny, pooler, scored.pairs)
            rho = stats.spearmanr(cosines, scored.gold).statistic
            assert values(content, "spearman", pooler)[scored.name] == pytest.approx(rho, abs=1e-4)
            r = stats.pearsonr(cosines, scored.gold).statistic
            assert values(content, "pearson", pooler)[scored.name] == pytest.approx(r, abs=1e-4)
    rhos = values(content, "spearman")
    assert list(rhos) == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "avg."]
    *of_sets, average = rhos.values()
    assert average == pytest.approx(np.mean(of_sets))
    assert content["results"][0]["measure"] == "spearman"
    for row in content["results"]:
        if row["measure"] == "spearman":
            assert row["low"] < row["high"]


def test_subsets_and_their_means(tiny: Path, out: Path) -> None:
    content = results(out)
    (sts13,) = sets.read(SAMPLE, ["STS13"])
    assert list(sts13.subsets) == ["FNWN", "headlines", "OnWN"]
    cosines = plain_cosines(tiny, "mean", sts13.pairs)
    ends = np.cumsum(list(sts13.subsets.values()))
    rhos = []
    for subset, predicted, gold in zip(sts13.subsets, np.split(cosines, ends), np.split(sts13.gold, ends)):
        rhos.append(stats.spearmanr(predicted, gold).statistic)
        assert values(content, "spearman of subset")[f"STS13 {subset}"] == pytest.approx(rhos[-1], abs=1e-4)
    assert values(content, "spearman mean")["STS13"] == pytest.approx(np.mean(rhos), abs=1e-4)
    weighted = sum(rho * count for rho, count in zip(rhos, sts13.subsets.values())) / len(sts13.pairs)
    assert values(content, "spearman wmean")["STS13"] == pytest.approx(weighted, abs=1e-4)
    assert "SICK-R" not in values(content, "spearman mean")


def test_sick_by_relation(tiny: Path, out: Path) -> None:
    (sick,) = sets.read(SAMPLE, ["SICK"])
    cosines = plain_cosines(tiny, "mean", sick.pairs)
    content = results(out)["sick"]
    contradictions = [sick.ids.index("26"), sick.ids.index("27")]
    (group,) = [row for row in content["relations"] if row["relation"] == "contradiction"]
    assert group["pairs"] == 2
    assert group["human score"] == pytest.approx(np.mean(sick.gold[contradictions]))
    assert group[f"cosine ({tiny.name}, mean)"] == pytest.approx(np.mean(cosines[contradictions]), abs=1e-5)
    # in the order of the examples
    rows = [sick.ids.index("31"), sick.ids.index("26")]
    assert [example["human score"] for example in content["examples"]] == sick.gold[rows].tolist()
    pairs = [(example["sentence 1"], example["sentence 2"]) for example in content["examples"]]
    assert pairs == [sick.pairs[row] for row in rows]
    assert "human score / 5" in (out / "sts-sick-scatter.svg").read_text()


@pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning")
def test_same_command_same_bytes(tiny: Path, out: Path, tmp_path: Path) -> None:
    again = run_suite(tiny, tmp_path)
    names = sorted(path.name for path in out.iterdir())
    assert names == ["sts-sick-scatter.svg", "sts-sts-b-scatter.svg", "sts.json", "sts.md"]
    for name in names:
        assert (out / name).read_bytes() == (again / name).read_bytes(), name


def test_stopped_suite_keeps_sets(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise Interrupted("stopped", 2)

    monkeypatch.setattr(sts_suite, "draw_scatter", stop)  # of STS-B, the second set
    with pytest.raises(Interrupted):
        sts_suite.main(f"--encoder {tiny} --data {SAMPLE} --sets STS12,STS-B,SICK --out {tmp_path}".split())
    content = results(tmp_path)
    assert not content["complete"] and list(content["sets"]) == ["STS12", "STS-B"]


def test_chinese_sets(tiny: Path, tmp_path: Path) -> None:
    sts_suite.main(f"--encoder {tiny} --data {SAMPLE} --sets LCQMC --resamples 0 --out {tmp_path}".split())
    content = results(tmp_path)
    assert content["sets"] == {"LCQMC": {"pairs": 10, "skipped": 0, "file": "LCQMC/test.txt"}}
    assert {row["low"] for row in content["results"]} == {None}


def test_file_of_own_pairs(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "nowhere"))  # no data folder is needed
    pairs = [("the cat sat", "a dog"), ("the cat sat", "the cat sat on the mat"), ("a bird", "the dog"), ("a", "a dog")]
    gold = [0.0, 0.9, 0.25, 0.5]
    file = tmp_path / "own.csv"
    rows = [(*pair, score) for pair, score in zip(pairs, gold)]
    pd.DataFrame(rows, columns=["sentence1", "sentence2", "score"]).to_csv(file, index=False)
    sts_suite.main(f"--encoder {tiny} --pooler mean --resamples 0 --out {tmp_path} --pairs {file}".split())
    content = results(tmp_path)
    assert content["sets"] == {"own.csv": {"pairs": 4, "skipped": 0, "file": str(file)}}
    rho = stats.spearmanr(plain_cosines(tiny, "mean", pairs), gold).statistic
    assert values(content, "spearman") == {"own.csv": pytest.approx(rho)}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--pairs none.csv", "--pairs none.csv: "),
        ("--sets STS17", "--sets: 'STS17'"),
        ("--sets ATEC --data .", "zh: no test file of ATEC"),
    ],
)
def test_mistakes_are_one_sentence(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)  # results go to runs/benchmarks by default
    (tmp_path / "zh").mkdir()
    with pytest.raises(UserError, match=message):
        sts_suite.main(["--encoder", str(tiny), "--data", str(SAMPLE), *flags.split()])


# measure, set, value
KNOWN = [
    ("spearman", "STS-B", 82.03),
    ("spearman", "STS13", 80.60),
    ("spearman", "STS16", 78.99),
    ("spearman", "SICK-R", 77.15),
    ("spearman mean", "STS16", 81.32),
    ("spearman wmean", "STS16", 81.21),
]


@pytest.mark.realdata
@pytest.mark.usefixtures("minilm")
def test_minilm_with_mean_pooling(tmp_path: Path, real_data: Path) -> None:
    flags = f"--pooler mean --sets STS-B,STS13,STS16,SICK --resamples 0 --data {real_data} --out {tmp_path}"
    sts_suite.main(["--encoder", "minilm", *flags.split()])
    content = results(tmp_path)
    for measure, name, value in KNOWN:
        assert 100 * values(content, measure)[name] == pytest.approx(value, abs=0.05)
    (contradictions,) = [row for row in content["sick"]["relations"] if row["relation"] == "contradiction"]
    assert contradictions["pairs"] == 720 and contradictions["human score"] == pytest.approx(3.58, abs=0.005)
    # SelfCCL, Table 6
    assert [example["human score"] for example in content["sick"]["examples"]] == [4.5, 3.9, 3.55, 3.5, 4.0]
