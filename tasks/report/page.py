"""The report page: one HTML file that needs nothing else, and lets nothing of the data become markup or script."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from minbert.files import distinct_names, write_atomic
from tasks import compare
from tasks.compare import DEV_NORM
from tasks.intervals import RESAMPLES, Difference
from tasks.report import collect, figures, mistakes, training, views
from tasks.report.collect import Run
from tasks.report.figures import Series


def write(folders: Sequence[Path], out: Path | None = None, *, texts: bool = True) -> Path:
    """Write the page of one run, or of several with their comparison; returns its path.

    `out` is by default `report.html` in a single run's folder, and `runs/comparison.html` for several.
    Raises `UserError` where a folder is not a run's.
    """
    names = distinct_names(list(folders)) if len(folders) > 1 else [""]
    runs = [collect.read(folder, name) for folder, name in zip(folders, names, strict=True)]
    path = out or (folders[0] / "report.html" if len(folders) == 1 else Path("runs/comparison.html"))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A text may hold half of a surrogate pair, which UTF-8 cannot write.
    write_atomic(path, build(runs, texts=texts).encode("utf-8", "replace"))
    return path


def build(runs: Sequence[Run], *, texts: bool = True, resamples: int = RESAMPLES) -> str:
    """The page as one string. Without `texts` no sentence of the data is in it."""
    style, script = _part("style.css"), _part("page.js")
    environment = Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html").render(
        title=runs[0].name if len(runs) == 1 else " and ".join(run.name for run in runs),
        policy=_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=embedded(mistakes.listed(runs, texts=texts)),
        runs=[views.of_run(run, place, resamples) for place, run in enumerate(runs)],
        comparison=_comparison(runs, resamples) if len(runs) > 1 else None,
        resamples=f"{resamples:,}",
        texts=texts,
    )


def embedded(data: Any) -> Markup:
    """Data for a script element of type application/json: nothing in it can end the element or begin another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _part(name: str) -> str:
    return resources.files("tasks.report").joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A policy under which only this very style and script take effect, and nothing is fetched or sent."""

    def hashed(text: str) -> str:
        return f"'sha256-{b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"

    rules = {
        "default-src": "'none'", "style-src": hashed(style), "script-src": hashed(script), "img-src": "data:",
        "base-uri": "'none'", "form-action": "'none'",
    }  # fmt: skip
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _comparison(runs: Sequence[Run], resamples: int) -> dict[str, Any]:
    """Every later run held against the first, the settings that differ, and the curves in one figure each."""
    first = runs[0]
    pairs = [_against(first, other, resamples) for other in runs[1:]]
    return {
        "first": first.name,
        "names": [run.name for run in runs],
        "pairs": pairs,
        "settings": _changed_settings(runs),
        "curves": _together(runs),
    }


def _against(first: Run, other: Run, resamples: int) -> dict[str, Any]:
    norms = (first.dev_norm, other.dev_norm) if first.stage == "multitask" else None
    same = first.stage == other.stage
    found = compare.differences(first.tasks, other.tasks, norms, resamples=resamples) if same else []
    rows = [(_titled(first, one), one.value, one.around) for one in found]
    return {
        "name": other.name,
        "rows": [_row(first, one) for one in found],
        "figure": figures.forest(f"{other.name} less {first.name}", rows, "difference (95% interval)") if rows else "",
    }


def _titled(run: Run, one: Difference) -> str:
    return DEV_NORM if one.name == DEV_NORM else f"{run.tasks[one.name].title}, {one.metric}"


def _row(run: Run, one: Difference) -> dict[str, str]:
    alone = "" if one.only_first is None else f"{one.only_first:,} / {one.only_second:,}"
    return {
        "title": _titled(run, one),
        "first": views.number(one.first, 4),
        "second": views.number(one.second, 4),
        "difference": "undefined" if one.value is None else f"{one.value:+.4f}",
        "around": "" if one.around is None else f"{one.around.low:+.4f} to {one.around.high:+.4f}",
        "rows": f"{one.rows:,}" if one.rows else "",
        "alone": alone,
        "verdict": one.verdict,
    }


def _changed_settings(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """The settings in which runs differ, paths aside, with each run's value; a dash where it has none."""
    places = {"run_dir", "resume", "save_every", "use_gpu", "data"}
    every = dict.fromkeys(name for run in runs for name in run.settings if name not in places)
    shown = {name: [str(run.settings.get(name) or "–") for run in runs] for name in every if not name.endswith("_out")}
    return [(name, values) for name, values in shown.items() if len(set(values)) > 1]


def _together(runs: Sequence[Run]) -> list[dict[str, Any]]:
    found = []
    for key in dict.fromkeys(key for run in runs for key in training.evaluated(run)):
        lines = [Series(run.name, training.points(run.evaluations, key), slot % 5) for slot, run in enumerate(runs)]
        lines = [line for line in lines if line.points]
        if len(lines) > 1:
            title, unit = training.meaning(next(run for run in runs if key in training.evaluated(run)), key)
            drawn = figures.curves(f"{title}: at evaluations", lines, y_label=unit, dots=True)
            found.append({"title": title, "figure": drawn})
    return found
