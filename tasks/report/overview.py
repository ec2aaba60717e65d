"""Groups of runs compared: mean and deviation over seeds, differences to a baseline with intervals.

A group is a setting, or an arm of a study. Its runs are the rows of a plain frame with the columns group, seed, metric
and value, in the order in which groups and metrics are shown. A group that has no seeds has a missing seed.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from tasks import charts
from tasks.charts import BLUE, DASHED, GROUND, INK
from tasks.tables import MISSING, between, number, numbers


def summary(frame: pd.DataFrame, baseline: str | None = None) -> pd.DataFrame:
    """A row for each group and metric: seeds, mean, deviation, and the difference to `baseline` (default: first group).

    `seeds` counts the values that are defined; `deviation` is that of a sample. `difference` is the mean over the seeds
    that the group and the baseline share, of which there are `pairs`; `low` and `high` are its 95% t interval over
    these seeds. All of these are NaN where undefined.
    """
    baseline = baseline if baseline is not None else frame["group"].iloc[0]
    rows = []
    for (group, metric), one in frame.groupby(["group", "metric"], sort=False):
        base = frame[(frame["group"] == baseline) & (frame["metric"] == metric)]
        gaps = pd.Series(_by_seed(one) - _by_seed(base)).dropna().to_numpy(dtype=float)
        row = {"group": group, "metric": metric, "seeds": one["value"].count(), "mean": one["value"].mean()}
        row |= {"deviation": one["value"].std(ddof=1)}
        rows.append(row if group == baseline else row | _difference(gaps))
    table = pd.DataFrame(rows)
    return table.reindex(columns=list(dict.fromkeys([*table, "difference", "pairs", "low", "high"])))


def _by_seed(rows: pd.DataFrame) -> Any:
    """The value of each seed; of a group without seeds its value alone, which is subtracted from that of every seed."""
    return rows.groupby("seed")["value"].mean() if rows["seed"].notna().any() else rows["value"].mean()


def _difference(gaps: np.ndarray) -> dict[str, float]:
    if len(gaps) < 2:
        return {"difference": gaps.mean() if len(gaps) else np.nan, "pairs": len(gaps)}
    middle, half = gaps.mean(), stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps)
    return {"difference": middle, "pairs": len(gaps), "low": middle - half, "high": middle + half}


def forest(summary: pd.DataFrame, label: str = "") -> bytes:
    """Each group's difference to the baseline in one metric of a `summary`, as SVG; `label` is that of its axis.

    The thick bar is the 95% interval over dev rows, the thin one that over seeds.
    """
    rows = summary[summary["difference"].notna()].reset_index(drop=True)
    with charts.page_svg(340, 72 + 26 * len(rows) + 20 * len(label.splitlines())) as (axes, out):
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
        axes.figure.supxlabel(label, fontsize=11, color=charts.QUIET)  # as wide as the figure
        axes.set_yticks(range(len(rows)), [charts.clipped(name, 24) for name in rows["group"]])
        axes.locator_params(axis="x", nbins=3)
        axes.grid(visible=False)
    return out.getvalue()


def mean_text(row: Any, digits: int = 4, *, times: float = 1.0) -> str:
    """Mean and, over several seeds, standard deviation of a row of a `summary`."""
    mean = number(row["mean"], digits, times=times)
    return mean if np.isnan(row["deviation"]) else f"{mean} ± {number(row['deviation'], digits, times=times)}"


def numbers_table(summary: pd.DataFrame, digits: int = 4, *, times: float = 1.0) -> pd.DataFrame:
    """A `summary` as strings, with the numbers of each group and metric in a row; columns of dashes are left out."""
    size: dict[str, Any] = {"digits": digits, "times": times}
    rows = summary[["group", "metric"]].copy()
    rows["seeds"] = summary["seeds"].astype(str)
    rows["mean"] = [mean_text(row, **size) for _, row in summary.iterrows()]
    rows["difference"] = numbers(summary["difference"], **size, sign=True)
    rows["95%, over seeds"] = between(summary, **size, sign=True)
    if "row_low" in summary:
        ends = summary[["row_low", "row_high"]].set_axis(["low", "high"], axis=1)
        rows["95%, over rows"] = between(ends, **size, sign=True)
    return rows.loc[:, [name == "mean" or set(rows[name]) != {MISSING} for name in rows]]
