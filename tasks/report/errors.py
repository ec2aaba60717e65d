"""Error analysis after CBCL, section 6.1: its Figure 1, of pairs that people label, and its Table 2, of proper nouns.

python -m tasks.report.errors sample runs/multitask --out pairs.tsv
python -m tasks.report.errors figure pairs.tsv --out figure-1
python -m tasks.report.errors nouns runs/multitask --data data

The paper samples 100 failed dev pairs, 100 pairs of train and 100 of dev, and labels the latter as if they had failed.
"""

import argparse
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.errors import UserError, format_list, reason
from minbert.files import read_toml, require_file, write_atomic
from minbert.seeds import numpy_generator
from minbert.token_cache import Row
from minbert.train import cli
from tasks import charts, manifests, readers, registry
from tasks.augment import wordnet
from tasks.charts import BLUE, GREY, VERMILION
from tasks.record import PredictedRows, TaskScores
from tasks.report.page import failed_rows
from tasks.runs import Run, read_run
from tasks.tables import MISSING, Table

GROUPS = {"failed": "failed dev pairs", "train": "train pairs", "dev": "dev pairs"}
COUNT = 100  # pairs of each group
CATEGORIES: list[dict[str, str]] = read_toml(Path(__file__).with_name("categories.toml"))["categories"]
"""The categories of CBCL (section 6.1, appendix A.2) in its order: key, name, when to choose it, which of two wins."""
NAMES = {category["key"]: category["name"] for category in CATEGORIES}
_COLUMNS = ["pair", "text", "gold", "category", "group", "id"]

EXAMINED = 1300  # dev pairs whose proper nouns are counted, as in CBCL, section 6.1
_EXAMPLES = 3  # pairs of each side
_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_TOKEN = re.compile(rf"{_WORD.pattern}|\d+(?:[.,]\d+)*|[^\w\s]")


def dev_rows(run: Run, task: str) -> tuple[TaskScores, PredictedRows]:
    """A task's scores and labelled dev rows; `UserError` if the run has none."""
    scores = run.tasks.get(task)
    if not run.multitask or scores is None or scores.rows is None:
        raise UserError(
            f"{run.folder}: has no dev rows of {task}: it must be a finished run of multitask_train.py with this task"
        )
    return scores, scores.rows.labelled()


def original_rows(run: Run, task: str, split: str, data: Path | None) -> list[Row]:
    """The usable rows of a run's data file, whatever its --limit; texts as published but for white space.

    The course's preprocessing lower-cases what a run records. Raises `UserError` as `manifests.recorded_file` does.
    """
    path = manifests.recorded_file(run.folder, task, split, data)
    spec = registry.TASKS[task]()
    rows = []
    for row in readers.open_as(path, spec.kind, split, classes=spec.class_count, original=True).rows:
        texts = tuple(" ".join(text.split()) for text in row.texts)
        rows.append(Row(row.id, texts, row.label))
    return rows


# --- Figure 1: the categories of pairs


def sample(run: Run, task: str, *, seed: int, data: Path | None = None) -> pd.DataFrame:
    """The pairs of a run to label, the three groups shuffled together, with an empty category.

    A group that has fewer than 100 pairs is taken whole. Pairs are sampled by the counters (seed, "annotation",
    task, group) and (seed, "annotation order", task). Raises `UserError` as `dev_rows` and `original_rows` do.
    """
    scores, labelled = dev_rows(run, task)
    dev = {row.id: row for row in original_rows(run, task, "dev", data)}
    candidates = {
        "failed": [dev[labelled.ids[index]] for index in failed_rows(scores, labelled)],
        "train": original_rows(run, task, "train", data),
        "dev": [dev[id_] for id_ in labelled.ids],
    }
    pairs = []
    for group, rows in candidates.items():
        chosen = numpy_generator(seed, "annotation", task, group).permutation(len(rows))[:COUNT]
        for index in chosen:
            row = rows[index]
            if scores.classes:
                gold = scores.classes[int(row.label)]
            else:
                gold = f"{row.label:.1f} of 5"
            pairs.append({"text": " / ".join(row.texts), "gold": gold, "category": "", "group": group, "id": row.id})
    order = numpy_generator(seed, "annotation order", task).permutation(len(pairs))
    sheet = pd.DataFrame([pairs[index] for index in order])
    sheet["pair"] = [str(pair) for pair in range(1, len(pairs) + 1)]
    return sheet[_COLUMNS]


