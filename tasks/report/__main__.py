"""Write the report page of a run, or the comparison of several runs.

python -m tasks.report runs/multitask
python -m tasks.report runs/multitask runs/cbcl-multitask
"""

from functools import partial
from pathlib import Path

from minbert.train import cli


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and write the page."""
    parser = cli.Parser(prog="python -m tasks.report", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    runs = "a run folder; several are compared with the first"
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help=runs)
    out = "the page (default: RUN/report.html, or runs/comparison.html for several)"
    parser.add_argument("--out", metavar="FILE", type=Path, help=out)
    parser.add_argument("--no-texts", action="store_true", help="leave the sentences of the data out")
    options = parser.parse_args(arguments)
    cli.demand_writable(options.out)

    from tasks.report import page

    print(f"report: {page.write_report(options.runs, options.out, texts=not options.no_texts)}")


command = partial(cli.run, main)
"""The console command `minbert-report`."""

if __name__ == "__main__":
    command()
