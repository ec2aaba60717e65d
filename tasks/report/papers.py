"""The papers' numbers on the development sets, as data."""

from dataclasses import dataclass

from tasks import metrics


@dataclass(frozen=True)
class Reported:
    """One system's dev scores in a paper."""

    system: str
    scores: dict[str, float]

    @property
    def dev_norm(self) -> float:
        """The leaderboard's overall score, from the three columns; the paper gives it for the test sets alone."""
        return metrics.dev_norm(self.scores["sst"], self.scores["quora"], self.scores["sts"])


CBCL_DEV = (
    Reported("Baseline", {"sst": 0.501, "quora": 0.900, "sts": 0.853}),
    Reported("CBCL", {"sst": 0.504, "quora": 0.898, "sts": 0.842}),
    Reported("Synonyms", {"sst": 0.493, "quora": 0.899, "sts": 0.841}),
    Reported("CBCL + synonyms", {"sst": 0.496, "quora": 0.897, "sts": 0.827}),
)
"""CBCL, Table A1."""

CBCL_DEV_ROWS = {"sst": 1101, "quora": 40429, "sts": 863}
"""Rows of the paper's development sets, by the files of its course."""

CBCL_F1 = {"sst": (0.34, 0.56, 0.38, 0.56, 0.54), "quora": (0.92, 0.86)}
"""F1 on dev of each class for its curriculum-based model: CBCL, Table 3 and section 6.2."""
