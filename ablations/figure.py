"""The figure of a study's first score: a heat map of a grid, a line over one setting, or the arms' differences."""

import math
from typing import Any

import numpy as np
import pandas as pd

from ablations.study import Arm, Study
from tasks import charts
from tasks.charts import BLUE, DASHED, GROUND, INK


def draw(study: Study, summary: pd.DataFrame, score: Any) -> bytes | None:
    """The SVG of the first score of a summary, multiplied by `score.times`; None where there is nothing to show."""
    first = summary[summary["metric"] == score.name]
    arms = [study.arms[name] for name in first["group"]]
    means, spread = (score.times * first[name].to_numpy(dtype=float) for name in ("mean", "deviation"))
    if all(len(arm.labels) == 2 for arm in arms):
        return _heat_map(study, arms, means, score)
    if study.file.x:
        return _line(study, arms, means, spread, score)
    if not first["difference"].notna().any():
        return None
    in_units = ["difference", "low", "high", "row_low", "row_high"]
    shown = first.assign(**score.times * first[in_units])
    return _forest(shown, f"{score.title}:\ndifference to {study.file.baseline}, with 95% intervals")


def _line(study: Study, arms: list[Arm], means: np.ndarray, spread: np.ndarray, score: Any) -> bytes | None:
    """Mean and standard deviation by the value of the setting `x`, without arms measured or started from."""
    key, first = study.x, {arm.upstream for arm in arms}
    flats = [{} if arm.measured or arm.name in first else arm.flat for arm in arms]
    points = sorted(
        (flat[key], mean, bar) for flat, mean, bar in zip(flats, means, np.nan_to_num(spread)) if key in flat
    )
    if not points:
        return None
    x, y, bars = zip(*points, strict=True)
    with charts.page_svg(460, 280) as (axes, out):
        axes.errorbar(x, y, yerr=bars, color=charts.BLUE, marker="o", capsize=3)
        axes.set(xlabel=f"--{study.file.x}", ylabel=score.title)
        if x[0] > 0 and x[-1] / x[0] > 20:
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{value:,g}" for value in x])
            axes.minorticks_off()
    return out.getvalue()


def _heat_map(study: Study, arms: list[Arm], means: np.ndarray, score: Any) -> bytes:
    """The means over the two axes of a grid."""
    of_grid = [arm.labels for arm in study.arms.values() if arm.labels]
    rows, columns = (list(dict.fromkeys(labels[side] for labels in of_grid)) for side in (0, 1))
    values = np.full((len(rows), len(columns)), np.nan)
    for arm, mean in zip(arms, means, strict=True):
        values[rows.index(arm.labels[0]), columns.index(arm.labels[1])] = mean
    with charts.page_svg(140 + 80 * len(columns), 70 + 40 * len(rows)) as (axes, out):
        axes.imshow(values, cmap="Blues", aspect="auto")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        first, second = study.file.axes
        axes.set(ylabel=first, xlabel=second, title=score.title)
        axes.grid(visible=False)
        middle = (np.nanmin(values) + np.nanmax(values)) / 2
        for (row, column), value in np.ndenumerate(values):
            if not math.isnan(value):
                ink = "white" if value > middle else "black"  # in the dark theme too, whose cells are the same
                axes.text(column, row, f"{value:.{score.digits}f}", ha="center", va="center", color=ink)
    return out.getvalue()


def _forest(summary: pd.DataFrame, label: str) -> bytes:
    """Each arm's difference to the baseline in one score; `label` is that of the axis.

    The thick bar is the 95% interval over dev rows, the thin one that over seeds.
    """
    rows = summary[summary["difference"].notna()].reset_index(drop=True)
    with charts.page_svg(340, 72 + 26 * len(rows) + 20 * len(label.splitlines())) as (axes, out):
        for y, row in rows.iterrows():
            if not math.isnan(row["row_low"]):
                axes.plot([row["row_low"], row["row_high"]], [y, y], color=BLUE, linewidth=7, alpha=0.3)
            if not math.isnan(row["low"]):
                axes.plot([row["low"], row["high"]], [y, y], color=BLUE, linewidth=1.6)
        ring: Any = {"markersize": 8, "markerfacecolor": GROUND, "markeredgewidth": 2}
        axes.plot(rows["difference"], rows.index, "o", color=BLUE, **ring)
        axes.axvline(0, color=INK, linewidth=1, linestyle=DASHED)
        widest = max(map(abs, axes.get_xlim()))
        axes.set(xlim=(-widest, widest), ylim=(len(rows) - 0.5, -0.5))
        axes.figure.supxlabel(label, fontsize=11, color=charts.QUIET)  # as wide as the figure
        names = [name if len(name) <= 24 else f"{name[:23]}…" for name in rows["group"]]
        axes.set_yticks(range(len(rows)), names)
        axes.locator_params(axis="x", nbins=3)
        axes.grid(visible=False)
    return out.getvalue()
