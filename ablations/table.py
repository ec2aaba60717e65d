"""The outcome of a study: means, spreads and differences to the baseline, as Markdown, CSV, JSON and a figure.

A difference is paired by seed: its interval is Student's t over the seeds' differences, n - 1 degrees of freedom. The
interval over rows holds the seeds fixed: the bootstrap resamples dev rows, the same for all arms and seeds.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from ablations.cells import Cell
from ablations.study import STAGE_ONE, Study, matches
from minbert.files import read_json, write_atomic, write_json
from tasks import charts, intervals
from tasks.benchmarks.results import AVERAGE, MISSING, Table, number
from tasks.record import Rows, read_rows

DELTA, POWER = 0.01, 0.8
_TITLES = {
    "sts_dev_spearman": "STS dev, Spearman × 100",
    "full_pass_loss": "Frozen NT-Xent loss over training triplets",
    "last_epoch_loss": "Mean training loss of the last epoch",
    "triplet_accuracy": "Training triplets told apart, %",
    "alignment": "Alignment",
    "uniformity": "Uniformity",
    "dev_norm": "Dev norm",
    "sst": "SST, accuracy",
    "quora": "Quora, accuracy",
    "sts": "STS, Pearson's r",
}
_HUNDRED = ("sts_dev_spearman", "triplet_accuracy")


@dataclass(frozen=True)
class Score:
    """A score as tables show it: `times` its value, with so many digits."""

    name: str
    title: str
    times: float
    digits: int

    @classmethod
    def of(cls, name: str, study: Study) -> "Score":
        """The display of a score: correlations and accuracies of suites and stage one are × 100."""
        suite = study.file.suites.get(name.partition("/")[0], "") if "/" in name else ""
        hundred = name in _HUNDRED or suite.startswith(("sts_suite", "transfer"))
        return cls(name, _TITLES.get(name, name), 100.0 if hundred else 1.0, 2 if hundred else 4)

    def shown(self, value: float, sign: bool = False) -> str:
        """A value or, with its sign, a difference."""
        return number(value, self.digits, times=self.times, sign=sign)

    def between(self, low: float, high: float) -> str:
        """An interval, or a dash."""
        return MISSING if math.isnan(low) else f"[{self.shown(low, True)}, {self.shown(high, True)}]"


def values_of(cell: Cell) -> dict[str, float]:
    """Every score of a finished cell by its name."""
    found: dict[str, Any] = {}
    scores = {} if cell.arm.measured else read_json(cell.folder / "scores.json")
    if "tasks" in scores:
        found["dev_norm"] = scores["dev_norm"]
        for task, one in scores["tasks"].items():
            found[task] = one["score"]
            for row in one["per_class"]:
                found |= {f"{task}.{key}.{row['label']}": row[key] for key in ("precision", "recall", "f1")}
    else:
        found |= {
            name: one["after"] if isinstance(one, dict) else one for name, one in scores.items() if name in STAGE_ONE
        }
    for name, _ in cell.suites:
        found |= {f"{name}/{key}": value for key, value in _suite_values(cell.suite(name))}
    return {name: math.nan if value is None else float(value) for name, value in found.items()}


def _suite_values(content: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(measure, its mean over the sets), then (set or number of removed tokens, the value of the first measure)."""
    parts = [content, *(part for part in content.values() if isinstance(part, dict))]
    rows = [row for part in parts for row in part.get("results", [])]
    sets = [row for row in rows if row["set"] != AVERAGE and row["value"] is not None]
    for measure in dict.fromkeys(row["measure"] for row in sets):
        yield measure, float(np.mean([row["value"] for row in sets if row["measure"] == measure]))
    for row in rows:
        if row["measure"] == rows[0]["measure"]:
            yield str(row.get("removed", row["set"])), row["value"]


def long_frame(study: Study, cells: Sequence[Cell], seeds: Sequence[int]) -> pd.DataFrame:
    """One row (arm, seed, score, value) for each wanted score of each finished cell; measured arms have every seed."""
    rows = []
    for cell in cells:
        for name, value in values_of(cell).items():
            if any(matches(name, wanted) for wanted in study.file.scores):
                for seed in seeds if cell.arm.measured else [cell.seed]:
                    rows.append({"arm": cell.arm.name, "seed": seed, "score": name, "value": value})
    return pd.DataFrame(rows, columns=["arm", "seed", "score", "value"])


