"""The results of a study: `table.md`, `table.json`, and the figure of its first score.

`pd.DataFrame(**content["values"])` of `table.json` has each run's scores, with six decimals, and `content["summary"]`
the numbers of the tables. Differences and their intervals are those of `tasks.compare`.
"""

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd

from ablations.study import STAGE_ONE_SCORES, STAGE_TWO, ArmRun, Study
from minbert.files import write_atomic
from tasks import charts
from tasks.charts import BLUE, DASHED, GROUND, INK
from tasks.compare import differences, mean_text, summary
from tasks.contrastive.settings import TASK
from tasks.intervals import Interval
from tasks.metrics import DESCRIPTIONS, DEV_NORM
from tasks.registry import TASKS
from tasks.runs import read_run
from tasks.tables import MISSING, Table, interval_text, number

_UNITS = {"sts_suite": "Spearman's rho", "transfer": "accuracy"}  # of a suite's first measure
_LOWER_IS_BETTER = ("frozen_loss", "last_epoch_loss", "alignment", "uniformity")
_NOTE = (
    "Mean ± standard deviation over seeds. Difference: that to the baseline. Over seeds: its 95% interval by Student's "
    "t, paired where both have the same seeds. Over rows: its 95% bootstrap interval over the dev rows, the seeds held "
    "fixed. Step: that of the weights which are scored, of the steps of the run. ●: the best mean and those tied with "
    "it, whose difference to it has a 95% interval over seeds that contains 0."
)


@dataclass(frozen=True)
class ScoreDisplay:
    """How a score is displayed: multiplied by `times`, with `digits` decimals."""

    name: str
    title: str
    times: float
    digits: int

    @classmethod
    def of(cls, name: str, study: Study) -> "ScoreDisplay":
        """The display of a score: correlations and accuracies of suites and stage one are × 100."""
        suite = ""
        title = ", ".join(DESCRIPTIONS.get(name, (name,)))
        if "/" in name:
            # without a slash the name may be a task's, and a suite may have the same name
            suite = study.suites.get(name.partition("/")[0], "")
            unit = _UNITS.get(suite.partition(" ")[0])
            if unit and "/cosine " not in name:
                title = f"{name}, {unit}"
        elif name in TASKS:
            title = f"{name}, {TASKS[name].metric}"
        if name in ("sts_dev_spearman", "triplet_accuracy") or suite.startswith(("sts_suite", "transfer")):
            return cls(name, f"{title} × 100", 100.0, 2)
        return cls(name, title, 1.0, 4)

    @property
    def number_options(self) -> dict[str, Any]:
        """The keyword arguments of the functions that print numbers."""
        return {"digits": self.digits, "times": self.times}


def matches(score: str, wanted: str) -> bool:
    """Whether a score is `wanted`, or matches its pattern, such as `sst.f1.*` or `sts/*`.

    The mean cosines that an STS suite has besides its correlations match no pattern.
    """
    if "/cosine " in score:
        return score == wanted
    return fnmatchcase(score, wanted)


def write_results(study: Study, runs: Sequence[ArmRun], folder: Path, command: str, failed: Mapping[str, str]) -> bool:
    """Write the tables and the figure of the finished runs; returns False if there are none."""
    finished = [run for run in runs if run.name not in failed and run.is_finished()]
    done = [run for run in finished if study.is_scored(run.arm)]
    values = values_frame(study, done)
    if values.empty:
        return False
    # as table.json has them, so that the table can be drawn again from it
    rows = summarise(study, values, done).round(6)
    finished_names = {run.name for run in finished}
    missing = [run.name for run in runs if study.is_scored(run.arm) and run.name not in finished_names]
    about = {
        "study": study.name,
        "command": command,
        "seeds": sorted({run.seed for run in runs}),
        "missing": missing,
        "failed": dict(failed),
        "departures": study.departures(),
        "before_training": scores_before(done),
        **provenance(finished),
    }
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw(study, rows)
    if figure:
        write_atomic(folder / "figure.svg", figure)
    write_atomic(folder / "table.md", markdown(study, rows, about, figure=figure is not None))
    about["paper"] = asdict(study.paper)
    for name, frame in {"summary": rows, "values": values}.items():
        about[name] = json.loads(frame.to_json(orient="split", index=False, double_precision=6))
    write_atomic(folder / "table.json", json.dumps(about, ensure_ascii=False) + "\n")
    return True