def read_sheet(path: Path) -> pd.DataFrame:
    """A labelled sheet: group, id and category; `UserError` naming the line if it is none.

    Categories are keys or names, in upper or lower case; an empty one is a pair that is not labelled yet.
    """
    problem = f"{path}: not tab-separated UTF-8 text with the columns {', '.join(_COLUMNS)}"
    try:
        sheet = pd.read_csv(
            require_file(path),
            sep="\t",
            dtype=str,
            keep_default_na=False,
            index_col=False,
            encoding="utf-8-sig",
            skip_blank_lines=False,  # they count in the line numbers of messages
        )
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise UserError(f"{problem}: {reason(error)}") from error
    if not set(_COLUMNS).issubset(sheet.columns):
        raise UserError(f"{problem}: the first line has {format_list(list(sheet.columns))}")
    sheet = sheet[sheet.ne("").any(axis=1)]
    keys = {name.lower(): key for key, name in NAMES.items()}
    sheet["category"] = sheet["category"].str.strip().str.lower().replace(keys)
    for column, accepted in (("category", ["", *NAMES]), ("group", list(GROUPS))):
        wrong = sheet.index[~sheet[column].isin(accepted)]
        if len(wrong):
            names = ", ".join(filter(None, accepted))
            # the header is line 1
            raise UserError(f"{path}:{wrong[0] + 2}: {column} {sheet[column][wrong[0]]!r} is not one of {names}")
    return sheet[["group", "id", "category"]]


def counts(sheet: pd.DataFrame) -> pd.DataFrame:
    """The number of labelled pairs by category (row) and group (column), both in their order."""
    labelled = sheet[sheet["category"] != ""]
    table = pd.crosstab(labelled["category"], labelled["group"])
    return table.reindex(index=list(NAMES), columns=list(GROUPS), fill_value=0)


def counts_table(sheet: pd.DataFrame, name: str) -> Table:
    """Counts by category and group, with their share of the group."""
    table = counts(sheet)
    columns = {"category": list(NAMES.values())}
    for group, title in GROUPS.items():
        total = table[group].sum()
        cells = []
        for count in table[group]:
            # a group of which no pair is labelled has no shares
            cells.append(f"{count} ({count / total:.0%})" if total else MISSING)
        columns[title] = cells
    return Table(f"{name}: {table.to_numpy().sum()} of {len(sheet)} pairs labelled", pd.DataFrame(columns))


def draw_categories(base: Path, sheet: pd.DataFrame) -> Path:
    """Write CBCL's Figure 1 as `base`.svg: bars of the three groups in each category; equal counts give equal bytes."""
    path = base.with_name(f"{base.name}.svg")
    table = counts(sheet)
    rows = np.arange(len(NAMES))
    thickness = 0.26
    with charts.panels(1, (8.4, 7.2), rc={"axes.grid.axis": "x"}) as (axes,):
        for number, (group, colour) in enumerate(zip(GROUPS, (VERMILION, BLUE, GREY), strict=True)):
            values = table[group].to_numpy()
            shares = values / max(values.sum(), 1)
            # one group above, one on and one below the category's tick
            y = rows + (number - 1) * thickness
            bars = axes.barh(y, shares, thickness * 0.88, color=colour, label=f"{GROUPS[group]} ({values.sum()})")
            axes.bar_label(bars, [str(count) for count in values], fontsize=8.5, padding=3)
        axes.set_yticks(rows, list(NAMES.values()))
        axes.set_ylim(len(NAMES) - 0.45, -0.55)
        axes.xaxis.set_major_formatter(charts.percent)
        axes.set_xlabel("share of the group’s pairs")
        charts.title(axes.figure, "Reasons to fail, by group of pairs")
        charts.legend(axes, 3, title="Numbers are counts of pairs", title_fontsize=10)
        charts.save(axes.figure, path)
    return path


