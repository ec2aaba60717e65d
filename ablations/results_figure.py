"""Draw `docs/results.svg` from `docs/results.json`, which holds numbers of the tables in docs/results.md.

A row is its name in the figure, the value, the error, and how its row in a table of the page begins.

python -m ablations.results_figure
"""

import io
import json
from pathlib import Path
from typing import Any

from tasks import charts
from tasks.charts import BLUE, GRID, GROUND, INK, QUIET, VERMILION

DOCS = Path(__file__).resolve().parent.parent / "docs"
DARK = {INK: "#e8edf3", QUIET: "#9aa7b6", GRID: "#333d49", GROUND: "#12161c", BLUE: "#6cb2ee", VERMILION: "#ff9a5c"}
"""The colour in a dark theme for each colour in a light one."""
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def draw(results: dict[str, Any]) -> str:
    """The SVG: a panel for each entry, a row for each setting with its value and its error, and a line to compare."""
    style = {"svg.fonttype": "none", "font.size": 10, "axes.titlesize": 11, "axes.grid.axis": "x"}
    counts = [len(panel["rows"]) for panel in results.values()]
    size = (8.6, 1.6 + 0.32 * sum(counts))
    with charts.panels(len(counts), size, columns=1, style=style, height_ratios=counts) as panels:
        for axes, panel in zip(panels, results.values(), strict=True):
            names, values, errors, _ = zip(*panel["rows"], strict=True)
            places = range(len(names))[::-1]
            axes.errorbar(values, places, xerr=errors, fmt="o", color=BLUE, markersize=6, capsize=3)
            shown: Any = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
            for place, value in zip(places, values, strict=True):
                axes.annotate(f"{value:.{panel['digits']}f}", (value, place), (0, 6), **shown)
            label, at = panel["line"]
            axes.axvline(at, color=VERMILION, linestyle=charts.DASHED)
            axes.set_yticks(places, names)
            axes.set_ylim(-0.6, len(names) - 0.3)
            axes.set_title(panel["title"])
            axes.set_xlabel(f"{panel['axis']}; dashed: {label}, {at:g}")
        out = io.StringIO()
        figure: Any = panels[0].figure
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _themed(out.getvalue())


def _themed(svg: str) -> str:
    """Colours by CSS variables, which follow the reader's light or dark theme."""
    names = {colour: f"--c{number}" for number, colour in enumerate(DARK)}
    for colour, name in names.items():
        svg = svg.replace(colour, f"var({name})")
    light = " ".join(f"{name}: {colour};" for colour, name in names.items())
    dark = " ".join(f"{name}: {DARK[colour]};" for colour, name in names.items())
    theme = f"<style>svg {{ {light} }} @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>"
    return svg.replace("<defs>", f"{theme}\n <defs>", 1).replace("'DejaVu Sans'", FONT)


def main() -> None:
    """Read the numbers and write the figure."""
    results = json.loads((DOCS / "results.json").read_text(encoding="utf-8"))
    (DOCS / "results.svg").write_text(draw(results), encoding="utf-8")


if __name__ == "__main__":
    main()