def t_interval(differences: np.ndarray) -> tuple[float, float]:
    """The 95% interval of the mean difference over n seeds, by Student's t; NaN for fewer than two."""
    count = len(differences)
    if count < 2:
        return math.nan, math.nan
    half = stats.t.ppf(0.975, count - 1) * differences.std(ddof=1) / math.sqrt(count)
    return float(differences.mean() - half), float(differences.mean() + half)


def seeds_needed(deviation: float, delta: float = DELTA) -> float:
    """The fewest seeds n with (t_.975 + t_.8) s / sqrt(n) <= delta, t with n - 1 degrees of freedom.

    A paired t test at 5% then finds a true difference of delta in 80% of all cases, if the paired differences have
    the standard deviation s. NaN if s is unknown; counted up to 1,000.
    """
    if math.isnan(deviation):
        return math.nan
    counts = np.arange(2, 1001)
    needed = (stats.t.ppf(0.975, counts - 1) + stats.t.ppf(POWER, counts - 1)) * deviation / np.sqrt(counts)
    return float(counts[np.argmax(needed <= delta)]) if (needed <= delta).any() else 1000.0


def summary(study: Study, frame: pd.DataFrame, rows: dict[tuple[str, str], tuple[float, float]]) -> pd.DataFrame:
    """One row for each score and arm, in the study's order; `rows` are the intervals over rows by (score, arm)."""
    found = []
    for name in _in_order(study, frame):
        wide = frame[frame["score"] == name].pivot(index="seed", columns="arm", values="value")
        for arm in (arm for arm in study.scored if arm in wide):
            values = wide[arm].dropna().to_numpy()
            base = wide.get(study.file.baseline, math.nan)
            apart = (wide[arm] - base).dropna().to_numpy()
            own = arm == study.file.baseline or not len(apart)
            low, high = (math.nan, math.nan) if own else t_interval(apart)
            over_rows = rows.get((name, arm), (math.nan, math.nan))
            deviation = math.nan if own or len(apart) < 2 else float(apart.std(ddof=1))
            found.append(
                {
                    "score": name,
                    "arm": arm,
                    "seeds": len(values),
                    "mean": float(values.mean()) if len(values) else math.nan,
                    "deviation": float(values.std(ddof=1)) if len(values) > 1 else math.nan,
                    "difference": math.nan if own else float(apart.mean()),
                    "low": low,
                    "high": high,
                    "rows_low": over_rows[0],
                    "rows_high": over_rows[1],
                    "seeds_needed": seeds_needed(deviation),
                    "paper": study.file.paper.values.get(arm, {}).get(name, math.nan),
                }
            )
    return pd.DataFrame(found)


def _in_order(study: Study, frame: pd.DataFrame) -> list[str]:
    names = list(dict.fromkeys(frame["score"]))
    return list(dict.fromkeys(name for wanted in study.file.scores for name in names if matches(name, wanted)))


