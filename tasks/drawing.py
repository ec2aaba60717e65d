"""How figures look here, and how they are written: one style, SVG and PNG, the same numbers in the same bytes.

Importing this module loads no matplotlib.
"""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#6B6B6B"
INK, GRID = "#222222", "#E6E6E6"
STYLE: Any = {
    "figure.figsize": (8.0, 4.5), "figure.dpi": 100, "savefig.dpi": 200, "figure.facecolor": "white",
    "font.family": "DejaVu Sans", "font.size": 12, "text.color": INK, "svg.hashsalt": "minbert", "path.simplify": True,
    "axes.edgecolor": INK, "axes.linewidth": 0.7, "axes.labelcolor": INK, "axes.labelsize": 12, "axes.titlesize": 14,
    "axes.titlelocation": "left", "axes.titlepad": 14, "axes.titleweight": "bold", "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.8, "xtick.color": INK, "ytick.color": INK, "xtick.major.width": 0.7,
    "ytick.major.width": 0.7, "lines.linewidth": 1.8, "legend.frameon": False, "legend.fontsize": 11,
    "figure.constrained_layout.h_pad": 0.09, "figure.constrained_layout.w_pad": 0.09,
}  # fmt: skip


def save(figure: "Figure", path: Path) -> list[Path]:
    """Write `path`.svg and `path`.png; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        out = io.BytesIO()
        figure.savefig(out, format=kind, metadata=metadata)
        written.append(path.with_name(f"{path.name}.{kind}"))
        write_atomic(written[-1], out.getvalue())
    return written
