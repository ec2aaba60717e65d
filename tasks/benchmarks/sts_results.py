"""The numbers of the STS suite: scores by set with intervals, differences between two encoders, and their tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tasks.benchmarks import correlation
from tasks.benchmarks.contamination import Contamination
from tasks.benchmarks.options import PROTOCOLS, System
from tasks.benchmarks.sets import ScoredSet
from tasks.benchmarks.tables import Table, as_list, between, number
from tasks.intervals import Difference, Interval, interval

AVERAGE = "avg."
Cosines = Mapping[System, Mapping[str, Sequence[np.ndarray]]]
"""By system and set: the cosines of each subset."""


@dataclass(frozen=True)
class Scores:
    """All systems by one protocol: `values[system][metric][set]`, sets by the names that are shown, and their
    mean under `avg.`.

    `around` are 95% intervals of Spearman's rho, empty without resamples.
    """

    protocol: str
    values: dict[System, dict[str, dict[str, float | None]]]
    around: dict[System, dict[str, Interval | None]]
    draws: dict[System, dict[str, np.ndarray]]


def measure(sets: Sequence[ScoredSet], cosines: Cosines, protocol: str, *, seed: int, resamples: int) -> Scores:
    """Spearman and Pearson of every system on every set, and the bootstrap of Spearman's rho."""
    values: dict[System, dict[str, dict[str, float | None]]] = {}
    for system, by_set in cosines.items():
        values[system] = {}
        for metric in correlation.METRICS:
            found = {one.shown: correlation.score(protocol, metric, _parts(one, by_set[one.name])) for one in sets}
            values[system][metric] = found | {AVERAGE: correlation.mean_of(list(found.values()))}
    drawn: dict[System, dict[str, np.ndarray]] = {system: {} for system in cosines}
    for one in sets if resamples else ():
        stacked = [
            (np.stack([cosines[system][one.name][place] for system in cosines]), part.gold)
            for place, part in enumerate(one.subsets)
        ]
        every = correlation.draws(protocol, "spearman", stacked, one.name, seed=seed, resamples=resamples)
        for system, row in zip(cosines, every, strict=True):
            drawn[system][one.shown] = row
    for rows in drawn.values():
        if rows:
            rows[AVERAGE] = np.mean(list(rows.values()), axis=0)
    around = {system: {name: interval(row) for name, row in rows.items()} for system, rows in drawn.items()}
    return Scores(protocol, values, around, drawn)


def _parts(one: ScoredSet, cosines: Sequence[np.ndarray]) -> list[correlation.Part]:
    return [(values, part.gold) for values, part in zip(cosines, one.subsets, strict=True)]


@dataclass(frozen=True)
class Comparison:
    """Differences of Spearman's rho by set, other less first, by one protocol."""

    protocol: str
    first: System
    other: System
    rows: list[Difference]


def differences(sets: Sequence[ScoredSet], scores: Scores, pairs: Sequence[tuple[System, System]]) -> list[Comparison]:
    """Every pair of systems on every set and on average: the same resamples serve both, so they are paired."""
    found = []
    names = {one.shown: len(one.gold) for one in sets} | {AVERAGE: sum(len(one.gold) for one in sets)}
    for first, other in pairs:
        rows = []
        for name, count in names.items():
            one, two = (scores.draws[system].get(name) for system in (first, other))
            around = interval(two - one) if one is not None and two is not None else None
            values = [scores.values[system]["spearman"][name] for system in (first, other)]
            why = "" if around is not None else "no interval"
            rows.append(Difference(name, "Spearman's rho", values[0], values[1], around, count, why=why))
        found.append(Comparison(scores.protocol, first, other, rows))
    return found


def tables(sets: Sequence[ScoredSet], scores: Scores) -> list[Table]:
    """Spearman and Pearson side by side for all systems, then each system by set with its interval."""
    said = f"Protocol {scores.protocol}: {PROTOCOLS[scores.protocol]}."
    columns = [one.shown for one in sets] + ([AVERAGE] if len(sets) > 1 else [])
    head = ("encoder", "pooler", *columns)
    found = []
    for metric, long in correlation.LONG.items():
        rows = tuple(
            (system.encoder, system.pooler, *(number(values[metric][name], times=100) for name in columns))
            for system, values in scores.values.items()
        )
        title = f"{long} × 100, protocol {scores.protocol}"
        found.append(Table(title, head, rows, (said,), left=2))
    for system, around in scores.around.items():
        if around:
            found.append(_details(sets, scores, system, around))
    return found


def _details(sets: Sequence[ScoredSet], scores: Scores, system: System, around: Mapping[str, Interval | None]) -> Table:
    values = scores.values[system]
    counts = {one.shown: (f"{len(one.gold):,}", f"{one.skipped:,}") for one in sets}
    if len(sets) > 1:
        counts[AVERAGE] = ("", "")
    rows = [
        (name, *shown, number(values["spearman"][name], times=100), between(around[name], times=100),
         number(values["pearson"][name], times=100))
        for name, shown in counts.items()
    ]  # fmt: skip
    head = ("set", "pairs", "unscored", "Spearman × 100", "95% interval", "Pearson × 100")
    return Table(f"{system.encoder}, pooler {system.pooler}, protocol {scores.protocol}", head, tuple(rows))


def difference_tables(sets: Sequence[ScoredSet], found: Sequence[Comparison]) -> list[Table]:
    """A table for each pair of systems."""
    made = []
    for one in found:
        rows = [
            (row.name, number(row.first, times=100), number(row.second, times=100),
             number(row.value, times=100, sign=True), between(row.around, times=100, sign=True), row.verdict)
            for row in one.rows
            if row.name != AVERAGE or len(sets) > 1
        ]  # fmt: skip
        head = ("set", "first", "second", "difference", "95% interval, paired", "the second is")
        title = f"Spearman × 100: {one.other.name} (second) less {one.first.name} (first), protocol {one.protocol}"
        made.append(Table(title, head, tuple(rows)))
    return made


def as_json(scores: Scores) -> dict[str, Any]:
    """One protocol's numbers as JSON holds them: correlations from −1 to 1, null where undefined."""
    systems = [
        {
            "encoder": system.encoder,
            "pooler": system.pooler,
            **values,
            "spearman_interval": {name: as_list(around) for name, around in scores.around[system].items()},
        }
        for system, values in scores.values.items()
    ]
    return {"protocol": scores.protocol, "meaning": PROTOCOLS[scores.protocol], "systems": systems}


def differences_as_json(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Comparisons as JSON holds them."""
    return [
        {
            "protocol": one.protocol, "first": one.first.name, "second": one.other.name,
            "sets": {
                row.name: {"difference": row.value, "interval": as_list(row.around), "verdict": row.verdict}
                for row in one.rows
            },
        }
        for one in found
    ]  # fmt: skip


def contamination_as_json(found: Contamination) -> dict[str, Any]:
    """What the check of one encoder found."""
    files = [
        {"file": str(file.path), "sha256": file.sha256, "purpose": file.purpose, "state": file.state}
        for file in found.files
    ]
    counts = {name: asdict(one) for name, one in found.counts.items()}
    return {"encoder": found.encoder, "complete": found.complete, "why": found.why, "manifests": found.manifests,
            "files": files, "sets": counts}  # fmt: skip
