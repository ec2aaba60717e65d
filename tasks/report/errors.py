"""Error analysis after CBCL, section 6.1: draw pairs to annotate, draw its Figure 1, and count proper nouns (Table 2).

python -m tasks.report.errors sample runs/multitask --out annotation.html
python -m tasks.report.errors figure first.json second.json --out figure-1
python -m tasks.report.errors nouns runs/multitask --data data
"""

import argparse
import sys
from pathlib import Path

from minbert.errors import UserError
from minbert.files import write_atomic
from minbert.training import cli


def _whole(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.report.errors", description=about, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{sample,figure,nouns}")
    sample = commands.add_parser("sample", help="write a page on which pairs are sorted into categories")
    figure = commands.add_parser("figure", help="draw the categories, and measure how far two people agree")
    nouns = commands.add_parser("nouns", help="proper nouns of correct and failed pairs, as Markdown")
    known = "sst, para, sts or one of your own (default: para)"
    for one in (sample, nouns):
        one.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run of multitask_train.py")
        one.add_argument("--task", default="para", metavar="NAME", help=known)
        one.add_argument("--seed", type=_whole, default=0, metavar="N", help="which pairs are drawn (default: 0)")
        one.add_argument("--data", type=Path, metavar="DIR", help="the run's data files, if they have been moved")
    sample.add_argument("--out", type=Path, metavar="FILE", help="the page (default: RUN/annotation.html)")
    figure.add_argument("files", nargs="+", type=Path, metavar="a.json", help="one or two exported annotations")
    base = "without suffix (default: error-categories in the folder of a.json)"
    figure.add_argument("--out", type=Path, metavar="BASE", help=base)
    nouns.add_argument("--rows", type=_whole, default=1300, metavar="N", help="dev pairs (default: 1300; 0: all)")
    nouns.add_argument("--pairs", type=_whole, default=3, metavar="N", help="examples in the table (default: 3)")
    nouns.add_argument("--out", type=Path, metavar="FILE", help="also write it to this file")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and run its command."""
    given = _parser().parse_args(arguments)
    cli.demand_writable(given.out)
    {"sample": _sample, "figure": _figure, "nouns": _nouns}[given.command](given)


def _sample(given: argparse.Namespace) -> None:
    from tasks import registry
    from tasks.report import annotation

    out = given.out or given.run / "annotation.html"
    counts = annotation.write_annotation(given.run, out, registry.named(given.task), seed=given.seed, data=given.data)
    shown = {group: f"{count} {annotation.GROUPS[group]}" for group, count in counts.items()}
    for group, count in counts.items():
        if count < annotation.DRAWN:
            print(f"note: only {shown[group]}: all of them are drawn", file=sys.stderr)
    print(f"{out}: {', '.join(shown.values())}")


def _figure(given: argparse.Namespace) -> None:
    from tasks.report import annotation

    if len(given.files) > 2:
        raise UserError("figure takes one annotation, or two of the same sample")
    found = [annotation.read_annotation(path) for path in given.files]
    names = annotation.annotators(found)
    texts = [annotation.counts_text(one, name) for one, name in zip(found, names, strict=True)]
    if len(found) == 2:
        texts.append(annotation.agreement_text(*found))
    written = annotation.draw_categories(given.out or given.files[0].with_name("error-categories"), found)
    print("\n\n".join([*texts, "figure: " + ", ".join(map(str, written))]))


def _nouns(given: argparse.Namespace) -> None:
    from tasks import registry
    from tasks.report import nouns
    from tasks.report.collect import read_run

    how = {"seed": given.seed, "data": given.data, "most": given.rows}
    text = nouns.as_markdown(nouns.noun_table(read_run(given.run), registry.named(given.task), **how), given.pairs)
    if given.out is not None:
        write_atomic(given.out, text.encode("utf-8", "replace"))
    print(text, end="")


if __name__ == "__main__":
    cli.run(main)
