"""The figures of the suites, one panel for each system, as SVG and PNG; the same numbers give the same bytes.

Paths come without a suffix. Importing this module loads no matplotlib.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from minbert.seeds import numpy_generator
from tasks import charts, metrics
from tasks.charts import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, VERMILION
from tasks.readers.layouts import NLI_CLASSES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, "#56b4e9", GREY)
MARKERS = "osD^vPX"
_COLOURS, _MARKS = (BLUE, GREY, VERMILION), "o^s"  # of entailment, neutral, contradiction
STYLES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))


@contextmanager
def _panels(path: Path, heading: str, count: int, across: str, up: str) -> Iterator[list["Axes"]]:
    """Panels with shared axes under one heading; both files are written unless the block raises an error."""
    columns = 2 if count == 4 else min(count, 3)
    size = (8.0, 4.8) if count == 1 else (4.1 * columns + 0.7, 4.0 * -(-count // columns) + 1.0)
    with charts.panels(count, size, columns=columns, sharex=True, sharey=True) as panels:
        yield panels
        charts.title(panels[0].figure, heading)
        for place, panel in enumerate(panels):
            if place + columns >= count:  # nothing below: a legend would cover a label of the whole figure
                panel.set_xlabel(across)
                panel.tick_params(labelbottom=True)
            if place % columns == 0:
                panel.set_ylabel(up)
        charts.save(panels[0].figure, path)


def scatter(
    path: Path,
    title: str,
    gold: np.ndarray,
    cosines: Mapping[str, np.ndarray],
    relations: np.ndarray | None = None,
    *,
    scale: tuple[float, float],
    divisor: float = 1.0,
) -> None:
    """Human score across, cosine up, a panel for each system (ConSERT, Figure 1; SelfCCL, Figure 4).

    Points are coloured by their score, or by `relations`, an index into `NLI_CLASSES` for each pair. `scale` is the
    lowest and the highest score that the set allows; `divisor` divides the scores on the axis. The line joins the
    median cosine of pairs whose score rounds to the same half point. Points are moved sideways by up to 0.04, so that
    equal scores do not hide each other.
    """
    across = gold + numpy_generator(0, "jitter", len(gold)).uniform(-0.04, 0.04, len(gold))
    low = min(float(values.min()) for values in cosines.values())
    look: Any = {"s": 9, "linewidths": 0, "rasterized": True}
    groups = [] if relations is None else [np.flatnonzero(relations == place) for place in range(len(NLI_CLASSES))]
    order = sorted((place for place, rows in enumerate(groups) if len(rows)), key=lambda place: -len(groups[place]))
    label = f"human score ({scale[0]:g} to {scale[1]:g})" if divisor == 1 else f"human score / {divisor:g}"
    with _panels(path, title, len(cosines), label, "cosine") as panels:
        for panel, (name, values) in zip(panels, cosines.items(), strict=True):
            if relations is None:
                panel.scatter(across, values, c=gold, cmap="viridis", vmin=scale[0], vmax=scale[1], alpha=0.5, **look)
            for place in order:  # the largest group first, so that it hides no other
                how: Any = {"c": _COLOURS[place], "marker": _MARKS[place], "alpha": 0.3, "label": NLI_CLASSES[place]}
                panel.scatter(across[groups[place]], values[groups[place]], **how, **look)
            panel.plot(*_medians(gold, values), color=INK, linewidth=1.8, marker="o", markersize=3.5, label="median")
            value = metrics.spearman(values, gold)
            panel.set_title(f"{name}: ρ × 100 = {'undefined' if value is None else f'{100 * value:.1f}'}")
            panel.set_xlim(float(gold.min()) - 0.1, float(gold.max()) + 0.1)
            panel.xaxis.set_major_formatter(lambda value, _: f"{value / divisor:g}")
            panel.set_ylim(min(low - 0.03, 0.0), 1.03)
        drawn = charts.legend(panels[0], len(order) + 1, markerscale=1.8)
        for mark in drawn.legend_handles:
            mark.set_alpha(1.0)


def _medians(gold: np.ndarray, values: np.ndarray) -> tuple[list[float], list[float]]:
    half = np.round(gold * 2) / 2
    places = sorted(set(half.tolist()))
    return places, [float(np.median(values[half == place])) for place in places]


def histogram(path: Path, groups: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Cosines of kinds of pairs, a panel for each system: `groups[system][kind]`; each kind's bars add up to 1."""
    every = [values for kinds in groups.values() for values in kinds.values() if len(values)]
    edges = np.linspace(min(0.0, *(float(values.min()) for values in every)), 1.0, 41)
    colours = (GREY, VERMILION, BLUE)
    with _panels(path, "Cosine of sentence pairs", len(groups), "cosine", "share of the pairs per bin") as panels:
        for panel, (name, kinds) in zip(panels, groups.items(), strict=True):
            for number, (kind, values) in enumerate(kinds.items()):
                weights = np.full(len(values), 1 / max(len(values), 1))
                how: Any = {"bins": edges.tolist(), "weights": weights, "color": colours[number]}
                panel.hist(values, histtype="stepfilled", alpha=0.28, linewidth=0, **how)
                panel.hist(values, histtype="step", linewidth=1.8, linestyle=STYLES[number], label=kind, **how)
            panel.yaxis.set_major_formatter(charts.percent)
            panel.set_title(name)
            panel.set_xlim(edges[0], 1.0)
        charts.legend(panels[0], 3)


