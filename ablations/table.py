"""The results of a study: `table.md` and `table.json`, and a figure of its first score.

Differences and their intervals over seeds and over rows are those of `tasks.compare`.
`pd.DataFrame(**content["values"])` of `table.json` has each run's scores, with six decimals, and `content["summary"]`
the numbers of the tables.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ablations import figure
from ablations.cells import Cell
from ablations.study import STAGE_ONE, Study, matches
from minbert.files import write_atomic
from tasks import compare, intervals, metrics
from tasks.runs import read_run
from tasks.tables import MISSING, Table, between, number, numbers

_HUNDRED = ("sts_dev_spearman", "triplet_accuracy")
_RESAMPLES = 1000
_NOTE = (
    "Mean ± standard deviation over seeds. Difference: that of the means to the baseline's. Over seeds: its 95% "
    "interval by Student's t, paired where both arms have the same seeds. Over rows: its 95% bootstrap interval over "
    "the dev rows, the seeds held fixed. Step: that of the weights which are scored, of the steps of the run. ●: the "
    "best mean and those tied with it, whose difference to it has a 95% interval over seeds that contains 0."
)
_LOWER_IS_BETTER = ("frozen_loss", "last_epoch_loss", "alignment", "uniformity")


@dataclass(frozen=True)
class Score:
    """How a score is displayed: multiplied by `times`, with `digits` decimals."""

    name: str
    title: str
    times: float
    digits: int

    @classmethod
    def of(cls, name: str, study: Study) -> "Score":
        """The display of a score: correlations and accuracies of suites and stage one are × 100."""
        suite = study.file.suites.get(name.partition("/")[0], "") if "/" in name else ""
        hundred = name in _HUNDRED or suite.startswith(("sts_suite", "transfer"))
        title = ", ".join(metrics.DESCRIPTIONS.get(name, (name,)))
        return cls(name, f"{title} × 100", 100.0, 2) if hundred else cls(name, title, 1.0, 4)

    @property
    def size(self) -> dict[str, Any]:
        """The keyword arguments of the functions that print numbers."""
        return {"digits": self.digits, "times": self.times}


def write_results(
    study: Study, cells: Sequence[Cell], seeds: Sequence[int], folder: Path, command: str, failed: dict[str, str]
) -> bool:
    """Write the tables and the figure of the finished cells; False if there are none."""
    done = [cell for cell in cells if not cell.arm.stage and cell.finished]
    frame = long_frame(study, done)
    if frame.empty:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    summary = summary_of(study, frame, done)
    about: dict[str, Any] = {"study": study.name, "command": command, "seeds": list(seeds), **provenance(done)}
    about["missing"] = [cell.name for cell in cells if cell not in done and not cell.arm.stage]
    about |= {"before_training": _before(done), "failed": failed}
    svg = figure.draw(study, summary, Score.of(str(summary["metric"].iloc[0]), study))
    if svg:
        write_atomic(folder / "figure.svg", svg)
    write_atomic(folder / "table.md", markdown(study, summary, about, svg is not None))
    about["paper"] = study.file.paper.model_dump()
    frames = {"summary": summary, "values": frame}
    about |= {
        name: json.loads(one.to_json(orient="split", index=False, double_precision=6)) for name, one in frames.items()
    }
    write_atomic(folder / "table.json", json.dumps(about, ensure_ascii=False) + "\n")
    return True


def values_of(cell: Cell) -> dict[str, float]:
    """Every score of a finished cell by its name; NaN where it is undefined."""
    scores = {} if cell.arm.measured else cell.scores
    values: dict[str, Any] = {}
    if "tasks" in scores:
        values["dev_norm"] = scores["dev_norm"]
        for task, one in scores["tasks"].items():
            values[task] = one["score"]
            for key in ("precision", "recall", "f1"):
                values |= {f"{task}.{key}.{row['label']}": row[key] for row in one["per_class"]}
    for name in STAGE_ONE:
        one = scores.get(name)
        values |= {name: one["after"] if isinstance(one, dict) else one} if name in scores else {}
    for name, _ in cell.suites:
        values |= {f"{name}/{key}": value for key, value in _suite_values(cell.suite(name))}
    return {name: math.nan if value is None else float(value) for name, value in values.items()}


def _suite_values(content: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """(set, or number of removed tokens, value of the first measure); of a probe (measure, mean over its sets)."""
    if "results" in content:
        first = content["results"][0]["measure"]
        yield from ((row["set"], row["value"]) for row in content["results"] if row["measure"] == first)
        return
    parts = [part for part in content.values() if isinstance(part, dict)]
    frame = pd.DataFrame([row for part in parts for row in part.get("results", [])]).astype({"value": float})
    if "removed" in frame:
        frame = frame.dropna(subset="removed")
        yield from zip(frame["removed"].astype(int).astype(str), frame["value"])
    else:
        yield from frame.groupby("measure", sort=False)["value"].mean().items()


def long_frame(study: Study, cells: Sequence[Cell]) -> pd.DataFrame:
    """A row (group, seed, metric, value) for each of the study's scores of each cell; measured arms have no seed."""
    by_arm = sorted(cells, key=lambda cell: [*study.arms].index(cell.arm.name))
    by_cell = [(cell.arm.name, None if cell.arm.measured else cell.seed, values_of(cell)) for cell in by_arm]
    rows = [
        (arm, seed, name, value)
        for wanted in study.file.scores
        for arm, seed, values in by_cell
        for name, value in values.items()
        if matches(name, wanted)
    ]
    frame = pd.DataFrame(rows, columns=["group", "seed", "metric", "value"]).astype({"seed": "Int64"})
    return frame.drop_duplicates(["group", "seed", "metric"], ignore_index=True)


