"""Groups of runs beside each other: mean and deviation over seeds, differences to a baseline with intervals.

A group is a setting, or an arm of a study. Its runs are the rows of a plain frame with the columns group, seed, metric
and value, in the order in which groups and metrics are shown. A group that has no seeds has a missing seed.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from tasks import charts, compare, intervals
from tasks.charts import BLUE, DASHED, GROUND, INK
from tasks.compare import Scored
from tasks.report.html import Figure, rendered, write_page
from tasks.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOLD = 0.01  # a difference that `seeds_for` is about
MOST_SEEDS = 1000
_NUMBERS = {
    "mean": "mean",
    "difference": "difference",
    "95% over dev rows": "over_rows",
    "dev rows": "rows",
    "right in one only": "only",
}
_OVER_SEEDS = {
    "seeds": "seeds",
    "mean": "mean",
    "deviation": "deviation",
    "difference": "difference",
    "95% over seeds": "over_seeds",
    **_NUMBERS,
    "seeds to detect .01": "seeds_for",
}
"""Columns of the table of all numbers, and the keys of a cell."""
_BARS = {
    True: "Thin bars are 95% intervals over seeds, thick ones over dev rows.",
    False: "Bars are 95% intervals over dev rows.",
}


OVER_ROWS = ["group", "metric", "row_low", "row_high", "rows", "only", "why"]
"""The columns of `over_rows`."""


def summary(frame: pd.DataFrame, baseline: str | None = None, more: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row for each group and metric: seeds, mean, deviation, and the difference to `baseline` (default: first group).

    `seeds` counts the values that are defined; `deviation` is that of a sample. `difference` is the mean over the seeds
    that the group and the baseline share, of which there are `pairs`; `low` and `high` are its 95% t interval over
    these seeds. `seeds_for` is the number of seeds by which a paired t test would find a true difference of .01. All of
    these are NaN where undefined. `more` holds further columns by group and metric: `paper`, `own_low` and `own_high`
    (an interval of the score over dev rows), and those of `over_rows`.
    """
    baseline = baseline if baseline is not None else frame["group"].iloc[0]
    rows = []
    for (group, metric), one in frame.groupby(["group", "metric"], sort=False):
        base = frame[(frame["group"] == baseline) & (frame["metric"] == metric)]
        gaps = pd.Series(_by_seed(one) - _by_seed(base)).dropna().to_numpy(dtype=float)
        row = {"group": group, "metric": metric, "seeds": one["value"].count(), "mean": one["value"].mean()}
        row |= {"deviation": one["value"].std(ddof=1)}
        rows.append(row if group == baseline else row | _difference(gaps))
    names = ["difference", "pairs", "low", "high", "seeds_for"]
    found = pd.DataFrame(rows, columns=[*rows[0], *(name for name in names if name not in rows[0])])
    return found if more is None else found.merge(more, on=["group", "metric"], how="left")


def _by_seed(rows: pd.DataFrame) -> Any:
    """The value of each seed; of a group without seeds its value alone, which is subtracted from that of every seed."""
    return rows.groupby("seed")["value"].mean() if rows["seed"].notna().any() else rows["value"].mean()


def _difference(gaps: np.ndarray) -> dict[str, float]:
    if len(gaps) < 2:
        return {"difference": gaps.mean() if len(gaps) else np.nan, "pairs": len(gaps)}
    middle, spread = gaps.mean(), gaps.std(ddof=1)
    half = stats.t.ppf(0.975, len(gaps) - 1) * spread / np.sqrt(len(gaps))
    found = {"difference": middle, "pairs": len(gaps), "low": middle - half, "high": middle + half}
    return found | {"seeds_for": seeds_for(spread)}


def seeds_for(deviation: float) -> float:
    """The fewest seeds by which a two-sided paired t test at 5% finds a true difference of `TOLD` with a power of 80%.

    `deviation` is that of the differences of single seeds. NaN if `MOST_SEEDS` are too few.
    """
    if not deviation:
        return 2
    seeds = np.arange(2, MOST_SEEDS + 1)
    limit = stats.t.ppf(0.975, seeds - 1)
    power = stats.nct.sf(limit, seeds - 1, np.sqrt(seeds) * TOLD / deviation)
    enough = seeds[power >= 0.8]
    return float(enough[0]) if len(enough) else np.nan


def verdict(row: Any) -> str:
    """What an interval of a difference says, over seeds if there is one, else over dev rows; empty without any."""
    low, high = (row.low, row.high) if not np.isnan(row.low) else (row.get("row_low"), row.get("row_high"))
    if low is None or np.isnan(low):
        return ""
    if row.get("less_is_better") is True:
        low, high = -high, -low
    return intervals.verdict(low, high)


def over_rows(
    group: str,
    first: Sequence[Scored],
    other: Sequence[Scored],
    norms: tuple[float | None, float | None] | None,
    resamples: int,
) -> Iterator[tuple[Any, ...]]:
    """The differences of two systems (see `tasks.compare.differences`), as rows of `OVER_ROWS` for the group `other`.

    `row_low` and `row_high` are an interval over dev rows, of which there are `rows`. `only` has the rows that are
    right in one only, and `why` the reason where there is no interval.
    """
    for one in compare.differences(first, other, norms, resamples=resamples):
        low, high = (np.nan, np.nan) if one.around is None else (one.around.low, one.around.high)
        only = "" if one.only_first is None else f"{one.only_first:,} / {one.only_second:,}"
        metric = first[0][one.name].shown if one.name in first[0] else one.name
        yield group, metric, low, high, one.rows or np.nan, only, one.why


