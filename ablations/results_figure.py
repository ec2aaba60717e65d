"""Draw `docs/results.svg` from `docs/results.json`, which holds numbers of a table in docs/experiments.md.

A row is its name in the figure, the value, the error, what the error is ("seeds": standard deviation over seeds,
"one": standard error over dev rows of one run or ensemble), and how its row in the page begins.

python -m ablations.results_figure
"""

import json
from pathlib import Path
from typing import Any

from tasks import charts
from tasks.charts import BLUE, VERMILION

DOCS = Path(__file__).resolve().parent.parent / "docs"
KINDS = {"seeds": (BLUE, "o", "mean ± SD over seeds"), "one": (VERMILION, "s", "one result ± SE over dev rows")}


def draw(results: dict[str, Any]) -> bytes:
    """The SVG: a row for each setting, its name above its value and error, so that it stays legible when narrow."""
    rows = results["rows"]
    with charts.page_svg(340, 94 + 32 * len(rows)) as (axes, svg):
        left = min(value - error for _, value, error, *_ in rows)
        for height, (name, value, error, kind, _) in zip(range(len(rows))[::-1], rows, strict=True):
            color, marker, _ = KINDS[kind]
            axes.errorbar(value, height, xerr=error, fmt=marker, color=color, markersize=6, capsize=3)
            axes.annotate(f"{name}: {value:.4f}", (left, height), (0, 8), textcoords="offset points")
        for color, marker, label in KINDS.values():
            axes.plot([], [], marker, color=color, label=label)
        axes.set_yticks([])
        axes.set_ylim(-0.5, len(rows) - 0.2)
        axes.set_title(results["title"])
        axes.set_xlabel(results["axis"])
        axes.grid(axis="x")
        charts.legend(axes, 2)
    return svg.getvalue()


def main() -> None:
    """Read the numbers and write the figure."""
    results = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
    (DOCS / "results.svg").write_bytes(draw(results))


if __name__ == "__main__":
    main()
