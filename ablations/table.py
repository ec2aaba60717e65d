"""The results of a study: `table.md`, `.csv` and `.json`, a figure (a line or a heat map), and a page.

Differences are paired by seed (`tasks.report.overview`). The interval over rows holds the seeds fixed
(`tasks.compare`).
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablations import figure
from ablations.cells import Cell
from ablations.study import STAGE_ONE, Study, matches
from minbert.files import read_json, write_atomic, write_json
from tasks import compare, intervals
from tasks.report import overview
from tasks.report.collect import read_run
from tasks.tables import MISSING, Table, number, records

_TITLES = {
    "sts_dev_spearman": "STS dev, Spearman's rho",
    "frozen_loss": "Frozen NT-Xent loss over training triplets",
    "last_epoch_loss": "Mean training loss of the last epoch",
    "triplet_accuracy": "Training triplets told apart",
    "alignment": "Alignment",
    "uniformity": "Uniformity",
    "dev_norm": "Dev norm",
    "sst": "SST, accuracy",
    "quora": "Quora, accuracy",
    "sts": "STS, Pearson's r",
}
_HUNDRED = ("sts_dev_spearman", "triplet_accuracy")
_LESS = ("frozen_loss", "last_epoch_loss", "alignment", "uniformity")
_RESAMPLES = 1000
_NOTE = (
    "Mean ± standard deviation over seeds. Difference: the mean of the seeds' differences to the baseline. Over seeds: "
    "its 95% interval by Student's t with n − 1 degrees of freedom. Over rows: its 95% bootstrap interval over the dev "
    "rows, the seeds held fixed. Seeds for .01: the fewest n by which a two-sided paired t test at 5% finds a true "
    "difference of .01 (1.00 where a score is × 100) with a power of 80%, by the noncentral t distribution with n − 1 "
    "degrees of freedom and noncentrality .01 √n / s; s is the standard deviation of the paired differences, itself "
    "uncertain with few seeds."
)


@dataclass(frozen=True)
class Score:
    """How a score is displayed: multiplied by `times`, with `digits` decimals. `plain` is the bare value's title."""

    name: str
    plain: str
    times: float
    digits: int

    @property
    def title(self) -> str:
        """The title of the value as it is shown."""
        return f"{self.plain} × 100" if self.times == 100 else self.plain

    @classmethod
    def of(cls, name: str, study: Study) -> "Score":
        """The display of a score: correlations and accuracies of suites and stage one are × 100."""
        suite = study.file.suites.get(name.partition("/")[0], "") if "/" in name else ""
        hundred = name in _HUNDRED or suite.startswith(("sts_suite", "transfer"))
        plain = _TITLES.get(name, name) + " (less is better)" * (name in _LESS)
        return cls(name, plain, 100.0 if hundred else 1.0, 2 if hundred else 4)

    def shown(self, value: float, sign: bool = False) -> str:
        """A value or, with its sign, a difference."""
        return number(value, self.digits, times=self.times, sign=sign)

    def spread(self, row: Any) -> str:
        """Mean and standard deviation of a row of the summary."""
        return self.shown(row["mean"]) + ("" if math.isnan(row["deviation"]) else f" ± {self.shown(row['deviation'])}")

    def between(self, row: Any, low: str, high: str) -> str:
        """An interval of a row of the summary, or a dash."""
        return MISSING if math.isnan(row[low]) else f"[{self.shown(row[low], True)}, {self.shown(row[high], True)}]"


