"""Groups of runs compared: mean and deviation over seeds, differences to a baseline with intervals.

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
from tasks.report.details import Details
from tasks.report.html import Figure, rendered, write_page
from tasks.tables import MISSING, Table, between, number, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OVER_ROWS = ["group", "metric", "row_low", "row_high", "rows", "only", "why"]
"""The columns of `over_rows`."""


def summary(frame: pd.DataFrame, baseline: str | None = None, more: pd.DataFrame | None = None) -> pd.DataFrame:
    """A row for each group and metric: seeds, mean, deviation, and the difference to `baseline` (default: first group).

    `seeds` counts the values that are defined; `deviation` is that of a sample. `difference` is the mean over the seeds
    that the group and the baseline share, of which there are `pairs`; `low` and `high` are its 95% t interval over
    these seeds. All of these are NaN where undefined. `more` holds further columns by group and metric: `paper`, and
    those of `over_rows`.
    """
    baseline = baseline if baseline is not None else frame["group"].iloc[0]
    rows = []
    for (group, metric), one in frame.groupby(["group", "metric"], sort=False):
        base = frame[(frame["group"] == baseline) & (frame["metric"] == metric)]
        gaps = pd.Series(_by_seed(one) - _by_seed(base)).dropna().to_numpy(dtype=float)
        row = {"group": group, "metric": metric, "seeds": one["value"].count(), "mean": one["value"].mean()}
        row |= {"deviation": one["value"].std(ddof=1)}
        rows.append(row if group == baseline else row | _difference(gaps))
    names = ["difference", "pairs", "low", "high"]
    table = pd.DataFrame(rows, columns=[*rows[0], *(name for name in names if name not in rows[0])])
    return table if more is None else table.merge(more, on=["group", "metric"], how="left")


def _by_seed(rows: pd.DataFrame) -> Any:
    """The value of each seed; of a group without seeds its value alone, which is subtracted from that of every seed."""
    return rows.groupby("seed")["value"].mean() if rows["seed"].notna().any() else rows["value"].mean()


def _difference(gaps: np.ndarray) -> dict[str, float]:
    if len(gaps) < 2:
        return {"difference": gaps.mean() if len(gaps) else np.nan, "pairs": len(gaps)}
    middle, spread = gaps.mean(), gaps.std(ddof=1)
    half = stats.t.ppf(0.975, len(gaps) - 1) * spread / np.sqrt(len(gaps))
    return {"difference": middle, "pairs": len(gaps), "low": middle - half, "high": middle + half}


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
        low, high = (np.nan, np.nan) if one.interval is None else (one.interval.low, one.interval.high)
        only = "" if one.only_first is None else f"{one.only_first:,} / {one.only_second:,}"
        metric = first[0][one.name].shown if one.name in first[0] else one.name
        yield group, metric, low, high, one.rows or np.nan, only, one.why


def forest(summary: pd.DataFrame) -> bytes:
    """Each group's difference to the baseline, as SVG, with a panel for each metric of a `summary`.

    The thick bar is the 95% interval over dev rows, the thin one that over seeds.
    """
    rows = summary[summary["difference"].notna()]
    metrics = list(dict.fromkeys(rows["metric"]))
    counts = [int((rows["metric"] == metric).sum()) for metric in metrics]
    height = 20 + sum(52 + 26 * count for count in counts)
    ratios = [1.4 + count for count in counts]
    with charts.page_svg(340, height, len(metrics), height_ratios=ratios) as (panels, out):
        for axes, metric in zip(panels, metrics, strict=True):
            _panel(axes, rows[rows["metric"] == metric].reset_index(drop=True))
            if len(metrics) > 1:
                axes.set_title(metric)
    return out.getvalue()


def _panel(axes: "Axes", rows: pd.DataFrame) -> None:
    for y, row in rows.iterrows():
        if not np.isnan(row.get("row_low", np.nan)):
            axes.plot([row["row_low"], row["row_high"]], [y] * 2, color=BLUE, linewidth=7, alpha=0.3)
        if not np.isnan(row["low"]):
            axes.plot([row["low"], row["high"]], [y] * 2, color=BLUE, linewidth=1.6)
    look: Any = {"markersize": 8, "markerfacecolor": GROUND, "markeredgewidth": 2}
    axes.plot(rows["difference"], rows.index, "o", color=BLUE, **look)
    axes.axvline(0, color=INK, linewidth=1, linestyle=DASHED)
    widest = max(map(abs, axes.get_xlim()))
    axes.set(xlim=(-widest, widest), ylim=(len(rows) - 0.5, -0.5))
    axes.set_yticks(range(len(rows)), [charts.clipped(name, 20) for name in rows["group"]])
    axes.locator_params(axis="x", nbins=3)
    axes.grid(visible=False)


def section(summary: pd.DataFrame, settings: pd.DataFrame | None = None) -> dict[str, Any]:
    """What the template `overview.html` shows of a `summary`: tables of scores, settings and numbers, and figures.

    `settings` is indexed by group; those that are the same in all groups are left out.
    """
    seeded = bool((summary["seeds"] > 1).any())
    rest = summary[summary["difference"].notna()]
    figures = [
        Figure(f"difference-{index}", f"{metric}: difference", forest(rows))
        for index, (metric, rows) in enumerate(rest.groupby("metric", sort=False))
    ]
    return {
        "scores": _scores(summary, seeded),
        "settings": _settings(settings),
        "numbers": _numbers(summary, seeded),
        "figures": figures,
    }


def _scores(summary: pd.DataFrame, seeded: bool) -> Table:
    """A row for each group, and a column for each metric."""
    rows: dict[str, dict[str, str]] = {}
    for _, row in summary.iterrows():
        cells = rows.setdefault(row["group"], {"run": row["group"]})
        if seeded:
            cells["seeds"] = max(cells.get("seeds", ""), str(row["seeds"]))
        deviation = number(row["deviation"], 4, missing="")
        mark = {"better": " ▲", "worse": " ▼"}.get(verdict(row), "")
        score = number(row["mean"], 4, missing="undefined")
        cells[row["metric"]] = score + (f" ± {deviation}" if deviation else "") + mark
    notes = [
        f"▲ and ▼: the 95% interval of the difference to the baseline, {next(iter(rows))}, is above or below 0.",
        "± is the standard deviation over seeds." if seeded else "",
        "The bars of a difference are 95% intervals, thick over dev rows"
        + (" and thin over seeds." if seeded else "."),
    ]
    return Table("", pd.DataFrame(rows.values()).fillna(MISSING), (" ".join(filter(None, notes)),))


def _settings(settings: pd.DataFrame | None) -> Table:
    """A row for each setting in which the groups differ, and a column for each group."""
    if settings is None:
        return Table("", pd.DataFrame())
    text = settings.astype(str)
    differing = text.loc[:, text.nunique() > 1].T
    rows = differing.rename_axis("setting").reset_index()
    return Table("Settings that differ", rows, left=len(rows.columns))


def _numbers(summary: pd.DataFrame, seeded: bool) -> Table:
    """A row for each group and metric with all its numbers; columns without any are left out."""
    rows = pd.DataFrame({"run": summary["group"], "metric": summary["metric"]})
    if seeded:
        rows["seeds"] = summary["seeds"].astype(str)
    columns = (("mean", "mean"), ("deviation", "deviation"), ("paper", "paper"), ("difference", "difference"))
    for title, name in columns:
        if name in summary:
            rows[title] = numbers(summary[name], 4, sign=name == "difference")
    intervals = (("95% of the score", "own_"), ("95% over seeds", ""), ("95% over dev rows", "row_"))
    for title, side in intervals:
        if f"{side}low" in summary:
            ends = summary[[f"{side}low", f"{side}high"]].set_axis(["low", "high"], axis=1)
            rows[title] = between(ends, 4, sign=side != "own_")
    if "rows" in summary:
        rows["dev rows"] = numbers(summary["rows"], 0)
    for title, name in (("right in one only", "only"), ("no interval, as", "why")):
        if name in summary:
            rows[title] = summary[name].fillna("").replace("", MISSING)
    rows["difference is"] = [verdict(row) or MISSING for _, row in summary.iterrows()]
    shown = [name for name in rows if name in ("run", "metric", "mean") or set(rows[name]) != {MISSING}]
    return Table("", rows[shown], left=2)


def write_overview(
    path: Path,
    title: str,
    frame: pd.DataFrame,
    settings: pd.DataFrame | None = None,
    *,
    baseline: str | None = None,
    more: pd.DataFrame | None = None,
    lead: str | Sequence[str] = (),
    figures: Iterable[Figure] = (),
    details: Sequence[Details] = (),
) -> pd.DataFrame:
    """Write a page that compares the groups of a frame, with figures and tasks below, and return its `summary`."""
    table = summary(frame, baseline, more)
    shown, figures = section(table, settings), list(figures)
    sections = [("overview", "Overview"), *([("curves", "Figures")] if figures else [])]
    html = rendered(
        "overview.html",
        title=title,
        sections=[*sections, *((one.anchor, one.title) for one in details)],
        lead=[lead] if isinstance(lead, str) and lead else lead,
        overview=shown,
        figures=figures,
        details=details,
    )
    write_page(path, html, [*shown["figures"], *figures, *(figure for one in details for figure in one.figures)])
    return table
