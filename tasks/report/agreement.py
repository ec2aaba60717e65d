"""What annotations say: how many pairs of each group fell into each category, and whether two people agree."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import UserError, one_of
from minbert.files import present, read_json
from tasks.intervals import Interval, interval, resampled, wilson
from tasks.report.annotation import CATEGORIES, FORMAT, GROUPS

KEYS = tuple(one.key for one in CATEGORIES)
RESAMPLES = 1000
Key = tuple[str, str]
"""Group and id of a pair: one pair may be drawn into two groups."""


@dataclass(frozen=True)
class Annotation:
    """One person's exported work; `sorted` holds the category of every pair that has one, `drawn` counts all."""

    path: Path
    annotator: str
    sample: str
    run: str
    sorted: dict[Key, str]
    drawn: int

    def counts(self, group: str) -> dict[str, int]:
        """How many pairs of a group are in each category, in the categories' order."""
        found = Counter(category for (of, _), category in self.sorted.items() if of == group)
        return {key: found[key] for key in KEYS}

    def total(self, group: str) -> int:
        """How many pairs of a group are sorted."""
        return sum(self.counts(group).values())


def read(path: Path) -> Annotation:
    """A file that the annotation page exported; `UserError` where it is something else, or where nothing is sorted."""
    content = read_json(present(path))
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("items"), list):
        raise UserError(f"{path}: not an annotation that the page exported")
    for name in ("annotator", "sample", "run"):
        if not isinstance(content.get(name), str):
            raise UserError(f"{path}: {name}: missing, or not a text")
    found: dict[Key, str] = {}
    seen: set[Key] = set()
    for number, item in enumerate(content["items"], start=1):
        key, category = _item(f"{path}: item {number}", item)
        if key in seen:
            raise UserError(f"{path}: item {number}: {key[1]!r} of {key[0]} stands there twice")
        seen.add(key)
        if category is not None:
            found[key] = category
    if not found:
        raise UserError(f"{path}: no pair is sorted yet")
    return Annotation(path, content["annotator"].strip(), content["sample"], content["run"], found, len(seen))


def _item(place: str, item: Any) -> tuple[Key, str | None]:
    if not isinstance(item, dict) or item.get("group") not in GROUPS or not isinstance(item.get("id"), str):
        raise UserError(f"{place}: not a pair with a group ({', '.join(GROUPS)}) and an id")
    category = item.get("category")
    return (item["group"], item["id"]), None if category is None else one_of(str(category), KEYS, f"{place}: category")


def names(annotations: Sequence[Annotation]) -> list[str]:
    """Who made each, told apart by file where the names do not tell."""
    found = [one.annotator or one.path.stem for one in annotations]
    same = len(set(found)) < len(found)
    return [f"{name} ({one.path.name})" if same else name for name, one in zip(found, annotations, strict=True)]


@dataclass(frozen=True)
class Agreement:
    """Two people's pairs in common: the share that they sort alike, and Cohen's kappa with a bootstrap interval.

    Kappa is None where it is undefined: no pair in common, or one category for all of them.
    """

    name: str
    pairs: int
    alike: int
    kappa: float | None
    around: Interval | None


def kappa(first: Sequence[str] | np.ndarray, second: Sequence[str] | np.ndarray) -> float | None:
    """Cohen's kappa, (p_o - p_e) / (1 - p_e), by scikit-learn; None where it is undefined."""
    from sklearn.metrics import cohen_kappa_score

    if not len(first) or len({*first, *second}) < 2:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # undefined is said as None
        value = float(cohen_kappa_score(first, second))
    return value if np.isfinite(value) else None


def agreement(first: Annotation, second: Annotation, *, seed: int = 0, resamples: int = RESAMPLES) -> list[Agreement]:
    """Over all pairs that both have sorted, then over those of each group; `UserError` for different samples.

    Resamples are drawn by the counter (seed, "kappa", group).
    """
    if first.sample != second.sample:
        raise UserError(f"{second.path}: of another sample than {first.path}: the two sorted different pairs")
    both = [key for key in first.sorted if key in second.sorted]
    groups = {"all": both} | {group: [key for key in both if key[0] == group] for group in GROUPS}
    return [_agreement(name, keys, first, second, seed, resamples) for name, keys in groups.items()]


def _agreement(
    name: str, keys: Sequence[Key], first: Annotation, second: Annotation, seed: int, resamples: int
) -> Agreement:
    one, two = ([side.sorted[key] for key in keys] for side in (first, second))
    alike, value = sum(a == b for a, b in zip(one, two, strict=True)), kappa(one, two)
    if value is None:
        return Agreement(name, len(keys), alike, None, None)
    sides = np.array(one), np.array(two)

    def of(rows: np.ndarray) -> np.ndarray:
        found = [kappa(sides[0][chosen], sides[1][chosen]) for chosen in rows]
        return np.array(found, dtype=np.float64)  # NaN for None

    draws = resampled(of, len(keys), "kappa", name, seed=seed, resamples=resamples)
    return Agreement(name, len(keys), alike, value, interval(draws))


def differences(first: Annotation, second: Annotation) -> list[tuple[str, str, int]]:
    """What the two sort differently: the first's category, the second's, and how often; the most frequent first."""
    pairs = [(category, second.sorted[key]) for key, category in first.sorted.items() if key in second.sorted]
    return [(one, two, count) for (one, two), count in Counter(pairs).most_common() if one != two]


def counts_text(annotation: Annotation, name: str) -> str:
    """Counts and Wilson intervals by category and group, for a terminal."""
    groups = [group for group in GROUPS if annotation.total(group)]
    sizes = [annotation.total(group) for group in groups]
    lines = [f"{name}: {len(annotation.sorted):,} of {annotation.drawn:,} pairs sorted (95% Wilson intervals)"]
    heads = [f"{GROUPS[group]} ({size})" for group, size in zip(groups, sizes, strict=True)]
    lines.append(f"  {'':<25}" + "".join(f"{head:>26}" for head in heads))
    for one in CATEGORIES:
        cells = [_cell(annotation.counts(group)[one.key], size) for group, size in zip(groups, sizes, strict=True)]
        lines.append(f"  {one.name:<25}" + "".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)


def _cell(count: int, total: int) -> str:
    around = wilson(count, total)
    return f"{count} " if around is None else f"{count}  {count / total:.0%} [{around.low:.0%}, {around.high:.0%}]"


def agreement_text(first: Annotation, second: Annotation, *, resamples: int = RESAMPLES) -> str:
    """Agreement overall and by group, and what is sorted differently most often, for a terminal."""
    lines = [f"agreement of {' and '.join(names([first, second]))} (95% intervals of {resamples:,} resamples)"]
    for one in agreement(first, second, resamples=resamples):
        if not one.pairs:
            continue
        value = "undefined" if one.kappa is None else f"{one.kappa:.3f}"
        around = "" if one.around is None else f" [{one.around.low:.3f}, {one.around.high:.3f}]"
        title = GROUPS.get(one.name, "all pairs")
        lines.append(f"  {title:<17} {one.alike} of {one.pairs} alike, Cohen's kappa {value}{around}")
    titles = {one.key: one.name for one in CATEGORIES}
    listed = [f"  {count} x {titles[one]} / {titles[two]}" for one, two, count in differences(first, second)[:5]]
    return "\n".join([*lines, *(["most often sorted differently:", *listed] if listed else [])])
