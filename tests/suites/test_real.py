"""Guards: the known numbers of all-MiniLM-L6-v2 in fp32, and SICK's contradictions as SelfCCL counts and shows them.

DATA_DIR=... python -m pytest --import-mode=importlib tests/suites/test_real.py -m realdata
"""

import json
from pathlib import Path

import pytest

from tasks.benchmarks import sts_suite

pytestmark = pytest.mark.realdata
KNOWN = {"STS-B": 82.03, "STS13": 80.60, "STS16": 78.99, "SICK-R": 77.15}
PAIRS = {"STS-B": 1379, "STS13": 1500, "STS16": 1186, "SICK-R": 4927}


@pytest.mark.usefixtures("minilm", "real_data")
def test_minilm_with_mean_pooling(tmp_path: Path) -> None:
    sts_suite.main(
        f"--encoder minilm --pooler mean --sets STS-B,STS13,STS16,SICK --resamples 0 --out {tmp_path}".split()
    )
    found = json.loads((tmp_path / "sts.json").read_text())
    assert {name: one["pairs"] for name, one in found["sets"].items()} == PAIRS
    for name, value in KNOWN.items():
        (row,) = (row for row in found["results"] if (row["measure"], row["set"]) == ("spearman", name))
        assert 100 * row["value"] == pytest.approx(value, abs=0.05)
    contradictions = found["sick"]["relations"]["contradiction"]
    assert contradictions["pairs"] == 720 and contradictions["human"] == pytest.approx(3.58, abs=0.005)
    texts = [set(one["texts"]) for one in found["sick"]["examples"]]
    assert texts[0] == {"A girl is brushing her hair", "There is no girl brushing her hair"}
    assert [one["human"] for one in found["sick"]["examples"]] == [4.5, 3.9, 3.55, 3.5, 4.0], "SelfCCL, Table 6"
