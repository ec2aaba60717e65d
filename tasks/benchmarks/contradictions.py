"""SICK's contradictions: pairs that contradict each other and that people call related (SelfCCL, section 5.6)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.token_cache import Row
from tasks.benchmarks.figures import Kind
from tasks.benchmarks.options import System
from tasks.benchmarks.results import Table, number
from tasks.benchmarks.sets import Subset
from tasks.charts import BLUE, GREY, VERMILION
from tasks.readers import senteval
from tasks.readers.rows import NLI_CLASSES

EXAMPLES = 5
_LOOK = ((0, "entailment", BLUE, "o"), (1, "neutral", GREY, "^"), (2, "contradiction", VERMILION, "s"))


def relations(folder: Path, sick: Subset) -> np.ndarray:
    """The relation of each pair of SICK's test split: int64 [pairs], as `NLI_CLASSES`."""
    rows = senteval.classification(folder, "SICK-E")["test"]
    known = {row.id: int(row.label) for row in rows if isinstance(row, Row)}
    return np.array([known[name] for name in sick.ids], dtype=np.int64)


def kinds(relation: np.ndarray) -> list[Kind]:
    """The groups of a scatter by relation; the largest group is drawn first, so that it hides no other."""
    found = [Kind(name, colour, marker, np.flatnonzero(relation == place)) for place, name, colour, marker in _LOOK]
    return sorted((kind for kind in found if len(kind.rows)), key=lambda kind: -len(kind.rows))


def summary(sick: Subset, relation: np.ndarray, cosines: Mapping[System, np.ndarray]) -> dict[str, Any]:
    """Mean human score and mean cosine of each relation, and the most related contradictions (ties in file order)."""
    groups = {}
    for place, name in enumerate(NLI_CLASSES):
        rows = relation == place
        if rows.any():
            means = {system.name: float(values[rows].mean()) for system, values in cosines.items()}
            groups[name] = {"pairs": int(rows.sum()), "human": float(sick.gold[rows].mean()), "cosine": means}
    contradictions = np.flatnonzero(relation == NLI_CLASSES.index("contradiction"))
    order = contradictions[np.argsort(-sick.gold[contradictions], kind="stable")][:EXAMPLES]
    examples = [
        {
            "texts": list(sick.pairs[row]),
            "human": float(sick.gold[row]),
            "cosine": {system.name: float(values[row]) for system, values in cosines.items()},
        }
        for row in order.tolist()
    ]
    return {"relations": groups, "examples": examples}


def tables(found: dict[str, Any], systems: list[System]) -> list[Table]:
    """One table of means by relation, and one of the examples (SelfCCL, Table 6)."""

    def cosines(one: dict[str, Any]) -> dict[str, str]:
        return {f"cosine ({system.name})": number(one["cosine"][system.name]) for system in systems}

    means = [
        {"relation": name, "pairs": f"{group['pairs']:,}", "human score": number(group["human"]), **cosines(group)}
        for name, group in found["relations"].items()
    ]
    rows = [
        {"sentence 1": one["texts"][0], "sentence 2": one["texts"][1], "human": number(one["human"], 1), **cosines(one)}
        for one in found["examples"]
    ]
    note = "Human scores from 1 to 5; cosines from −1 to 1."
    return [
        Table("SICK test by relation", pd.DataFrame(means), (note,)),
        Table("SICK's most related contradictions", pd.DataFrame(rows), left=2),
    ]