def forest(found: pd.DataFrame) -> bytes:
    """A panel for each metric of a `summary`: each group's difference to the baseline, as SVG.

    The thick bar is the 95% interval over dev rows, the thin one that over seeds.
    """
    found = found[found["difference"].notna()]
    metrics = list(dict.fromkeys(found["metric"]))
    counts = [int((found["metric"] == metric).sum()) for metric in metrics]
    height = sum(52 + 26 * count for count in counts)
    with charts.page_svg(400, height + 20, len(metrics), height_ratios=[1.4 + count for count in counts]) as (
        panels,
        out,
    ):
        for axes, metric in zip(panels, metrics, strict=True):
            _panel(axes, found[found["metric"] == metric].reset_index(drop=True), metric)
    return out.getvalue()


def _panel(axes: "Axes", found: pd.DataFrame, metric: str) -> None:
    for place, row in found.iterrows():
        if not np.isnan(row.get("row_low", np.nan)):
            axes.plot([row["row_low"], row["row_high"]], [place] * 2, color=BLUE, linewidth=7, alpha=0.3)
        if not np.isnan(row["low"]):
            axes.plot([row["low"], row["high"]], [place] * 2, color=BLUE, linewidth=1.6)
    look: Any = {"markersize": 8, "markerfacecolor": GROUND, "markeredgewidth": 2}
    axes.plot(found["difference"], found.index, "o", color=BLUE, **look)
    axes.axvline(0, color=INK, linewidth=1, linestyle=DASHED)
    widest = max(map(abs, axes.get_xlim()))
    axes.set(xlim=(-widest, widest), ylim=(len(found) - 0.5, -0.5))
    axes.set_yticks(range(len(found)), [charts.clipped(name) for name in found["group"]])
    axes.locator_params(axis="x", nbins=5)
    axes.set_title(metric)
    axes.grid(visible=False)


def section(found: pd.DataFrame, settings: pd.DataFrame | None = None) -> dict[str, Any]:
    """What the template `overview.html` shows of a `summary`. `settings` is indexed by group.

    Settings that are the same in all groups are left out.
    """
    settings = pd.DataFrame(index=found["group"].unique()) if settings is None else settings.astype(str)
    differing = settings.loc[:, settings.nunique() > 1]
    groups = []
    for group, rows in found.groupby("group", sort=False):
        cells = {row["metric"]: _cell(row) for _, row in rows.iterrows()}
        known = differing.loc[group].to_dict() if group in differing.index else {}
        groups.append({"name": group, "seeds": int(rows["seeds"].max()), "settings": known, "cells": cells})
    seeded = bool((found["seeds"] > 1).any())
    note = f"{_BARS[seeded]} To the right of the line the run scores higher."
    drawn = forest(found) if found["difference"].notna().any() else None
    return {
        "groups": groups,
        "seeded": seeded,
        "columns": _OVER_SEEDS if seeded else _NUMBERS,
        "own": "own_low" in found,
        "settings": list(differing.columns),
        "metrics": list(dict.fromkeys(found["metric"])),
        "forest": drawn and Figure("differences", "Difference to the baseline", drawn, note),
        "numbers": [_cell(row) | {"group": row["group"], "metric": row["metric"]} for _, row in found.iterrows()],
    }


def _cell(row: Any) -> dict[str, Any]:
    """The numbers of a group in a metric as the table shows them; empty texts where they are undefined."""

    def of(name: str, digits: int = 4, *, sign: bool = False) -> str:
        return number(row.get(name), digits, sign=sign, missing="")

    def between(low: str, high: str, *, sign: bool = True) -> str:
        ends = of(low, sign=sign), of(high, sign=sign)
        return " to ".join(ends) if all(ends) else ""

    paper, rows = row.get("paper", np.nan), row.get("rows", np.nan)
    return {
        "sort": None if np.isnan(row["mean"]) else float(row["mean"]),
        "seeds": int(row["seeds"]),
        "mean": of("mean"),
        "deviation": of("deviation"),
        "own": between("own_low", "own_high", sign=False),
        "difference": of("difference", sign=True),
        "over_seeds": between("low", "high"),
        "over_rows": between("row_low", "row_high"),
        "seeds_for": of("seeds_for", 0),
        "paper": "" if np.isnan(paper) else f"{paper:.4g}",
        "rows": "" if np.isnan(rows) else f"{rows:,.0f}",
        "only": row.get("only") if isinstance(row.get("only"), str) else "",
        "why": row.get("why") if isinstance(row.get("why"), str) else "",
        "verdict": verdict(row),
    }


def write_overview(
    path: Path,
    title: str,
    frame: pd.DataFrame,
    settings: pd.DataFrame | None = None,
    *,
    baseline: str | None = None,
    more: pd.DataFrame | None = None,
    lead: str = "",
    figures: Iterable[Figure] = (),
) -> pd.DataFrame:
    """Write a page of the overview alone, with further figures below it, and return its `summary`."""
    found = summary(frame, baseline, more)
    shown, figures = section(found, settings), list(figures)
    html = rendered(
        "study.html", ["style.css"], ["base.js"], {}, title=title, lead=lead, overview=shown, figures=figures
    )
    write_page(path, html, [*filter(None, [shown["forest"]]), *figures])
    return found
