"""Pictures of a first-stage run, each as SVG and PNG; the same numbers give the same bytes.

Paths come without a suffix. Importing this module loads no matplotlib.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file

from tasks import charts
from tasks.charts import BLUE, GREEN, GREY, INK, ORANGE, VERMILION
from tasks.contrastive.curriculum import GROUPS, difficulty

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = dict(zip(GROUPS, (GREEN, ORANGE, VERMILION), strict=True))


def draw(folder: Path, scores: dict[str, Any], metrics: Sequence[dict[str, Any]], settings: dict[str, Any]) -> None:
    """All pictures of a finished run of stage one, in `pictures/` of its folder."""
    into, name = folder / "pictures", "sts_dev_spearman"
    losses(into / "loss", metrics, scores.get("chance_loss"))
    reached = scores[name]["after"]
    kept = None if reached is None else (scores["step"], reached, scores["keep"])
    spearman(into / "sts-dev", metrics, scores[name]["before"], kept)
    path = folder / "cosines.safetensors"
    taken = load_file(path) if path.is_file() else {}
    if "before positive" in taken:
        first, second = ((taken[f"{when} positive"], taken[f"{when} negative"]) for when in ("before", "after"))
        cosines(into / "cosines", first, second, f"after {scores['step']:,} steps")
    if "start positive" in taken:
        gaps(into / "groups", taken["start positive"], taken["start negative"], settings["margin"])


@contextmanager
def _axes(path: Path, heading: str, across: str, up: str) -> Iterator["Axes"]:
    """Axes to draw on; both files are written when the block ends well."""
    style = {"axes.titlesize": 14, "axes.titleweight": "bold", "axes.titlepad": 14}
    with charts.panels(1, (8.0, 4.5), style=style) as (axes,):
        yield axes
        axes.set(title=heading, xlabel=across, ylabel=up)
        charts.save(axes.figure, path)


def gaps(path: Path, positive: np.ndarray, negative: np.ndarray, margin: float) -> None:
    """Histogram of cos(anchor, positive) - cos(anchor, hard negative), [N] each, coloured by group (SelfCCL, 4.3.1)."""
    gap = np.asarray(positive, dtype=np.float64) - np.asarray(negative, dtype=np.float64)
    groups = difficulty(positive, negative, margin)
    width = margin / max(1, round(margin / 0.025)) if margin > 0 else 0.025  # so that bins end at 0 and at the margin
    edges = np.arange(np.floor(gap.min() / width), np.ceil(gap.max() / width) + 1.5) * width
    with _axes(
        path, "Difficulty of the triplets", "cos(anchor, positive) − cos(anchor, hard negative)", "triplets"
    ) as on:
        for group, name in reversed(list(enumerate(GROUPS))):
            part = gap[groups == group]
            label = f"{name}: {len(part):,} ({len(part) / max(len(gap), 1):.0%})"
            on.hist(part, bins=edges.tolist(), color=COLOURS[name], label=label, edgecolor="white", linewidth=0.4)
        for place, name in ((0.0, "0"), (margin, f"margin {margin:g}")):
            on.axvline(place, color=INK, linewidth=1, linestyle=charts.DASHED)
            on.annotate(
                name,
                (place, 1),
                (4, -2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                va="top",
                fontsize=11,
            )
        charts.thousands(on.yaxis)
        charts.legend(on, 3)


def losses(path: Path, rows: Sequence[dict[str, Any]], chance: float | None) -> None:
    """Loss over steps from rows of `metrics.jsonl`, each a mean since the row before.

    `chance` is ln(number of candidates), the loss of a random guess; None for a loss without one.
    """
    found = [(row["step"], row["nli/loss"]) for row in rows if row["kind"] == "train" and "nli/loss" in row]
    with _axes(path, "Training loss", "step", "loss (nats)") as on:
        _curve(on, found, "loss", BLUE)
        if chance is not None:
            on.axhline(chance, color=GREY, linewidth=1.2, linestyle=charts.DASHED, label=f"chance: {chance:.2f}")
        on.set_ylim(bottom=0, top=1.08 * max([chance or 0.0, *(loss for _, loss in found)]) or 1.0)
        charts.thousands(on.xaxis)
        charts.legend(on, 2)


def spearman(
    path: Path,
    rows: Sequence[dict[str, Any]],
    before: float | None = None,
    kept: tuple[int, float, str] | None = None,
) -> None:
    """Spearman's rho of the evaluations over steps, with its value `before` training.

    The encoder that is `kept` is marked: its step, its rho, and why it is kept. Undefined values (None) are left out.
    """
    key = "sts_dev_spearman"
    found = [(row["step"], row[key]) for row in rows if row["kind"] == "evaluation" and row.get(key) is not None]
    with _axes(path, "STS development set", "step", "Spearman's ρ × 100") as on:
        curve = [(step, 100 * rho) for step, rho in [*([(0, before)] if before is not None else []), *found]]
        _curve(on, curve, "", BLUE, marker="o")
        if before is not None:
            label = f"before: {100 * before:.2f}"
            on.axhline(100 * before, color=GREY, linewidth=1.2, linestyle=charts.DASHED, label=label)
        if kept is not None:
            step, rho, why = kept
            label = f"kept: {100 * rho:.2f}, {f'{why} at step {step:,}' if step else 'before training'}"
            ring: dict[str, Any] = {"markersize": 11, "markerfacecolor": "none", "markeredgecolor": VERMILION}
            on.plot([step], [100 * rho], "o", linestyle="none", label=label, markeredgewidth=2, **ring)
        on.margins(y=0.15)
        charts.thousands(on.xaxis)
        charts.legend(on, 2)


def _curve(axes: "Axes", points: Sequence[tuple[int, float]], label: str, colour: str, marker: str = "") -> None:
    few = "o" if len(points) <= 40 else ""
    steps, values = [step for step, _ in points], [value for _, value in points]
    axes.plot(steps, values, color=colour, marker=marker or few, markersize=4.5, label=label or "_")


def cosines(
    path: Path,
    before: tuple[np.ndarray, np.ndarray],
    after: tuple[np.ndarray, np.ndarray],
    named: str = "after",
) -> None:
    """Histograms of cos(anchor, positive) and cos(anchor, hard negative): lines before training, filled after.

    `named` is what the encoder after training is called in the legend.
    """
    sides = (("positive", BLUE), ("hard negative", VERMILION))
    every = [values for pair in (before, after) for values in pair]
    edges = np.linspace(min(-0.1, *(float(values.min()) for values in every)), 1.0, 56)
    with _axes(path, "Cosine to the anchor", "cosine", "share of the triplets per bin") as on:
        for number, (name, colour) in enumerate(sides):
            for when, pair in (("after", after), ("before", before)):
                look: dict[str, Any] = (
                    {"histtype": "stepfilled", "alpha": 0.45}
                    if when == "after"
                    else {"histtype": "step", "linewidth": 1.8}
                )
                values = pair[number]
                weights = np.full(len(values), 1 / max(len(values), 1))
                label = f"{name}, {named if when == 'after' else when}: mean {values.mean():.2f}"
                on.hist(values, bins=edges.tolist(), weights=weights, color=colour, label=label, **look)
        on.yaxis.set_major_formatter(charts.percent)
        on.set_xlim(edges[0], edges[-1])
        charts.legend(on, 2)


def mix(path: Path, shares: np.ndarray) -> None:
    """Share of each group in each epoch, as `curriculum.mix` gives it: [epochs, 3]."""
    edges = np.arange(len(shares) + 1) + 0.5
    tops = np.hstack([np.zeros((len(shares), 1)), np.cumsum(shares, axis=1)])
    with _axes(path, "What the batches are made of", "epoch", "share of the triplets trained on") as on:
        for group, name in enumerate(GROUPS):
            on.stairs(
                tops[:, group + 1],
                edges,
                baseline=tops[:, group],
                fill=True,
                color=COLOURS[name],
                label=name,
                linewidth=0,
            )
        on.yaxis.set_major_formatter(charts.percent)
        on.set(xlim=(edges[0], edges[-1]), ylim=(0, 1))
        on.grid(visible=False)
        charts.thousands(on.xaxis)
        charts.legend(on, 3)