def removed_tokens(path: Path, removed: Sequence[int], curves: Mapping[str, Sequence[float]], sets: str) -> None:
    """Spearman by the number of frequent tokens left out of the mean (ConSERT, Figure 4), with a ring at the best."""
    title = "Leaving the most frequent tokens out of the mean"
    with _panels(path, title, 1, "tokens left out, [CLS] and [SEP] among them", f"Spearman's ρ × 100, {sets}") as (on,):
        for number, (name, values) in enumerate(curves.items()):
            shown, colour = [100 * value for value in values], LINES[number % len(LINES)]
            best = int(np.argmax(shown))
            label = f"{name}: {shown[0]:.2f}, best {shown[best]:.2f} without {removed[best]} tokens"
            look: Any = {"marker": MARKERS[number % len(MARKERS)], "linestyle": STYLES[number % len(STYLES)]}
            on.plot(removed, shown, color=colour, markersize=4.5, label=label, **look)
            ring: Any = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 2, "linestyle": "none"}
            on.plot([removed[best]], [shown[best]], "o", markeredgecolor=colour, **ring)
        on.margins(y=0.12)
        charts.legend(on, 1)


def associations(path: Path, tests: Sequence[str], sizes: Mapping[str, Sequence[float]]) -> None:
    """WEAT's effect sizes, a row for each test and a marker for each system."""
    import matplotlib

    with _panels(path, "Word associations", 1, "WEAT effect size (standard deviations)", "") as (on,):
        places = np.arange(len(tests))[::-1]
        for number, (name, values) in enumerate(sizes.items()):
            shift = 0.16 * ((len(sizes) - 1) / 2 - number)
            look: Any = {"color": LINES[number % len(LINES)], "markersize": 7, "linestyle": "none", "label": name}
            on.plot(values, places + shift, MARKERS[number % len(MARKERS)], **look)
        on.axvline(0, color=INK, linewidth=1)
        on.set_yticks(places, tests, fontsize=10)
        on.set_xlim(-2.05, 2.05)
        on.grid(axis="x", color=matplotlib.rcParams["grid.color"])
        on.tick_params(axis="y", length=0)
        figure: Any = on.figure
        figure.set_size_inches(9.0, 1.6 + 0.42 * len(tests))
        charts.legend(on, 3)
