"""Write the report page of a run.

python -m tasks.report runs/multitask
"""

from functools import partial
from pathlib import Path

from minbert.train import cli
from tasks.report import page


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and write the page."""
    parser = cli.Parser(prog="python -m tasks.report", doc=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the page (default: RUN/report.html)")
    parser.add_argument("--no-texts", action="store_true", help="leave the sentences of the data out")
    options = parser.parse_args(arguments)
    cli.require_writable(options.out)
    print(f"report: {page.write_report(options.run, options.out, texts=not options.no_texts)}")


command = partial(cli.run, main)
"""The console command `minbert-report`."""

if __name__ == "__main__":
    command()