# --- Table 2: proper nouns of correct and failed pairs


def words(text: str) -> list[str]:
    """The words of a text in lower case, hyphens inside them kept, a possessive 's cut off."""
    return [_without_possessive(word).lower() for word in _WORD.findall(text)]


def _without_possessive(word: str) -> str:
    return re.sub(r"[’']s$", "", word)


def proper_nouns(text: str, tag: wordnet.Tagger) -> list[str]:
    """The words of a text with the tag NNP or NNPS, in order, each once."""
    nouns = []
    for token, name in tag(_TOKEN.findall(text)):
        if name in ("NNP", "NNPS") and _WORD.match(token):
            nouns.append(_without_possessive(token))
    return list(dict.fromkeys(nouns))


def pairs_with_nouns(run: Run, task: str, *, seed: int, data: Path | None = None) -> pd.DataFrame:
    """1,300 labelled dev pairs with their proper nouns, and how often training sentences have each.

    The columns are `texts` as published, `right` for a correct prediction, `nouns` with their counts in the training
    files of the run's course tasks, and `rarest`, the least of these (NaN without nouns). A noun is counted as a word
    whatever its case. Pairs are sampled by the counter (seed, "nouns", task). Raises `UserError` as `dev_rows` and
    `original_rows` do, for a task without classes, or if NLTK's data are missing.
    """
    scores, rows = dev_rows(run, task)
    if not scores.classes:
        raise UserError(f"--task {task}: has no classes, so no prediction of it is right or wrong")
    tag = wordnet.tagger(wordnet.find_nltk_data(str(data or "")))
    chosen = numpy_generator(seed, "nouns", task).permutation(len(rows))[:EXAMINED]
    rows = rows.at(np.sort(chosen))
    published = {row.id: row.texts for row in original_rows(run, task, "dev", data)}
    in_training: Counter[str] = Counter()
    for name in run.tasks.keys() & registry.TASKS.keys():
        for row in original_rows(run, name, "train", data):
            for text in row.texts:
                in_training.update(words(text))
    pairs = []
    for id_, right in zip(rows.ids, rows.predicted == rows.gold, strict=True):
        nouns = {}
        for text in published[id_]:
            for noun in proper_nouns(text, tag):
                nouns[noun] = in_training[noun.lower()]
        rarest = min(nouns.values(), default=np.nan)
        pairs.append({"texts": published[id_], "right": right, "nouns": nouns, "rarest": rarest})
    return pd.DataFrame(pairs)


def noun_tables(pairs: pd.DataFrame) -> list[Table]:
    """The summary over all pairs, and three correct and three failed ones with the rarest nouns."""
    rows = []
    examples = []
    for name, right in (("predicted correctly", True), ("predicted incorrectly", False)):
        side = pairs[pairs["right"] == right]
        with_nouns = side.dropna(subset="rarest")
        row = {"dev pairs": name, "examined": f"{len(side):,}", "with a proper noun": f"{len(with_nouns):,}"}
        row["a noun in no training file"] = MISSING
        row["rarest noun: median count"] = MISSING
        if len(with_nouns):
            unseen = int((with_nouns["rarest"] == 0).sum())
            row["a noun in no training file"] = f"{unseen:,} ({unseen / len(with_nouns):.0%})"
            row["rarest noun: median count"] = f"{with_nouns['rarest'].median():g}"
        rows.append(row)
        for pair in with_nouns.sort_values("rarest", kind="stable").head(_EXAMPLES).itertuples():
            nouns = ", ".join(f"{noun}: {count:,}" for noun, count in pair.nouns.items())
            examples.append({"pair": " / ".join(pair.texts), "noun frequency": nouns, "dev pairs": name})
    tables = [Table("Proper nouns and failed pairs", pd.DataFrame(rows))]
    if examples:
        tables.append(Table("Pairs with the rarest nouns", pd.DataFrame(examples), left=3))
    return tables


