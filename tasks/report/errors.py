"""Error analysis after CBCL, section 6.1: sample pairs to label, draw its Figure 1, and count proper nouns (Table 2).

python -m tasks.report.errors sample runs/multitask --out pairs.tsv
python -m tasks.report.errors figure first.tsv second.tsv --out figure-1
python -m tasks.report.errors nouns runs/multitask --data data

The paper samples 100 failed dev pairs, 100 pairs of train and 100 of dev, and labels the latter as if they had failed.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from minbert.errors import UserError
from minbert.files import distinct_names, read_toml, require_file, write_atomic
from minbert.seeds import numpy_generator
from minbert.token_cache import Row
from minbert.train import cli
from tasks import charts, predict
from tasks.augment import wordnet
from tasks.charts import BLUE, GREY, VERMILION
from tasks.record import PredictedRows, TaskScores
from tasks.report.details import failed
from tasks.runs import Run, read_run
from tasks.tables import MISSING, Table, number

GROUPS = {"failed": "failed dev pairs", "train": "train pairs", "dev": "dev pairs"}
COUNT = 100  # pairs of each group
CATEGORIES: list[dict[str, str]] = read_toml(Path(__file__).with_name("categories.toml"))["categories"]
"""The categories of CBCL (section 6.1, appendix A.2) in its order: key, name, when to choose it, which of two wins."""
NAMES = {one["key"]: one["name"] for one in CATEGORIES}
_COLUMNS = ["pair", "text", "gold", "category", "group", "id"]

EXAMINED = 1300  # dev pairs whose proper nouns are counted, as in CBCL, section 6.1
SHOWN = 3  # pairs of each side
_WORD = re.compile(r"[^\W\d_]+(?:[-’'][^\W\d_]+)*")
_TOKEN = re.compile(rf"{_WORD.pattern}|\d+(?:[.,]\d+)*|[^\w\s]")


def _parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.report.errors", description=about, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{sample,figure,nouns}")
    sample = commands.add_parser("sample", help="write a sheet of pairs to label with categories")
    figure = commands.add_parser("figure", help="draw the categories, and measure how far two people agree")
    nouns = commands.add_parser("nouns", help="proper nouns of correct and failed pairs, as Markdown")
    tasks = "sst, quora, sts or one of your own (default: quora)"
    for one in (sample, nouns):
        one.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run of multitask_train.py")
        one.add_argument("--task", default="quora", metavar="NAME", help=tasks)
        one.add_argument("--seed", type=int, default=0, metavar="N", help="which pairs are sampled (default: 0)")
        one.add_argument("--data", type=Path, metavar="DIR", help="the run's data files, if they have been moved")
    sample.add_argument("--out", type=Path, metavar="FILE", help="the sheet (default: RUN/pairs.tsv)")
    figure.add_argument("files", nargs="+", type=Path, metavar="FILE", help="one or two labelled sheets")
    base = "without suffix (default: error-categories in the folder of the first sheet)"
    figure.add_argument("--out", type=Path, metavar="BASE", help=base)
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and run its command."""
    options = _parser().parse_args(arguments)
    {"sample": _sample, "figure": _figure, "nouns": _nouns}[options.command](options)


def _sample(options: argparse.Namespace) -> None:
    from tasks import registry  # torch

    out = options.out or options.run / "pairs.tsv"
    cli.demand_writable(out)
    if out.exists():
        raise UserError(f"{out}: exists, and may hold categories: choose another --out")
    task = registry.resolve_task(options.task)
    sheet = sample(read_run(options.run), task, seed=options.seed, data=options.data)
    sizes = sheet["group"].value_counts()
    for group, title in GROUPS.items():
        if sizes.get(group, 0) < COUNT:
            print(f"note: only {sizes.get(group, 0)} {title}: all of them are in the sheet", file=sys.stderr)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, sheet.to_csv(sep="\t", index=False, lineterminator="\n"))
    print(f"{out}: {len(sheet)} pairs. Open it in a spreadsheet, hide the column `group`, fill in `category` as if a")
    print("model had failed on every pair, and save it as tab-separated text in UTF-8. The categories:\n")
    for one in CATEGORIES:
        print(f"{one['key']:<12} {one['name']}: {one['meaning']}{' ' * ('tie' in one)}{one.get('tie', '')}")


def _figure(options: argparse.Namespace) -> None:
    cli.demand_writable(options.out)
    if len(options.files) > 2:
        raise UserError("figure takes one sheet, or two of the same sample")
    names, sheets = distinct_names(options.files), [read_sheet(path) for path in options.files]
    tables = [counts_table(sheet, name) for sheet, name in zip(sheets, names, strict=True)]
    if len(sheets) == 2:
        tables.append(agreement_table(*sheets))
    path = draw_categories(options.out or options.files[0].with_name("error-categories"), sheets, names)
    print("\n\n".join([*(table.terminal() for table in tables), f"figure: {path}"]))


def _nouns(options: argparse.Namespace) -> None:
    from tasks import registry  # torch

    task = registry.resolve_task(options.task)
    pairs = pairs_with_nouns(read_run(options.run), task, seed=options.seed, data=options.data)
    print("\n".join(table.markdown() for table in noun_tables(pairs)).rstrip())


def dev_rows(run: Run, task: str) -> tuple[TaskScores, PredictedRows]:
    """A task's scores and labelled dev rows; `UserError` if the run has none."""
    scores = run.tasks.get(task)
    if not run.multitask or scores is None or scores.rows is None:
        raise UserError(f"{run.folder}: has no dev rows of {task}: it must be a finished run of multitask_train.py")
    return scores, scores.rows.labelled()


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