# --- numbers


def scores_of(run: ArmRun) -> dict[str, float | None]:
    """Every score of a finished run by its name, None where it is undefined."""
    values: dict[str, float | None] = {}
    # a measured arm has not been trained: its scores are those of the suites
    scores = {} if run.arm.measured else run.scores
    for name in STAGE_ONE_SCORES:
        if name in scores:
            score = scores[name]
            # most are recorded before and after training
            values[name] = score["after"] if isinstance(score, dict) else score
    if "tasks" in scores:
        values["dev_norm"] = scores["dev_norm"]
        for task, report in scores["tasks"].items():
            values[task] = report["score"]
            for row in report["per_class"]:
                for measure in ("precision", "recall", "f1"):
                    values[f"{task}.{measure}.{row['label']}"] = row[measure]
    for suite in run.suites:
        for name, value in suite_scores(run.suite_results(suite)).items():
            values[f"{suite}/{name}"] = value
    return values


def suite_scores(content: Mapping[str, Any]) -> dict[str, float | None]:
    """The first measure of a suite by set; of a probe its measures, or those by number of removed tokens.

    With SICK they include the mean cosine of its pairs by relation, such as `cosine contradiction`.
    """
    if "results" in content:
        first = content["results"][0]["measure"]
        scores = {row["set"]: row["value"] for row in content["results"] if row["measure"] == first}
        sick = content.get("sick") or {"relations": []}
        for row in sick["relations"]:
            # one column of cosines, as the suite is run on one encoder
            (cosine,) = (value for name, value in row.items() if name.startswith("cosine"))
            scores[f"cosine {row['relation']}"] = cosine
        return scores
    rows = []
    for probe in content.values():
        if isinstance(probe, dict):
            rows += [row for row in probe.get("results", []) if row["value"] is not None]
    removed = [row for row in rows if "removed" in row]
    values: dict[str, list[float]] = {}
    for row in removed or rows:
        name = str(int(row["removed"])) if removed else row["measure"]
        values.setdefault(name, []).append(row["value"])
    # a probe has a row for each of its sets
    return {name: sum(of_sets) / len(of_sets) for name, of_sets in values.items()}


def values_frame(study: Study, runs: Sequence[ArmRun]) -> pd.DataFrame:
    """A row (group, seed, metric, value) for each of the study's scores of each run; measured arms have no seed."""
    in_order = sorted(runs, key=lambda run: list(study.arms).index(run.arm.name))
    scores = [scores_of(run) for run in in_order]
    rows = {}
    # scores outside and runs inside: rows, and with them the tables, are in the order of the study's scores
    for wanted in study.scores:
        for run, values in zip(in_order, scores, strict=True):
            seed = None if run.arm.measured else run.seed
            for name, value in values.items():
                if matches(name, wanted):
                    rows[run.arm.name, seed, name] = math.nan if value is None else float(value)
    frame = pd.DataFrame([(*key, value) for key, value in rows.items()], columns=["group", "seed", "metric", "value"])
    return frame.astype({"seed": "Int64"})


def summarise(study: Study, values: pd.DataFrame, runs: Sequence[ArmRun]) -> pd.DataFrame:
    """A row for each arm and score: means and differences over seeds, intervals over rows, the paper's value, ties."""
    rows = summary(values, study.baseline)
    over_rows = intervals_over_rows(study, runs)
    steps = steps_of(runs)
    best = best_arms(study, values)
    columns: dict[str, list[Any]] = {"paper": [], "row_low": [], "row_high": [], "step": [], "best": []}
    for arm, score in zip(rows["group"], rows["metric"], strict=True):
        interval = over_rows.get((arm, score), Interval(math.nan, math.nan))
        printed = study.paper.values.get(arm, {}).get(score, math.nan)
        # papers print most scores times 100, the runs record them as they are
        columns["paper"].append(printed / ScoreDisplay.of(score, study).times)
        columns["row_low"].append(interval.low)
        columns["row_high"].append(interval.high)
        columns["step"].append(steps.get(arm, MISSING))
        columns["best"].append((arm, score) in best)
    return rows.assign(**columns)