def write_outcome(
    study: Study, cells: Sequence[Cell], seeds: Sequence[int], folder: Path, command: str, failed: dict[str, str]
) -> bool:
    """Write tables, figure and page of the finished cells; False if there are none."""
    done = [cell for cell in cells if not cell.arm.stage and cell.finished]
    frame = long_frame(study, done)
    if frame.empty:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    more = beside(study, frame, over_rows(study, done))
    found = overview.summary(frame, study.file.baseline, more)
    missing = [cell.name for cell in cells if cell not in done and not cell.arm.stage]
    about = {"study": study.name, "command": command, "seeds": list(seeds), **account(done)}
    about |= {"before_training": _before(done), "missing": missing, "failed": failed}
    titles = {name: Score.of(name, study) for name in found["metric"].unique()}
    main = [name for name in titles if name in study.file.scores]
    chosen = frame["metric"].isin(main or list(titles))
    first = found[found["metric"] == next(iter(titles))]
    drawn = figure.draw(study, first, titles[next(iter(titles))])
    plain = {name: score.plain for name, score in titles.items()}
    shown = [one.assign(metric=one["metric"].map(plain)) for one in (frame, more)]
    settings = pd.DataFrame({name: arm.settings for name, arm in study.scored.items()}).T.fillna("")
    lead = f"{study.file.question} {study.file.paper.table}: {study.file.paper.claim}"
    page: dict[str, Any] = {"baseline": study.file.baseline, "more": shown[1], "figures": [drawn] if drawn else []}
    compared = overview.write_overview(
        folder / "report.html", study.name, shown[0][chosen], settings, lead=lead, **page
    )
    figures = {"figure": drawn.svg} if drawn else {}
    figures |= {"differences": overview.forest(compared)} if compared["difference"].notna().any() else {}
    for name, svg in figures.items():
        write_atomic(folder / f"{name}.svg", svg)
    write_atomic(folder / "table.md", markdown(study, found, about, main, list(figures)))
    write_atomic(folder / "table.csv", found.to_csv(index=False))
    content = {"paper": study.file.paper.model_dump(), "summary": records(found), "values": records(frame)}
    write_json(folder / "table.json", about | content)
    return True


def values_of(cell: Cell) -> dict[str, float]:
    """Every score of a finished cell by its name; NaN where it is undefined."""
    found: dict[str, Any] = {}
    scores = {} if cell.arm.measured else read_json(cell.folder / "scores.json")
    if "tasks" in scores:
        found["dev_norm"] = scores["dev_norm"]
        for task, one in scores["tasks"].items():
            found[task] = one["score"]
            for key in ("precision", "recall", "f1"):
                found |= {f"{task}.{key}.{row['label']}": row[key] for row in one["per_class"]}
    for name in STAGE_ONE:
        one = scores.get(name)
        found |= {name: one["after"] if isinstance(one, dict) else one} if name in scores else {}
    for name, command in cell.suites:
        sets = not command.startswith("probes")
        found |= {f"{name}/{key}": value for key, value in _suite_values(cell.suite(name), sets=sets)}
    return {name: math.nan if value is None else float(value) for name, value in found.items()}


def _suite_values(content: dict[str, Any], *, sets: bool) -> Iterator[tuple[str, float | None]]:
    """(set, or number of removed tokens, value of the first measure); of a probe (measure, mean over its sets)."""
    parts = [content, *(part for part in content.values() if isinstance(part, dict))]
    rows = [row for part in parts for row in part.get("results", [])]
    if sets or any("removed" in row for row in rows):
        yield from ((str(row.get("removed", row["set"])), row["value"]) for row in rows if _first(row, rows))
    else:
        for measure in dict.fromkeys(row["measure"] for row in rows):
            values = [row["value"] for row in rows if row["measure"] == measure and row["value"] is not None]
            yield measure, float(np.mean(values)) if values else None