# --- command line


def _sample(options: argparse.Namespace) -> None:
    out = options.out or options.run / "pairs.tsv"
    cli.require_writable(out)
    if out.exists():
        raise UserError(f"{out}: exists, and may hold categories: choose another --out")
    task = registry.resolve_task(options.task)
    sheet = sample(read_run(options.run), task, seed=options.seed, data=options.data)
    sizes = sheet["group"].value_counts()
    for group, title in GROUPS.items():
        size = sizes.get(group, 0)
        if size < COUNT:
            print(f"note: only {size} {title}: all of them are in the sheet", file=sys.stderr)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, sheet.to_csv(sep="\t", index=False, lineterminator="\n"))
    # the group is hidden so that the label of a pair does not depend on whether the model failed
    print(f"{out}: {len(sheet)} pairs. Open it in a spreadsheet, hide the column `group`, fill in `category` as if a")
    print("model had failed on every pair, and save it as tab-separated text in UTF-8. The categories:\n")
    for category in CATEGORIES:
        meaning = f"{category['meaning']} {category.get('tie', '')}".rstrip()
        text = f"{category['key']:<12} {category['name']}: {meaning}"
        print(textwrap.fill(text, 110, subsequent_indent=" " * 13))


def _figure(options: argparse.Namespace) -> None:
    cli.require_writable(options.out)
    sheet = read_sheet(options.file)
    if not sheet["category"].any():
        raise UserError(f"{options.file}: no pair has a category yet")
    path = draw_categories(options.out or options.file.with_name("error-categories"), sheet)
    print(f"{counts_table(sheet, options.file.name).terminal()}\n\nfigure: {path}")


def _nouns(options: argparse.Namespace) -> None:
    task = registry.resolve_task(options.task)
    pairs = pairs_with_nouns(read_run(options.run), task, seed=options.seed, data=options.data)
    print("\n".join(table.markdown() for table in noun_tables(pairs)).rstrip())


def _parser() -> argparse.ArgumentParser:
    parser = cli.Parser(prog="python -m tasks.report.errors", doc=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{sample,figure,nouns}")
    sample = commands.add_parser("sample", help="write a sheet of pairs to label with categories")
    figure = commands.add_parser("figure", help="count the categories of a labelled sheet, and draw them")
    nouns = commands.add_parser("nouns", help="proper nouns of correct and failed pairs, as Markdown")
    tasks = "sst, quora or sts (default: quora)"
    for command in (sample, nouns):
        command.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run of multitask_train.py")
        command.add_argument("--task", default="quora", metavar="NAME", help=tasks)
        command.add_argument("--seed", type=int, default=0, metavar="N", help="which pairs are sampled (default: 0)")
        command.add_argument("--data", type=Path, metavar="DIR", help="the run's data files, if they have been moved")
    sample.add_argument("--out", type=Path, metavar="FILE", help="the sheet (default: RUN/pairs.tsv)")
    figure.add_argument("file", type=Path, metavar="FILE", help="a labelled sheet")
    base = "without suffix (default: error-categories in the folder of the sheet)"
    figure.add_argument("--out", type=Path, metavar="BASE", help=base)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and run its command."""
    options = _parser().parse_args(arguments)
    commands: dict[str, Callable[[Any], None]] = {"sample": _sample, "figure": _figure, "nouns": _nouns}
    commands[options.command](options)


if __name__ == "__main__":
    cli.run(main)