def best_arms(study: Study, values: pd.DataFrame) -> set[tuple[str, str]]:
    """(arm, score) of the best mean of each score, and of those tied with it.

    Tied: the 95% interval over seeds of the difference to the best arm contains 0. Scores of a single seed have no best
    arm, nor have probes and cosines, which measure a property.
    """
    best = set()
    for score, of_score in values.groupby("metric", sort=False):
        suite, _, measure = str(score).partition("/")
        if study.suites.get(suite, "").startswith("probes") or measure.startswith("cosine"):
            continue
        # an arm with an undefined score has no mean
        means = of_score.groupby("group")["value"].agg(lambda values: values.mean(skipna=False)).dropna()
        if means.empty:
            continue
        first = str(means.idxmin() if score in _LOWER_IS_BETTER else means.idxmax())
        rows = summary(of_score, first)
        for _, row in rows.iterrows():
            if row["low"] <= 0 <= row["high"] or (row["group"] == first and rows["seeds"].max() > 1):
                best.add((row["group"], str(score)))
    return best


def intervals_over_rows(study: Study, runs: Sequence[ArmRun]) -> dict[tuple[str, str], Interval]:
    """95% bootstrap intervals over dev rows of each arm's mean difference to the baseline, by (arm, score)."""
    baseline = study.arms[study.baseline]
    if baseline.measured:
        return {}
    tasks: dict[str, list[Any]] = {}
    for run in runs:
        if run.arm.command == baseline.command:
            tasks.setdefault(run.arm.name, []).append(read_run(run.folder).tasks)
    by_score = {}
    first = tasks.pop(study.baseline, [])
    if not first:
        return {}
    stage_two = baseline.command == STAGE_TWO
    score_names = {DEV_NORM: "dev_norm"}
    if not stage_two:
        # of several dev sets the score is their mean, which has no rows
        score_names = {"sts": "sts_dev_spearman"}
    for arm, second in tasks.items():
        for difference in differences(first, second, norm=stage_two):
            if difference.interval is not None:
                score = score_names.get(difference.name, difference.name)
                by_score[arm, score] = difference.interval
    return by_score


def steps_of(runs: Sequence[ArmRun]) -> dict[str, str]:
    """By arm, the steps of the scored weights and of the runs, over seeds; an arm that kept step 0 is not trained."""
    scores: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if not run.arm.measured:
            scores.setdefault(run.arm.name, []).append(run.scores)
    steps = {}
    for arm, of_seeds in scores.items():
        kept = [seed["step"] for seed in of_seeds]
        last = [seed["last_step"] for seed in of_seeds]
        steps[arm] = f"{_span(kept)} of {_span(last)}"
        untrained = kept.count(0)
        if untrained == len(kept):
            steps[arm] += ", not trained"
        elif untrained:
            steps[arm] += f", {untrained} not trained"
    return steps


def _span(steps: Sequence[int]) -> str:
    low = min(steps)
    high = max(steps)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def scores_before(runs: Sequence[ArmRun]) -> dict[str, float]:
    """Stage one's scores before training that are the same for every run."""
    before: dict[str, set[float | None]] = {}
    for run in runs:
        if run.arm.measured:
            continue
        scores = run.scores
        for name in STAGE_ONE_SCORES:
            score = scores.get(name)
            if isinstance(score, dict) and "before" in score:
                before.setdefault(name, set()).add(score["before"])
    common = {}
    for name, values in before.items():
        value = values.pop()
        # another value is left where the runs start from different weights
        if not values and value is not None:
            common[name] = value
    return common


def provenance(runs: Sequence[ArmRun]) -> dict[str, Any]:
    """The hashes of the runs' data, their numbers of training rows, and their machines and versions."""
    hashes: dict[str, list[str]] = {}
    rows: list[str] = []
    machines: list[dict[str, Any]] = []
    for run in runs:
        if run.arm.measured:
            continue
        manifest = run.manifest
        for name, value in manifest["settings"].items():
            if name.startswith("data "):
                of_role = hashes.setdefault(name.removeprefix("data "), [])
                if value not in of_role:
                    of_role.append(value)
        of_tasks = manifest["training_rows"]
        counts = ", ".join(f"{name} {count:,}" for name, count in of_tasks.items())
        if list(of_tasks) == [TASK]:
            counts = f"{of_tasks[TASK]:,}"
        if counts not in rows:
            rows.append(counts)
        environment = manifest["environment"]
        machine = {}
        for name in ("processor", "threads", "device", "python", "torch", "commit"):
            machine[name] = environment.get(name)
        machine["precision"] = manifest["precision"]
        if machine not in machines:
            machines.append(machine)
    return {"data_sha256": dict(sorted(hashes.items())), "training_rows": rows, "machines": machines}


