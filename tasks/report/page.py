"""The report page: one HTML file that needs nothing else, and lets nothing of the data become markup or script."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from minbert.files import distinct_names, write_atomic
from tasks import compare
from tasks.compare import DEV_NORM
from tasks.intervals import RESAMPLES, Difference, Interval
from tasks.report import figures, measures, papers, pictures, training, views
from tasks.report.collect import Run, read_run
from tasks.report.figures import Series


def write_report(folders: Sequence[Path], out: Path | None = None, *, texts: bool = True) -> Path:
    """Write the page of one run, or of several with their comparison; returns its path.

    `out` is by default `report.html` in a single run's folder, and `runs/comparison.html` for several.
    Raises `UserError` if a folder is not a run's.
    """
    names = distinct_names(list(folders)) if len(folders) > 1 else [""]
    for folder in folders:
        run = read_run(folder)
        if run.finished and not run.multitask and "step" in run.scores and "keep" in run.scores:
            pictures.draw(folder, run.scores, [*run.train, *run.evaluations], run.settings)
            if shares := run.manifest.get("curriculum", {}).get("mix_per_epoch"):
                pictures.mix(folder / "pictures" / "mix", np.array(shares))
    runs = [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]
    path = out or (folders[0] / "report.html" if len(folders) == 1 else Path("runs/comparison.html"))
    write_page(path, build(runs, texts=texts))
    return path


def write_page(path: Path, html: str) -> None:
    """Write a page, whole or not at all; a lone surrogate in a text, which UTF-8 cannot encode, becomes a `?`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, html.encode("utf-8", "replace"))


def build(runs: Sequence[Run], *, texts: bool = True, resamples: int = RESAMPLES) -> str:
    """The page as one string. Without `texts` no sentence of the data is in it."""
    return rendered(
        "page",
        ["style.css"],
        measures.listed_errors(runs, texts=texts),
        title=" and ".join(run.name for run in runs),
        views=[views.run_view(run, place, resamples) for place, run in enumerate(runs)],
        comparison=_comparison(runs, resamples) if len(runs) > 1 else None,
        resamples=resamples,
        texts=texts,
        cbcl=papers.CBCL_DEV,
        metrics=training.METRICS,
    )


def rendered(name: str, styles: Sequence[str], data: Any, **values: Any) -> str:
    """The template `name`.html with its style, its script `name`.js and its data."""
    style, script = "".join(map(_part, styles)), _part(f"{name}.js")
    environment = Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "signed": signed, "bounds": bounds, "duration": training.duration}
    environment.filters["count"] = lambda value: "–" if value is None else f"{value:,}"
    page = {"policy": _policy(style, script), "style": Markup(style), "script": Markup(script)}
    return environment.get_template(f"{name}.html").render(**page, data=embedded(data), **values)


def number(value: float | None, digits: int = 3) -> str:
    """A score for the page."""
    return "undefined" if value is None else f"{value:.{digits}f}"


def signed(value: float | None) -> str:
    """A difference of scores for the page."""
    return "undefined" if value is None else f"{value:+.4f}"


def bounds(around: Interval | None, form: str = ".3f") -> str:
    """An interval for the page, empty without one."""
    return "" if around is None else f"{around.low:{form}} to {around.high:{form}}"


def embedded(data: Any) -> Markup:
    """Data for a script element of type application/json: nothing in it can end the element or begin another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _part(name: str) -> str:
    return resources.files("tasks.report").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A policy that allows only this style and this script, and forbids fetching or sending anything."""
    styles, scripts = (b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    allowed = f"style-src 'sha256-{styles}'; script-src 'sha256-{scripts}'; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _comparison(runs: Sequence[Run], resamples: int) -> dict[str, Any]:
    """Every later run compared with the first, the settings that differ, and the curves in one figure each."""
    first = runs[0]
    pairs = []
    for other in runs[1:]:
        found = run_differences(first, other, resamples)
        rows = [(_titled(first, one), one.value, one.around) for one in found]
        drawn = figures.forest(f"{other.name} less {first.name}", rows, "difference (95% interval)") if rows else ""
        pairs.append({"name": other.name, "figure": drawn, "rows": [(_titled(first, one), one) for one in found]})
    names = [run.name for run in runs]
    return {"names": names, "pairs": pairs, "settings": changed_settings(runs), "curves": _together(runs)}


def run_differences(first: Run, other: Run, resamples: int) -> list[Difference]:
    """The differences of two runs of the same stage; none for runs of different stages."""
    norms = (first.dev_norm, other.dev_norm) if first.multitask else None
    same = first.multitask == other.multitask
    return compare.differences(first.tasks, other.tasks, norms, resamples=resamples) if same else []


def _titled(run: Run, one: Difference) -> str:
    return DEV_NORM if one.name == DEV_NORM else f"{run.tasks[one.name].title}, {one.metric}"


def changed_settings(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """The settings in which runs differ, paths aside, with each run's value; a dash if it has none."""
    places = {"run_dir", "resume", "save_every", "track", "use_gpu", "data"}
    every = dict.fromkeys(name for run in runs for name in run.settings if name not in places)
    shown = {name: [str(run.settings.get(name) or "–") for run in runs] for name in every if not name.endswith("_out")}
    return [(name, values) for name, values in shown.items() if len(set(values)) > 1]


def _together(runs: Sequence[Run]) -> list[tuple[str, Markup]]:
    found = []
    for key in dict.fromkeys(key for run in runs for key in training.evaluated(run)):
        lines = [Series(run.name, training.points(run.evaluations, key), slot % 5) for slot, run in enumerate(runs)]
        lines = [line for line in lines if line.points]
        if len(lines) > 1:
            title, unit = training.meaning(next(run for run in runs if key in training.evaluated(run)), key)
            found.append((title, figures.curves(f"{title}: at evaluations", lines, y_label=unit, dots=True)))
    return found