def over_rows(study: Study, cells: Sequence[Cell]) -> dict[tuple[str, str], tuple[float, float]]:
    """95% bootstrap intervals over dev rows of each arm's mean difference to the baseline, by (score, arm).

    Of the tasks' scores, the dev norm, and stage one's Spearman's rho, where all runs have the same dev rows.
    """
    trained = [cell for cell in cells if not cell.arm.measured and not cell.arm.stage]
    draws: dict[str, np.ndarray] = {}
    parts = []
    for score, metric, task in _with_rows(study, trained):
        read = [read_rows(cell.folder / "dev" / f"{task}.jsonl").labelled() for cell in trained]
        if not _same(read):
            continue
        predicted = np.stack([one.predicted for one in read])
        draws[score] = intervals.bootstrap(metric, predicted, read[0].gold, task, resamples=intervals.RESAMPLES // 2)
        parts.append(intervals.normalised(metric, draws[score]))
    if parts and "dev_norm" in study.file.scores:
        draws["dev_norm"] = np.mean(parts, axis=0)
    found = {}
    for score, drawn in draws.items():
        for arm in study.scored:
            both = _paired(trained, arm, study.file.baseline)
            around = (
                intervals.interval(np.mean([drawn[one] - drawn[two] for one, two in both], axis=0)) if both else None
            )
            if around is not None and arm != study.file.baseline:
                found[score, arm] = around.low, around.high
    return found


def _with_rows(study: Study, cells: Sequence[Cell]) -> Iterator[tuple[str, str, str]]:
    """(score, metric, file of dev rows) of the scores that dev rows are recorded of."""
    if not cells or not all((cell.folder / "dev").is_dir() for cell in cells):
        return
    scores = [read_json(cell.folder / "scores.json") for cell in cells]
    if all("tasks" in one for one in scores):
        for task, one in scores[0]["tasks"].items():
            if all(task in other["tasks"] for other in scores) and one["metric"] in intervals.METRICS:
                yield task, one["metric"], task
    elif all((cell.folder / "dev" / "sts.jsonl").is_file() for cell in cells):
        yield "sts_dev_spearman", "Spearman's rho", "sts"


def _same(read: Sequence[Rows]) -> bool:
    first = read[0]
    return all(one.ids == first.ids and np.array_equal(one.gold, first.gold) for one in read)


def _paired(cells: Sequence[Cell], arm: str, baseline: str) -> list[tuple[int, int]]:
    """The places of an arm's cells and of the baseline's with the same seed."""
    places = {(cell.arm.name, cell.seed): place for place, cell in enumerate(cells)}
    seeds = [seed for name, seed in places if name == arm and (baseline, seed) in places]
    return [(places[arm, seed], places[baseline, seed]) for seed in seeds]


def account(cells: Sequence[Cell]) -> dict[str, Any]:
    """What the finished runs were made with: hashes of the data, machines and versions."""
    manifests = [cell.manifest for cell in cells if not cell.arm.measured]
    data: dict[str, list[str]] = {}
    for manifest in manifests:
        for name, value in manifest["settings"].items():
            if name.startswith("data ") and value not in data.setdefault(name.removeprefix("data "), []):
                data[name.removeprefix("data ")].append(value)
    kept = ("processor", "threads", "device", "python", "torch", "commit")
    machines = [
        {key: one["environment"].get(key) for key in kept} | {"precision": one["precision"]} for one in manifests
    ]
    distinct = [json.loads(text) for text in dict.fromkeys(json.dumps(one) for one in machines)]
    return {"data_sha256": dict(sorted(data.items())), "machines": distinct}


def write_outcome(
    study: Study, cells: Sequence[Cell], seeds: Sequence[int], folder: Path, command: str, failed: dict[str, str]
) -> pd.DataFrame:
    """Write `table.md`, `table.csv`, `table.json` and `figure.svg`; returns the long frame of values."""
    done = [cell for cell in cells if cell.finished and not cell.arm.stage]
    frame = long_frame(study, done, seeds)
    folder.mkdir(parents=True, exist_ok=True)
    if frame.empty:
        return frame
    found = summary(study, frame, over_rows(study, done))
    missing = [cell.name for cell in cells if cell not in done and not cell.arm.stage]
    about = {"study": study.name, "command": command, "seeds": list(seeds), **account(done)}
    before = _before(done)
    figure = draw(study, found, folder)
    write_atomic(folder / "table.md", markdown(study, found, about, missing, failed, before, figure))
    found.to_csv(folder / "table.csv", index=False)
    content = about | {"before_training": before, "missing": missing, "failed": failed}
    content |= {"paper": study.file.paper.model_dump(), "summary": _records(found), "values": _records(frame)}
    write_json(folder / "table.json", content)
    return frame


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.to_dict("records")
    return [
        {str(key): None if isinstance(cell, float) and math.isnan(cell) else cell for key, cell in row.items()}
        for row in rows
    ]


def _before(cells: Sequence[Cell]) -> dict[str, float]:
    """Stage one's scores before training, where they are the same for every run."""
    scores = [read_json(cell.folder / "scores.json") for cell in cells if not cell.arm.measured]
    found = {}
    for name in STAGE_ONE:
        values = {one[name]["before"] for one in scores if isinstance(one.get(name), dict)}
        if len(values) == 1 and None not in values:
            found[name] = values.pop()
    return found


def markdown(
    study: Study,
    found: pd.DataFrame,
    about: dict[str, Any],
    missing: Sequence[str],
    failed: dict[str, str],
    before: dict[str, float],
    figure: bool,
) -> str:
    """The tables with what they are made of: the question, the paper's claim, the command, the notes."""
    file = study.file
    parts = [f"# {study.name}", file.question, f"{file.paper.table}: {file.paper.claim}", f"`{about['command']}`"]
    parts += [f"Limits: {file.limits}."] if file.limits else []
    parts += [f"Not in the tables: {', '.join(missing)}."] if missing else []
    parts += [f"{name} failed: {why}" for name, why in failed.items()]
    wide = [wanted for wanted in file.scores if wanted.endswith("*")]
    single = [name for name in dict.fromkeys(found["score"]) if not any(matches(name, one) for one in wide)]
    for name in single:
        parts.append(_table(study, found[found["score"] == name], Score.of(name, study), before).markdown())
    for wanted in wide:
        rows = found[[matches(name, wanted) for name in found["score"]]]
        parts += [_wide(study, rows, wanted).markdown()] if len(rows) else []
    parts += ["![figure](figure.svg)"] if figure else []
    machines = "; ".join(", ".join(f"{key} {value}" for key, value in one.items()) for one in about["machines"])
    hashes = "\n".join(f"- {name}: `{', '.join(values)}`" for name, values in about["data_sha256"].items())
    parts += [
        _NOTE,
        f"Seeds {', '.join(map(str, about['seeds']))}. Made with: {machines}.",
        f"SHA-256 of the data:\n\n{hashes}",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


_NOTE = (
    "Mean ± standard deviation over seeds. Difference: the mean of the seeds' differences to the baseline. Over seeds: "
    "its 95% interval by Student's t with n − 1 degrees of freedom. Over rows: its 95% bootstrap interval over the dev "
    f"rows, the seeds held fixed. Seeds for {DELTA:g}: the fewest n with (t.975 + t.8) s / √n ≤ {DELTA:g} (1.00 if a "
    "score is × 100), s the standard deviation of the paired differences: a paired t test at 5% then finds such a "
    "difference 4 times in 5. With few seeds s itself is uncertain."
)


def _table(study: Study, rows: pd.DataFrame, score: Score, before: dict[str, float]) -> Table:
    """One score: a row an arm, then the rows that the paper quotes."""
    shown = []
    for row in rows.to_dict("records"):
        needed = row["seeds_needed"]
        shown.append(
            {
                "arm": row["arm"] + " (baseline)" * (row["arm"] == study.file.baseline),
                "seeds": str(row["seeds"]),
                "mean": _spread(score, row),
                "difference": score.shown(row["difference"], True),
                "95%, over seeds": score.between(row["low"], row["high"]),
                "95%, over rows": score.between(row["rows_low"], row["rows_high"]),
                f"seeds for {DELTA:g}": MISSING
                if math.isnan(needed)
                else "1,000 or more"
                if needed >= 1000
                else f"{needed:.0f}",
                "paper": _printed(row["paper"]),
            }
        )
    for quoted in study.file.paper.quoted:
        if score.name in quoted.values:
            own = {"arm": f"{quoted.system}: quoted from {quoted.source}", "paper": _printed(quoted.values[score.name])}
            shown.append(dict.fromkeys(shown[0], MISSING) | own)
    table = pd.DataFrame(shown)
    kept = [name for name in table if name == "mean" or set(table[name]) != {MISSING}]
    notes = (f"Before training: {score.shown(before[score.name])}.",) if score.name in before else ()
    return Table(score.title, table[kept], notes)


def _spread(score: Score, row: Any) -> str:
    return score.shown(row["mean"]) + ("" if math.isnan(row["deviation"]) else f" ± {score.shown(row['deviation'])}")


def _printed(value: float) -> str:
    """A number of the paper, with two decimals at least."""
    decimals = len(f"{value:g}".partition(".")[2])
    return MISSING if math.isnan(value) else f"{value:.{max(2, decimals)}f}"


def _wide(study: Study, rows: pd.DataFrame, wanted: str) -> Table:
    """Several scores side by side: a column each, and below an arm's row the paper's."""
    names = list(dict.fromkeys(rows["score"]))
    shown = []
    for arm in dict.fromkeys(rows["arm"]):
        own = rows[rows["arm"] == arm].set_index("score")
        cells = {name.removeprefix(wanted[:-1]): own.loc[name] for name in names if name in own.index}
        score = Score.of(names[0], study)
        shown.append({"arm": arm} | {key: _spread(score, row) for key, row in cells.items()})
        if own["paper"].notna().any():
            shown.append({"arm": f"{arm}, paper"} | {key: _printed(row["paper"]) for key, row in cells.items()})
    for quoted in study.file.paper.quoted:
        printed = {
            name.removeprefix(wanted[:-1]): _printed(value) for name, value in quoted.values.items() if name in names
        }
        shown += [{"arm": f"{quoted.system}: quoted from {quoted.source}"} | printed] if printed else []
    task, _, measure = wanted.rstrip("/*.").partition(".")
    return Table(f"{task}: {measure} of each class" if measure else task, pd.DataFrame(shown).fillna(MISSING))


def draw(study: Study, found: pd.DataFrame, folder: Path) -> bool:
    """The figure of the first score: a heat map of a grid, a line over `x`, nothing for other studies."""
    rows = found[found["score"] == found["score"].iloc[0]].set_index("arm")
    score = Score.of(str(found["score"].iloc[0]), study)
    arms = [study.arms[name] for name in rows.index]
    if arms and all(len(arm.labels) == 2 for arm in arms):
        _heat_map(study, rows, score, folder / "figure")
    elif study.file.x:
        _line(study, rows, score, folder / "figure")
    else:
        return False
    return True


def _line(study: Study, rows: pd.DataFrame, score: Score, path: Path) -> None:
    """Mean and standard deviation over the values of the setting `x`."""
    key = study.file.x.replace("-", "_")
    places = {}
    for name in rows.index:
        arm = study.arms[name]
        value = arm.parsed(arm.words()).settings.flat().get(key) if not arm.measured else None
        if isinstance(value, int | float):
            places[float(value)] = rows.loc[name]
    xs = sorted(places)
    means, spread = ([score.times * places[x][column] for x in xs] for column in ("mean", "deviation"))
    with charts.panels(1, (6.4, 4), columns=1) as (axes,):
        axes.errorbar(xs, means, yerr=np.nan_to_num(spread), color=charts.BLUE, marker="o", capsize=3)
        axes.set_xlabel(f"--{key.replace('_', '-')}")
        axes.set_ylabel(score.title)
        if min(xs) > 0 and max(xs) / min(xs) > 20:
            axes.set_xscale("log")
        charts.save(axes.figure, path)


def _heat_map(study: Study, rows: pd.DataFrame, score: Score, path: Path) -> None:
    """The means over the two axes of a grid."""
    first, second = (
        list(dict.fromkeys(arm.labels[side] for arm in study.arms.values() if arm.labels)) for side in (0, 1)
    )
    values = np.full((len(first), len(second)), np.nan)
    for name in rows.index:
        one, two = study.arms[name].labels
        values[first.index(one), second.index(two)] = score.times * rows.loc[name, "mean"]
    one, two = study.file.axes
    with charts.panels(1, (1.6 + 1.1 * len(second), 1.2 + 0.7 * len(first)), columns=1) as (axes,):
        axes.imshow(values, cmap="Blues", aspect="auto")
        axes.set_xticks(range(len(second)), second)
        axes.set_yticks(range(len(first)), first)
        axes.set_xlabel(f"--{two}" if two in ("views",) else two)
        axes.set_ylabel(one)
        axes.set_title(score.title)
        axes.grid(visible=False)
        middle = np.nanmean([np.nanmin(values), np.nanmax(values)])
        for (row, column), value in np.ndenumerate(values):
            if not math.isnan(value):
                ink = charts.GROUND if value > middle else charts.INK
                axes.text(column, row, f"{value:.{score.digits}f}", ha="center", va="center", color=ink)
        charts.save(axes.figure, path)