def steps(cells: Sequence[Cell]) -> dict[str, str]:
    """By arm, the steps of the scored weights and of the runs, over seeds; an arm that kept step 0 is not trained."""
    shown: dict[str, str] = {}
    for arm in dict.fromkeys(cell.arm.name for cell in cells if cell.arm.script):
        scores = [cell.scores for cell in cells if cell.arm.name == arm]
        kept, last = ([one.get(key, 0) for one in scores] for key in ("step", "last_step"))
        zeros = kept.count(0)
        untrained = ", not trained" if zeros == len(kept) else f", {zeros} not trained" if zeros else ""
        shown[arm] = f"{_span(kept)} of {_span(last)}{untrained}"
    return shown


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def best(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """A row (group, metric, best) for each arm and score: whether its mean is the best, or tied with the best.

    Tied: the 95% interval over seeds of the difference to the best arm contains 0. Scores of a single seed have no best
    arm, nor have probes, which measure a property.
    """
    parts = []
    for metric, values in frame.groupby("metric", sort=False):
        probe = study.file.suites.get(str(metric).partition("/")[0], "").startswith("probes")
        means = values.groupby("group")["value"].mean().dropna()
        means = -means if metric in _LOWER_IS_BETTER else means
        top = None if means.empty else str(means.idxmax())
        rows = compare.summary(values, top)
        tied = (rows["low"] <= 0) & (rows["high"] >= 0)
        first = (rows["group"] == top) & (rows["seeds"].max() > 1)
        parts.append(rows[["group", "metric"]].assign(best=(tied | first) & (not probe)))
    return pd.concat(parts)


def summary_of(study: Study, frame: pd.DataFrame, cells: Sequence[Cell]) -> pd.DataFrame:
    """The frame's `compare.summary` with the paper's values, intervals over rows, steps, and the best arms."""
    summary = compare.summary(frame, study.file.baseline)
    rows = list(zip(summary["group"], summary["metric"], strict=True))
    printed, of_rows, step = study.file.paper.values, over_rows(study, cells), steps(cells)
    ends = [of_rows.get(row) for row in rows]
    summary = summary.assign(
        paper=[printed.get(arm, {}).get(name, math.nan) / Score.of(name, study).times for arm, name in rows],
        row_low=[one.low if one else math.nan for one in ends],
        row_high=[one.high if one else math.nan for one in ends],
        step=[step.get(arm, MISSING) for arm, _ in rows],
    )
    return summary.merge(best(study, frame), how="left")


def over_rows(study: Study, cells: Sequence[Cell]) -> dict[tuple[str, str], intervals.Interval]:
    """95% bootstrap intervals over dev rows of each arm's mean difference to the baseline, by (arm, score)."""
    trained = [cell for cell in cells if not cell.arm.measured]
    runs = {(cell.arm.name, cell.seed): read_run(cell.folder).tasks for cell in trained}
    baseline = study.file.baseline
    by_score: dict[tuple[str, str], intervals.Interval] = {}
    for arm in dict.fromkeys(cell.arm.name for cell in trained if cell.arm.name != baseline):
        seeds = [seed for name, seed in runs if name == arm and (baseline, seed) in runs]
        if seeds and study.arms[arm].script == study.arms[baseline].script:
            first, second = ([runs[name, seed] for seed in seeds] for name in (baseline, arm))
            for one in compare.differences(first, second, resamples=_RESAMPLES):
                if one.metric == "Spearman's rho" and one.name != "sts":
                    continue  # one of several sets; the score is their mean
                name = "sts_dev_spearman" if one.metric == "Spearman's rho" else one.name.replace(" ", "_")
                by_score |= {(arm, name): one.interval} if one.interval else {}
    return by_score


def provenance(cells: Sequence[Cell]) -> dict[str, Any]:
    """Hashes of the runs' data, their machines and versions."""
    manifests = [cell.manifest for cell in cells if not cell.arm.measured]
    data: dict[str, list[str]] = {}
    for name, value in (pair for one in manifests for pair in one["settings"].items() if pair[0].startswith("data ")):
        hashes = data.setdefault(name.removeprefix("data "), [])
        hashes += [value] if value not in hashes else []
    names = ("processor", "threads", "device", "python", "torch", "commit")
    machines: list[dict[str, Any]] = []
    for one in manifests:
        machine = {name: one["environment"].get(name) for name in names} | {"precision": one["precision"]}
        machines += [machine] if machine not in machines else []
    return {"data_sha256": dict(sorted(data.items())), "machines": machines}


def _before(cells: Sequence[Cell]) -> dict[str, float]:
    """Stage one's scores before training that are the same for every run."""
    scores = [cell.scores for cell in cells if not cell.arm.measured]
    before = {name: {one[name]["before"] for one in scores if isinstance(one.get(name), dict)} for name in STAGE_ONE}
    return {name: values.pop() for name, values in before.items() if len(values) == 1 and None not in values}


def markdown(study: Study, summary: pd.DataFrame, about: Mapping[str, Any], figure: bool) -> str:
    """The tables with their context: the question, the paper's claim, the command, the notes."""
    file = study.file
    parts = [f"# {study.name}", file.question, f"{file.paper.table}: {file.paper.claim}", f"`{about['command']}`"]
    parts += [f"Limits: {file.limits}."] if file.limits else []
    parts += [f"Not in the tables: {', '.join(about['missing'])}."] if about["missing"] else []
    parts += [f"{name} failed: {why}" for name, why in about["failed"].items()]
    for wanted in file.scores:
        rows = summary[[matches(name, wanted) for name in summary["metric"]]]
        if len(rows) and wanted.endswith("*"):
            parts.append(_wide(study, rows, wanted))
        elif len(rows):
            parts.append(_table(study, rows, Score.of(wanted, study), about["before_training"]))
    slips = [(name, score, text) for name, texts in file.paper.slips.items() for score, text in texts.items()]
    parts += [f"\\* A slip of the paper: {name}, {score}: {text}." for name, score, text in slips]
    machines = "; ".join(", ".join(f"{key} {value}" for key, value in one.items()) for one in about["machines"])
    hashes = "\n".join(f"- {name}: `{', '.join(values)}`" for name, values in about["data_sha256"].items())
    parts += ["![figure](figure.svg)"] if figure else []
    parts += [_NOTE, f"Seeds {', '.join(map(str, about['seeds']))}. Made with: {machines}."]
    return "\n\n".join(part.strip() for part in [*parts, "SHA-256 of the data:", hashes]) + "\n"


def _numbers_table(summary: pd.DataFrame, digits: int = 4, *, times: float = 1.0) -> pd.DataFrame:
    """A `compare.summary` as strings, a row for each group and metric; columns of dashes are left out."""
    size: dict[str, Any] = {"digits": digits, "times": times}
    rows = summary[["group", "metric"]].copy()
    rows["seeds"] = summary["seeds"].astype(str)
    rows["mean"] = [compare.mean_text(row, **size) for _, row in summary.iterrows()]
    rows["difference"] = numbers(summary["difference"], **size, sign=True)
    rows["95%, over seeds"] = between(summary, **size, sign=True)
    ends = summary[["row_low", "row_high"]].set_axis(["low", "high"], axis=1)
    rows["95%, over rows"] = between(ends, **size, sign=True)
    return rows.loc[:, [name == "mean" or set(rows[name]) != {MISSING} for name in rows]]


def _table(study: Study, rows: pd.DataFrame, score: Score, before: Mapping[str, float]) -> str:
    """The table of one score: a row for each arm, then the rows that the paper quotes."""
    baseline = study.file.baseline
    table = _numbers_table(rows, **score.size).drop(columns="metric")
    table["mean"] = [text + " ●" * best for text, best in zip(table["mean"], rows["best"], strict=True)]
    table.insert(1, "step", rows["step"])
    table["paper"] = [_printed(study, arm, score.name) for arm in rows["group"]]
    table["group"] = table["group"].replace(baseline, f"{baseline} (baseline)")
    for quoted in (one for one in study.file.paper.quoted if score.name in one.values):
        value = _printed(study, quoted.system, score.name)
        own = {"group": f"{quoted.system}: quoted from {quoted.source}", "paper": value}
        table = pd.concat([table, pd.DataFrame([own])]).fillna(MISSING)
    table = table.loc[:, [set(table[name]) != {MISSING} for name in table]].rename(columns={"group": "arm"})
    notes = (f"Before training: {number(before[score.name], **score.size)}.",) if score.name in before else ()
    return Table(score.title, table, notes).markdown()


def _wide(study: Study, rows: pd.DataFrame, wanted: str) -> str:
    """The table of several scores, a column each: each arm and its values in the paper, then the rows quoted there."""
    stem, shown, score = wanted[:-1], [], Score.of(str(rows["metric"].iloc[0]), study)
    for arm, own in rows.groupby("group", sort=False):
        cells = own.set_index(own["metric"].str.removeprefix(stem)).to_dict("index")
        step = next(iter(cells.values()))["step"]
        means = {name: compare.mean_text(row, **score.size) + " ●" * row["best"] for name, row in cells.items()}
        shown.append({"arm": arm, "step": step} | means)
        if own["paper"].notna().any():
            shown.append({"arm": f"{arm}, paper"} | {name: _printed(study, str(arm), stem + name) for name in cells})
    for quoted in study.file.paper.quoted:
        names = [name for name in quoted.values if matches(name, wanted)]
        values = {name.removeprefix(stem): _printed(study, quoted.system, name) for name in names}
        shown += [{"arm": f"{quoted.system}: quoted from {quoted.source}"} | values] if values else []
    task, _, measure = stem.rstrip("/.").partition(".")
    title = f"{task}: {measure} of each class" if measure else task
    return Table(title, pd.DataFrame(shown).fillna(MISSING)).markdown()


def _printed(study: Study, system: str, score: str) -> str:
    """The paper's number of an arm or a quoted system, with at least two decimals, and a star for a slip."""
    paper = study.file.paper
    values = paper.values | {one.system: one.values for one in paper.quoted}
    value = values.get(system, {}).get(score)
    if value is None:
        return MISSING
    decimals = len(f"{value:.6g}".partition(".")[2])
    return f"{value:.{max(2, decimals)}f}{'*' * (score in paper.slips.get(system, ()))}"
