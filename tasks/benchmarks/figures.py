"""The figures of the suites, one panel for each system, as SVG; the same numbers give the same bytes.

Paths come without a suffix. Importing this module loads no matplotlib.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks import charts, metrics
from tasks.charts import SLOTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@contextmanager
def _panels(path: Path, heading: str, count: int, across: str, up: str) -> Iterator[list["Axes"]]:
    """Panels with shared axes under one heading; the file is written unless the block raises an error."""
    columns = 2 if count == 4 else min(count, 3)
    size = (8.0, 4.8) if count == 1 else (4.1 * columns + 0.7, 4.0 * -(-count // columns) + 1.0)
    with charts.panels(count, size, columns=columns, sharex=True, sharey=True) as panels:
        yield panels
        charts.title(panels[0].figure, heading)
        for index, panel in enumerate(panels):
            if index + columns >= count:  # nothing below: a legend would cover a label of the whole figure
                panel.set_xlabel(across)
                panel.tick_params(labelbottom=True)
            if index % columns == 0:
                panel.set_ylabel(up)
        charts.save(panels[0].figure, path)


def scatter(
    path: Path,
    title: str,
    gold: np.ndarray,
    cosines: Mapping[str, np.ndarray],
    *,
    scale: tuple[float, float],
    divisor: float = 1.0,
) -> None:
    """Human score across, cosine up, a panel for each system (ConSERT, Figure 1; SelfCCL, Figure 4).

    Points are coloured by their score. `scale` is the lowest and the highest score that the set allows; `divisor`
    divides the scores on the axis.
    """
    low = min(float(values.min()) for values in cosines.values())
    look: Any = {"s": 9, "linewidths": 0, "rasterized": True, "alpha": 0.5, "cmap": "viridis"}
    label = f"human score ({scale[0]:g} to {scale[1]:g})" if divisor == 1 else f"human score / {divisor:g}"
    with _panels(path, title, len(cosines), label, "cosine") as panels:
        for panel, (name, values) in zip(panels, cosines.items(), strict=True):
            panel.scatter(gold, values, c=gold, vmin=scale[0], vmax=scale[1], **look)
            value = metrics.spearman(values, gold)
            panel.set_title(f"{name}: ρ × 100 = {'undefined' if value is None else f'{100 * value:.1f}'}")
            panel.xaxis.set_major_formatter(lambda value, _: f"{value / divisor:g}")
            panel.set_xlim(float(gold.min()) - 0.1, float(gold.max()) + 0.1)
            panel.set_ylim(min(low - 0.03, 0.0), 1.03)


def removed_tokens(path: Path, removed: Sequence[int], curves: Mapping[str, Sequence[float]], sets: str) -> None:
    """Spearman by the number of frequent tokens left out of the mean (ConSERT, Figure 4), with a ring at the best."""
    title = "Leaving the most frequent tokens out of the mean"
    with _panels(path, title, 1, "tokens left out, [CLS] and [SEP] among them", f"Spearman's ρ × 100, {sets}") as (on,):
        for number, (name, values) in enumerate(curves.items()):
            shown, colour = [100 * value for value in values], SLOTS[number % len(SLOTS)]
            best = int(np.argmax(shown))
            label = f"{name}: {shown[0]:.2f}, best {shown[best]:.2f} without {removed[best]} tokens"
            on.plot(removed, shown, color=colour, marker="o", markersize=4.5, label=label)
            ring: Any = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 2, "linestyle": "none"}
            on.plot([removed[best]], [shown[best]], "o", markeredgecolor=colour, **ring)
        on.margins(y=0.12)
        charts.legend(on, 1)