def _first(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> bool:
    return bool(row["measure"] == rows[0]["measure"])


def long_frame(study: Study, cells: Sequence[Cell]) -> pd.DataFrame:
    """A row (group, seed, metric, value) for each of the study's scores of each cell; measured arms have no seed."""
    rows = []
    for cell in cells:
        for name, value in values_of(cell).items():
            seed = None if cell.arm.measured else cell.seed
            rows.append({"group": cell.arm.name, "seed": seed, "metric": name, "value": value})
    frame = pd.DataFrame(rows, columns=["group", "seed", "metric", "value"]).astype({"seed": "Int64"})
    order = {
        name: place
        for place, wanted in enumerate(study.file.scores)
        for name in frame["metric"].unique()
        if matches(name, wanted)
    }
    arms = {name: place for place, name in enumerate(study.arms)}
    keys = [frame["metric"].map(order), frame["group"].map(arms)]
    frame = frame.assign(score=keys[0], arm=keys[1]).dropna(subset="score")
    return frame.sort_values(["score", "arm"], kind="stable").drop(columns=["score", "arm"]).reset_index(drop=True)


def beside(study: Study, frame: pd.DataFrame, rows: dict[tuple[str, str], intervals.Interval]) -> pd.DataFrame:
    """The paper's value and the interval over rows, by arm and score, in the units of the runs."""
    found = []
    for group, metric in frame[["group", "metric"]].drop_duplicates().itertuples(index=False):
        around, score = rows.get((metric, group)), Score.of(metric, study)
        paper = study.file.paper.values.get(group, {}).get(metric, math.nan) / score.times
        low, high = (around.low, around.high) if around else (math.nan, math.nan)
        found.append({"group": group, "metric": metric, "paper": paper, "row_low": low, "row_high": high})
        found[-1]["less_is_better"] = metric in _LESS
    return pd.DataFrame(found)


def over_rows(study: Study, cells: Sequence[Cell]) -> dict[tuple[str, str], intervals.Interval]:
    """95% bootstrap intervals over dev rows of each arm's mean difference to the baseline, by (score, arm)."""
    trained = [cell for cell in cells if not cell.arm.measured]
    runs = {(cell.arm.name, cell.seed): read_run(cell.folder).tasks for cell in trained}
    baseline = study.file.baseline
    found: dict[tuple[str, str], intervals.Interval] = {}
    for arm in dict.fromkeys(cell.arm.name for cell in trained if cell.arm.name != baseline):
        seeds = [seed for name, seed in runs if name == arm and (baseline, seed) in runs]
        if seeds and study.arms[arm].script == study.arms[baseline].script:
            first, second = ([runs[name, seed] for seed in seeds] for name in (baseline, arm))
            for one in compare.differences(first, second, (None, None), resamples=_RESAMPLES):
                if one.metric == "Spearman's rho" and one.name != "sts":
                    continue  # one of several sets; the score is their mean
                name = "sts_dev_spearman" if one.metric == "Spearman's rho" else one.name.replace(" ", "_")
                found |= {(name, arm): one.around} if one.around else {}
    return found


def account(cells: Sequence[Cell]) -> dict[str, Any]:
    """Provenance of the runs: hashes of the data, machines and versions."""
    manifests = [cell.manifest for cell in cells if not cell.arm.measured]
    data: dict[str, list[str]] = {}
    for name, value in (pair for one in manifests for pair in one["settings"].items() if pair[0].startswith("data ")):
        known = data.setdefault(name.removeprefix("data "), [])
        known += [value] if value not in known else []
    kept = ("processor", "threads", "device", "python", "torch", "commit")
    machines = [
        {key: one["environment"].get(key) for key in kept} | {"precision": one["precision"]} for one in manifests
    ]
    distinct = [json.loads(text) for text in dict.fromkeys(json.dumps(one) for one in machines)]
    return {"data_sha256": dict(sorted(data.items())), "machines": distinct}


def _before(cells: Sequence[Cell]) -> dict[str, float]:
    """Stage one's scores before training that are the same for every run."""
    scores = [read_json(cell.folder / "scores.json") for cell in cells if not cell.arm.measured]
    found = {name: {one[name]["before"] for one in scores if isinstance(one.get(name), dict)} for name in STAGE_ONE}
    return {name: values.pop() for name, values in found.items() if len(values) == 1 and None not in values}


def markdown(
    study: Study, found: pd.DataFrame, about: dict[str, Any], main: Sequence[str], figures: Sequence[str]
) -> str:
    """The tables with their context: the question, the paper's claim, the command, the notes."""
    file = study.file
    parts = [f"# {study.name}", file.question, f"{file.paper.table}: {file.paper.claim}", f"`{about['command']}`"]
    parts += [f"Limits: {file.limits}."] if file.limits else []
    parts += [f"Not in the tables: {', '.join(about['missing'])}."] if about["missing"] else []
    parts += [f"{name} failed: {why}" for name, why in about["failed"].items()]
    for name in main:
        parts.append(_table(study, found[found["metric"] == name], Score.of(name, study), about["before_training"]))
    for wanted in (wanted for wanted in file.scores if wanted.endswith("*")):
        rows = found[[matches(name, wanted) for name in found["metric"]]]
        parts += [_wide(study, rows, wanted)] if len(rows) else []
    machines = "; ".join(", ".join(f"{key} {value}" for key, value in one.items()) for one in about["machines"])
    hashes = "\n".join(f"- {name}: `{', '.join(values)}`" for name, values in about["data_sha256"].items())
    parts += [f"![{name}]({name}.svg)" for name in figures]
    parts += [_NOTE, f"Seeds {', '.join(map(str, about['seeds']))}. Made with: {machines}."]
    return "\n\n".join(part.strip() for part in [*parts, "SHA-256 of the data:", hashes]) + "\n"


def _table(study: Study, rows: pd.DataFrame, score: Score, before: dict[str, float]) -> str:
    """The table of one score: a row for each arm, then the rows that the paper quotes."""
    shown = [
        {
            "arm": row["group"] + " (baseline)" * (row["group"] == study.file.baseline),
            "seeds": str(row["seeds"]),
            "mean": score.spread(row),
            "difference": score.shown(row["difference"], True),
            "95%, over seeds": score.between(row, "low", "high"),
            "95%, over rows": score.between(row, "row_low", "row_high"),
            "seeds for .01": MISSING if math.isnan(row["seeds_for"]) else f"{row['seeds_for']:.0f}",
            "paper": _printed(row["paper"] * score.times),
        }
        for row in rows.to_dict("records")
    ]
    for quoted in (one for one in study.file.paper.quoted if score.name in one.values):
        own = {"arm": f"{quoted.system}: quoted from {quoted.source}", "paper": _printed(quoted.values[score.name])}
        shown.append(dict.fromkeys(shown[0], MISSING) | own)
    table = pd.DataFrame(shown)
    kept = [name for name in table if name == "mean" or set(table[name]) != {MISSING}]
    notes = (f"Before training: {score.shown(before[score.name])}.",) if score.name in before else ()
    return Table(score.title, table[kept], notes).markdown()


def _wide(study: Study, rows: pd.DataFrame, wanted: str) -> str:
    """The table of several scores, a column each: each arm and its values in the paper, then the rows quoted there."""
    stem, shown, score = wanted[:-1], [], Score.of(str(rows["metric"].iloc[0]), study)
    for arm, own in rows.groupby("group", sort=False):
        cells = own.set_index(own["metric"].str.removeprefix(stem)).to_dict("index")
        shown.append({"arm": arm} | {name: score.spread(row) for name, row in cells.items()})
        if own["paper"].notna().any():
            paper = {name: _printed(row["paper"] * score.times) for name, row in cells.items()}
            shown.append({"arm": f"{arm}, paper"} | paper)
    for quoted in study.file.paper.quoted:
        values = {
            name.removeprefix(stem): _printed(value) for name, value in quoted.values.items() if matches(name, wanted)
        }
        shown += [{"arm": f"{quoted.system}: quoted from {quoted.source}"} | values] if values else []
    task, _, measure = stem.rstrip("/.").partition(".")
    return Table(
        f"{task}: {measure} of each class" if measure else task, pd.DataFrame(shown).fillna(MISSING)
    ).markdown()


def _printed(value: float) -> str:
    """A number of the paper, with at least two decimals."""
    decimals = len(f"{value:.6g}".partition(".")[2])
    return MISSING if math.isnan(value) else f"{value:.{max(2, decimals)}f}"
