"""Error analysis after CBCL, section 6.1: sample pairs to label, draw its Figure 1, and count proper nouns (Table 2).

python -m tasks.report.errors sample runs/multitask --out pairs.tsv
python -m tasks.report.errors figure first.tsv second.tsv --out figure-1
python -m tasks.report.errors nouns runs/multitask --data data
"""

import argparse
import sys
from pathlib import Path

from minbert.errors import UserError
from minbert.files import distinct_names, write_atomic
from minbert.training import cli


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
    from tasks import registry
    from tasks.report import annotation
    from tasks.runs import read_run

    out = options.out or options.run / "pairs.tsv"
    cli.demand_writable(out)
    if out.exists():
        raise UserError(f"{out}: exists, and may hold categories: choose another --out")
    task = registry.resolve_task(options.task)
    sheet = annotation.sample(read_run(options.run), task, seed=options.seed, data=options.data)
    sizes = sheet["group"].value_counts()
    for group, title in annotation.GROUPS.items():
        if sizes.get(group, 0) < annotation.COUNT:
            print(f"note: only {sizes.get(group, 0)} {title}: all of them are in the sheet", file=sys.stderr)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, sheet.to_csv(sep="\t", index=False, lineterminator="\n"))
    print(f"{out}: {len(sheet)} pairs. Open it in a spreadsheet, hide the column `group`, fill in `category` as if a")
    print("model had failed on every pair, and save it as tab-separated text in UTF-8. The categories:\n")
    for one in annotation.CATEGORIES:
        print(f"{one['key']:<12} {one['name']}: {one['meaning']}{' ' * ('tie' in one)}{one.get('tie', '')}")


def _figure(options: argparse.Namespace) -> None:
    from tasks.report import annotation

    cli.demand_writable(options.out)
    if len(options.files) > 2:
        raise UserError("figure takes one sheet, or two of the same sample")
    names, sheets = distinct_names(options.files), [annotation.read_sheet(path) for path in options.files]
    tables = [annotation.counts_table(sheet, name) for sheet, name in zip(sheets, names, strict=True)]
    if len(sheets) == 2:
        tables.append(annotation.agreement_table(*sheets))
    base = options.out or options.files[0].with_name("error-categories")
    path = annotation.draw_categories(base, sheets, names)
    print("\n\n".join([*(table.terminal() for table in tables), f"figure: {path}"]))


def _nouns(options: argparse.Namespace) -> None:
    from tasks import registry
    from tasks.report import nouns
    from tasks.runs import read_run

    task = registry.resolve_task(options.task)
    pairs = nouns.pairs_of(read_run(options.run), task, seed=options.seed, data=options.data)
    print("\n".join(table.markdown() for table in nouns.tables(pairs)).rstrip())


if __name__ == "__main__":
    cli.run(main)