def sample(run: Run, task: str, *, seed: int, data: Path | None = None) -> pd.DataFrame:
    """The pairs of a run to label, the three groups shuffled together, with an empty category.

    A group that has fewer than 100 pairs is taken whole. Pairs are sampled by the counters (seed, "annotation",
    task, group) and (seed, "annotation order", task). `UserError` as of `dev_rows` and `original_rows`.
    """
    scores, labelled = dev_rows(run, task)
    dev = {row.id: row for row in original_rows(run, task, "dev", data)}
    every = {
        "failed": [dev[labelled.ids[index]] for index in failed(scores, labelled)],
        "train": original_rows(run, task, "train", data),
        "dev": [dev[id_] for id_ in labelled.ids],
    }
    rows = []
    for group, candidates in every.items():
        for index in numpy_generator(seed, "annotation", task, group).permutation(len(candidates))[:COUNT]:
            row = candidates[index]
            gold = ""
            if not np.isnan(row.label):
                gold = scores.classes[int(row.label)] if scores.classes else f"{row.label:.1f} of 5"
            rows.append({"text": " / ".join(row.texts), "gold": gold, "category": "", "group": group, "id": row.id})
    order = numpy_generator(seed, "annotation order", task).permutation(len(rows))
    return pd.DataFrame([{"pair": str(pair), **rows[index]} for pair, index in enumerate(order, 1)], columns=_COLUMNS)


def read_sheet(path: Path) -> pd.DataFrame:
    """A labelled sheet; `UserError` naming the line if it is none, or if no pair has a category.

    Categories are keys or names, in upper or lower case; an empty one is a pair that is not labelled yet.
    """
    try:
        sheet = pd.read_csv(
            require_file(path), sep="\t", dtype=str, keep_default_na=False, index_col=False, encoding="utf-8-sig"
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


def words(text: str) -> list[str]:
    """The words of a text in lower case, hyphens inside them kept, a possessive 's cut off."""
    return [_bare(word).lower() for word in _WORD.findall(text)]


def _bare(word: str) -> str:
    return re.sub(r"[’']s$", "", word)


def proper_nouns(text: str, tag: wordnet.Tagger) -> list[str]:
    """The words of a text with the tag NNP or NNPS, in order, each once."""
    tagged = tag(_TOKEN.findall(text))
    return list(dict.fromkeys(_bare(token) for token, name in tagged if name in ("NNP", "NNPS") and _WORD.match(token)))


def pairs_with_nouns(run: Run, task: str, *, seed: int, data: Path | None = None) -> pd.DataFrame:
    """1,300 labelled dev pairs with their proper nouns, counted over the sentences of all fine-tuning files.

    The columns are `texts` as published, `right` for a correct prediction, `nouns` with their counts in training, and
    `rarest`, the least of these (NaN without nouns). A noun is counted as a word whatever its case. Pairs are sampled
    by the counter (seed, "nouns", task). `UserError` as of `dev_rows` and `original_rows`, for a task without classes,
    or if NLTK's tagger is not installed.
    """
    scores, rows = dev_rows(run, task)
    if not scores.classes:
        raise UserError(f"--task {task}: has no classes, so no prediction of it is right or wrong")
    tag = wordnet.tagger(wordnet.find_nltk_data(str(data or "")))
    rows = rows.at(np.sort(numpy_generator(seed, "nouns", task).permutation(len(rows))[:EXAMINED]))
    texts = {row.id: row.texts for row in original_rows(run, task, "dev", data)}
    train = (text for name in run.tasks for row in original_rows(run, name, "train", data) for text in row.texts)
    counts = Counter(word for text in train for word in words(text))
    pairs = pd.DataFrame({"texts": [texts[id_] for id_ in rows.ids], "right": rows.predicted == rows.gold})
    pairs["nouns"] = [
        {noun: counts[noun.lower()] for text in pair for noun in proper_nouns(text, tag)} for pair in pairs["texts"]
    ]
    return pairs.assign(rarest=[min(nouns.values(), default=np.nan) for nouns in pairs["nouns"]])


def noun_tables(pairs: pd.DataFrame) -> list[Table]:
    """The summary over all pairs, and three correct and three failed ones with the rarest nouns."""
    rows, examples = [], []
    for name, right in (("predicted correctly", True), ("predicted incorrectly", False)):
        every = pairs[pairs["right"] == right]
        side = every.dropna(subset="rarest")
        unseen = int((side["rarest"] == 0).sum())
        rows.append(
            {
                "dev pairs": name,
                "examined": f"{len(every):,}",
                "with a proper noun": f"{len(side):,}",
                "a noun in no training file": f"{unseen:,} ({unseen / len(side):.0%})" if len(side) else MISSING,
                "rarest noun: median count": f"{side['rarest'].median():g}" if len(side) else MISSING,
            }
        )
        for _, pair in side.sort_values("rarest", kind="stable").head(SHOWN).iterrows():
            nouns = ", ".join(f"{noun}: {count:,}" for noun, count in pair["nouns"].items())
            examples.append({"pair": " / ".join(pair["texts"]), "noun frequency": nouns, "dev pairs": name})
    tables = [Table("Proper nouns and failed pairs", pd.DataFrame(rows))]
    return [*tables, Table("Pairs with the rarest nouns", pd.DataFrame(examples), left=3)] if examples else tables


if __name__ == "__main__":
    cli.run(main)