# --- tables and figure


def markdown(study: Study, rows: pd.DataFrame, about: Mapping[str, Any], *, figure: bool) -> str:
    """The tables with their context: the question, the paper's claim, the command, the notes."""
    parts = [f"# {study.name}", study.question, f"{study.paper.table}: {study.paper.claim}", f"`{about['command']}`"]
    departures = study.describe_departures()
    if departures:
        parts.append(f"Differs from the paper's settings, which are in brackets. {departures}.")
    if about["training_rows"]:
        parts.append(f"Training rows: {'; '.join(about['training_rows'])}.")
    if study.limits:
        parts.append(f"Limits: {study.limits}.")
    if about["missing"]:
        parts.append(f"Not in the tables: {', '.join(about['missing'])}.")
    for name, reason in about["failed"].items():
        parts.append(f"{name} failed: {reason}")
    for wanted in study.scores:
        of_score = rows[[matches(name, wanted) for name in rows["metric"]]]
        if len(of_score) and wanted.endswith("*"):
            parts.append(table_of_sets(study, of_score, wanted))
        elif len(of_score):
            parts.append(table_of_arms(study, of_score, ScoreDisplay.of(wanted, study), about["before_training"]))
        else:
            parts.append(f"No finished run has the score `{wanted}`.")
    for name, slips in study.paper.slips.items():
        for score, text in slips.items():
            parts.append(f"\\* A slip of the paper: {name}, {score}: {text}.")
    if figure:
        parts.append("![figure](figure.svg)")
    machines = []
    for machine in about["machines"]:
        machines.append(", ".join(f"{key} {value}" for key, value in machine.items()))
    hashes = []
    for name, values in about["data_sha256"].items():
        hashes.append(f"- {name}: `{', '.join(value[:12] for value in values)}`")
    seeds = ", ".join(map(str, about["seeds"]))
    parts += [
        _NOTE,
        f"Seeds {seeds}. Made with: {'; '.join(machines)}.",
        "SHA-256 of the data, its first 12 digits (table.json has all):",
    ]
    parts.append("\n".join(hashes))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def table_of_arms(study: Study, rows: pd.DataFrame, score: ScoreDisplay, before: Mapping[str, float]) -> str:
    """The table of one score: a row for each arm, then the rows that the paper quotes."""
    lines = []
    for _, row in rows.iterrows():
        arm = row["group"]
        lines.append(
            {
                "arm": f"{arm} (baseline)" if arm == study.baseline else arm,
                "step": row["step"],
                "seeds": str(row["seeds"]),
                "mean": mean_text(row, **score.number_options) + (" ●" if row["best"] else ""),
                "difference": number(row["difference"], **score.number_options, sign=True),
                "95%, over seeds": interval_text(row["low"], row["high"], **score.number_options, sign=True),
                "95%, over rows": interval_text(row["row_low"], row["row_high"], **score.number_options, sign=True),
                "paper": printed_value(study, arm, score.name),
            }
        )
    for quoted in study.paper.quoted:
        if score.name in quoted["values"]:
            value = printed_value(study, quoted["system"], score.name)
            lines.append({"arm": f"{quoted['system']}: quoted from {quoted['source']}", "paper": value})
    frame = pd.DataFrame(lines).fillna(MISSING)
    # columns without any value are left out, such as the paper's for a score that it does not print
    frame = frame.loc[:, [set(frame[name]) != {MISSING} for name in frame]]
    notes = []
    if score.name in before:
        notes.append(f"Before training: {number(before[score.name], **score.number_options)}.")
    return Table(score.title, frame, tuple(notes)).markdown()


