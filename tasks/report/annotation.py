"""A sheet of pairs to label with CBCL's eight categories of errors, and what labelled sheets say.

CBCL (section 6.1) samples 100 failed dev pairs, 100 pairs of train and 100 of dev, and labels the latter as if they had
failed. Importing this module loads no matplotlib.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.files import present, read_toml
from minbert.seeds import numpy_generator
from minbert.token_cache import Row
from tasks import charts, predict
from tasks.charts import BLUE, GREY, VERMILION
from tasks.report.details import failed
from tasks.runs import Run
from tasks.tables import MISSING, Table, number

GROUPS = {"failed": "failed dev pairs", "train": "train pairs", "dev": "dev pairs"}
COUNT = 100  # pairs of each group
CATEGORIES: list[dict[str, str]] = read_toml(Path(__file__).with_name("categories.toml"))["categories"]
"""The categories of CBCL (section 6.1, appendix A.2) in its order: key, name, when to choose it, which of two wins."""
NAMES = {one["key"]: one["name"] for one in CATEGORIES}
_COLUMNS = ["pair", "text", "gold", "category", "group", "id"]


def sample(run: Run, task: str, *, seed: int, data: Path | None = None, count: int = COUNT) -> pd.DataFrame:
    """The pairs of a run to label, the three groups shuffled together, with an empty category.

    A group that has fewer than `count` pairs is taken whole. Pairs are sampled by the counters (seed, "annotation",
    task, group) and (seed, "annotation order", task). `UserError` if the run has no dev rows of `task`, or its data
    files are missing.
    """
    scores = run.tasks.get(task)
    if not run.multitask or scores is None or scores.rows is None:
        raise UserError(f"{run.folder}: has no dev rows of {task}: it must be a finished run of multitask_train.py")
    dev = {row.id: row for row in original_rows(run, task, "dev", data)}
    labelled = scores.rows.labelled()
    every = {
        "failed": [dev[labelled.ids[index]] for index in failed(scores, labelled)],
        "train": original_rows(run, task, "train", data),
        "dev": [dev[id_] for id_ in labelled.ids],
    }
    rows = []
    for group, candidates in every.items():
        for index in numpy_generator(seed, "annotation", task, group).permutation(len(candidates))[:count]:
            row = candidates[index]
            gold = ""
            if not np.isnan(row.label):
                gold = scores.classes[int(row.label)] if scores.classes else f"{row.label:.1f} of 5"
            rows.append({"text": " / ".join(row.texts), "gold": gold, "category": "", "group": group, "id": row.id})
    order = numpy_generator(seed, "annotation order", task).permutation(len(rows))
    return pd.DataFrame([{"pair": str(pair), **rows[index]} for pair, index in enumerate(order, 1)], columns=_COLUMNS)


def original_rows(run: Run, task: str, split: str, data: Path | None = None) -> list[Row]:
    """The rows that a run kept of a data file, in file order, with the texts as published but for white space.

    The course's preprocessing lower-cases what a run records. `UserError` as of `predict.recorded_file`.
    """
    from tasks import readers  # torch
    from tasks.registry import TASKS

    path, kind = predict.recorded_file(run.folder, task, split, data), TASKS[task]()
    opened = readers.open_as(path, kind.kind, split, classes=kind.class_count, clean=False)
    rows = [row for row in opened.rows if isinstance(row, Row)]
    return [Row(row.id, tuple(" ".join(text.split()) for text in row.texts), row.label) for row in rows]


def read_sheet(path: Path) -> pd.DataFrame:
    """A labelled sheet; `UserError` naming the line if it is none, or if no pair has a category.

    Categories are keys or names, in upper or lower case; an empty one is a pair that is not labelled yet.
    """
    try:
        sheet = pd.read_csv(
            present(path), sep="\t", dtype=str, keep_default_na=False, index_col=False, encoding="utf-8-sig"
        )
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise UserError(f"{path}: not tab-separated UTF-8 ({error}): save the sheet as such") from error
    if not set(_COLUMNS) <= set(sheet):
        raise UserError(f"{path}:1: the columns must be {', '.join(_COLUMNS)}")
    keys = sheet["category"].str.strip().str.lower().replace({name.lower(): key for key, name in NAMES.items()})
    for column, values, accepted in (("category", keys, ["", *NAMES]), ("group", sheet["group"], [*GROUPS])):
        for row in sheet.index[~values.isin(accepted)]:
            names = ", ".join(filter(None, accepted))
            raise UserError(f"{path}:{row + 2}: {column} {sheet[column][row]!r} is not one of {names}")
    if not keys.any():
        raise UserError(f"{path}: no pair has a category yet")
    return sheet[["group", "id"]].assign(category=keys)


def counts(sheet: pd.DataFrame) -> pd.DataFrame:
    """The number of labelled pairs by category (row) and group (column), both in their order."""
    labelled = sheet[sheet["category"] != ""]
    return pd.crosstab(labelled["category"], labelled["group"]).reindex(
        index=list(NAMES), columns=list(GROUPS), fill_value=0
    )


def counts_table(sheet: pd.DataFrame, name: str) -> Table:
    """Counts by category and group, with their share of the group."""
    numbers = counts(sheet)
    rows = {"category": list(NAMES.values())}
    for group, title in GROUPS.items():
        total = numbers[group].sum()
        rows[title] = [f"{count} ({count / total:.0%})" if total else MISSING for count in numbers[group]]
    return Table(f"{name}: {numbers.to_numpy().sum()} of {len(sheet)} pairs labelled", pd.DataFrame(rows))


def agreement_table(first: pd.DataFrame, second: pd.DataFrame) -> Table:
    """The agreement of two annotators, over all pairs and in each group; `UserError` if their samples differ."""
    both = first.merge(second, on=["group", "id"], how="outer", suffixes=("_one", "_two"), indicator=True)
    if (both["_merge"] != "both").any():
        raise UserError("the two sheets hold different pairs, so there is no agreement to measure")
    both = both[(both["category_one"] != "") & (both["category_two"] != "")]
    from sklearn.metrics import cohen_kappa_score  # here, as it takes a second to import

    rows = []
    for group, title in {"": "all pairs", **GROUPS}.items():
        one, two = (both[both["group"].str.startswith(group)][f"category_{side}"] for side in ("one", "two"))
        categories = pd.concat([one, two]).nunique()  # kappa is undefined for fewer than two
        value = number(cohen_kappa_score(one, two), 3) if categories > 1 else "undefined"
        rows.append({"pairs": title, "both labelled": str(len(one)), "same": str((one == two).sum()), "kappa": value})
    return Table("Agreement, Cohen's kappa", pd.DataFrame(rows))


def draw_categories(base: Path, sheets: Sequence[pd.DataFrame], names: Sequence[str]) -> Path:
    """Write CBCL's Figure 1 as `base`.svg, a panel for each annotator; equal counts give equal bytes."""
    look: Any = {"axes.grid.axis": "x", "axes.spines.left": False, "font.size": 11}
    size, thick = (8.4 if len(sheets) == 1 else 12.0, 7.2), 0.26
    with charts.panels(len(sheets), size, style=look, sharex=True, sharey=True) as panels:
        for axes, sheet, name in zip(panels, sheets, names, strict=True):
            for offset, (group, colour) in enumerate(zip(GROUPS, (VERMILION, BLUE, GREY), strict=True), start=-1):
                values = counts(sheet)[group].to_numpy()
                total, y = max(values.sum(), 1), np.arange(len(NAMES)) + offset * thick
                label = f"{GROUPS[group]} ({values.sum()})" if len(sheets) == 1 else GROUPS[group]
                bars = axes.barh(y, values / total, thick * 0.88, color=colour, label=label)
                axes.bar_label(bars, [str(count) for count in values], fontsize=8.5, padding=3)
            if len(sheets) > 1:
                axes.set_title(name, fontweight="bold")
            axes.set_yticks(range(len(NAMES)), list(NAMES.values()))
            axes.set_ylim(len(NAMES) - 0.45, -0.55)
            axes.tick_params(axis="y", length=0)
            axes.xaxis.set_major_formatter(charts.percent)
            axes.set_xlabel("share of the group’s pairs")
        charts.title(panels[0].figure, "Reasons to fail, by group of pairs")
        charts.legend(panels[0], 3, alignment="left", title="Numbers are counts of pairs", title_fontsize=10)
        return charts.save(panels[0].figure, base)
