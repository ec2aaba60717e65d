"""The paper's numbers on the development sets, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.files import sha256_of
from tasks import metrics
from tasks.data.fetch.sources import git_blob


@dataclass(frozen=True)
class Reported:
    """One system's dev scores in a paper."""

    system: str
    scores: dict[str, float]

    @property
    def dev_norm(self) -> float:
        """The leaderboard's overall score, from the three columns; the paper gives it for the test sets only."""
        metric = {"sst": "accuracy", "quora": "accuracy", "sts": "Pearson's r"}
        return metrics.dev_norm((metric[name], score) for name, score in self.scores.items())


CBCL_DEV = (
    Reported("Baseline", {"sst": 0.501, "quora": 0.900, "sts": 0.853}),
    Reported("CBCL", {"sst": 0.504, "quora": 0.898, "sts": 0.842}),
    Reported("Synonyms", {"sst": 0.493, "quora": 0.899, "sts": 0.841}),
    Reported("CBCL + synonyms", {"sst": 0.496, "quora": 0.897, "sts": 0.827}),
)
"""CBCL, Table A1."""
CBCL_F1 = {"sst": (0.34, 0.56, 0.38, 0.56, 0.54), "quora": (0.92, 0.86)}
"""F1 on dev of each class for its curriculum-based model: CBCL, Table 3 and section 6.2."""
_SST_DEV = "a186ce94577635fbe10beaaddd50f16cccf6c30973221cefdf90deed2a584bfe"
_STS_DEV = "ce3cad6f16062586ac7ba462c28b010a9be10c530fd5074165860d7b7ab4e93d"
_CBCL_DEV_FILES = {
    "sst": ("3171aa629a340809d2db4a50df8f6e5ec9420ab0", _SST_DEV),
    "quora": ("97f9430a53b7f5544f857ff27a236c40bb42b5c7", ""),
    "sts": ("9392860e584717976b8d817cc40c9e6ceeec27e0", _STS_DEV),
}
"""The development files of the paper's course: git blob id, and SHA-256 if known."""


def on_cbcl_rows(task: str, account: Mapping[str, Any]) -> bool:
    """Whether a dev file in a manifest is the one that CBCL's scores are on.

    It is recognised by its recorded SHA-256, or by its git blob id while the file still has the recorded hash.
    """
    blob, sha256 = _CBCL_DEV_FILES.get(task, ("", ""))
    recorded, path = account.get("sha256"), Path(str(account.get("file", "")))
    if recorded and recorded == sha256:
        return True
    return bool(blob) and path.is_file() and sha256_of(path) == recorded and git_blob(path) == blob