def table_of_sets(study: Study, rows: pd.DataFrame, wanted: str) -> str:
    """The table of several scores, a column each: rows for each arm, its values in the paper, and quoted systems."""
    prefix = wanted.removesuffix("*")
    score = ScoreDisplay.of(str(rows["metric"].iloc[0]), study)
    lines: list[dict[str, str]] = []
    for arm, of_arm in rows.groupby("group", sort=False):
        means = {"arm": str(arm), "step": of_arm["step"].iloc[0]}
        printed = {"arm": f"{arm}, paper"}
        for _, row in of_arm.iterrows():
            name = row["metric"].removeprefix(prefix)
            means[name] = mean_text(row, **score.number_options) + (" ●" if row["best"] else "")
            printed[name] = printed_value(study, str(arm), row["metric"])
        lines.append(means)
        if of_arm["paper"].notna().any():
            lines.append(printed)
    for quoted in study.paper.quoted:
        line = {}
        for name in quoted["values"]:
            if matches(name, wanted):
                line[name.removeprefix(prefix)] = printed_value(study, quoted["system"], name)
        if line:
            lines.append({"arm": f"{quoted['system']}: quoted from {quoted['source']}", **line})
    task, _, measure = prefix.rstrip("/.").partition(".")
    title = f"{task}: {measure} of each class" if measure else score.title.replace(score.name, task)
    return Table(title, pd.DataFrame(lines).fillna(MISSING)).markdown()


def printed_value(study: Study, system: str, score: str) -> str:
    """The paper's number of an arm or a quoted system, with at least two decimals, and a star for a slip."""
    values = dict(study.paper.values)
    for quoted in study.paper.quoted:
        values[quoted["system"]] = quoted["values"]
    value = values.get(system, {}).get(score)
    if value is None:
        return MISSING
    decimals = len(f"{value:.6g}".partition(".")[2])
    star = "*" if score in study.paper.slips.get(system, {}) else ""
    return f"{value:.{max(2, decimals)}f}{star}"


def draw(study: Study, rows: pd.DataFrame) -> bytes | None:
    """Each arm's difference to the baseline in the first score, as SVG; None without a difference.

    The thick bar is the 95% interval over dev rows, the thin bar the 95% interval over seeds.
    """
    score = ScoreDisplay.of(str(rows["metric"].iloc[0]), study)
    arms = rows[(rows["metric"] == score.name) & rows["difference"].notna()].reset_index(drop=True)
    if arms.empty:
        return None
    arms[["difference", "low", "high", "row_low", "row_high"]] *= score.times
    with charts.page_svg(340, 126 + 26 * len(arms)) as (axes, svg):
        for y, row in arms.iterrows():
            if not math.isnan(row["row_low"]):
                ends = [row["row_low"], row["row_high"]]
                axes.plot(ends, [y, y], color=BLUE, linewidth=7, alpha=0.3, solid_capstyle="butt")
            if not math.isnan(row["low"]):
                axes.plot([row["low"], row["high"]], [y, y], color=BLUE, linewidth=1.6, solid_capstyle="butt")
        ring: Any = {"markersize": 8, "markerfacecolor": GROUND, "markeredgewidth": 2}
        axes.plot(arms["difference"], arms.index, "o", color=BLUE, **ring)
        axes.axvline(0, color=INK, linewidth=1, linestyle=DASHED)
        axes.set(ylim=(len(arms) - 0.5, -0.5))
        labels = []
        for name in arms["group"]:
            labels.append(name if len(name) <= 30 else f"{name[:29]}…")
        axes.set_yticks(range(len(arms)), labels)
        axes.locator_params(axis="x", nbins=3)
        axes.grid(visible=False)
        axes.set_title(study.axis)
        # a number alone says nothing
        baseline = f"{study.axis} {study.baseline}".lstrip() if study.baseline[0].isdigit() else study.baseline
        label = f"{score.title}: difference to {baseline}"
        if len(label) > 58:
            parts = (f"{score.title}:", f"difference to {baseline}")
            label = "\n".join(textwrap.fill(part, 58) for part in parts)
        over_seeds = arms["low"].notna().any()
        over_rows = arms["row_low"].notna().any()
        if over_seeds and over_rows:
            label += "\n95% intervals over seeds (thin) and dev rows (thick)"
        elif over_seeds or over_rows:
            label += f"\n95% intervals over {'seeds' if over_seeds else 'dev rows'}"
        # of the figure, which is wider than the axes
        axes.figure.supxlabel(label, fontsize=11, color=charts.QUIET)
    return svg.getvalue()
