"""Run an ablation study, one run of a training script for each arm and seed, and write its tables.

    python ablations/run.py list
    python ablations/run.py order --data DIR --jobs 2
    python ablations/run.py STUDY --dry-run

The same command continues a stopped study: finished runs are skipped, stopped ones resumed.
"""

import argparse
import math
import shlex
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ablations import estimate, table
from ablations.cells import RUNS, Cell, cells_of, shown
from ablations.runner import Runner
from ablations.search import search
from ablations.study import Study, known_studies, read_study
from minbert.errors import UserError
from minbert.training.cli import Parser, run, say
from tasks.tables import duration

RESULTS = Path(__file__).parent / "results"
PUBLISHED = ("table.md", "table.json", "figure.svg")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = Parser(prog="python ablations/run.py", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    made.add_argument("study", metavar="STUDY", help="a study of ablations/studies, a TOML file, or `list`")
    made.add_argument("--seeds", type=int, default=0, metavar="N", help="seeds 1 to N (default: the study's)")
    made.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once, each with its share of the cores")
    budget = "stop after so many minutes; the runs are resumable"
    made.add_argument("--budget", type=float, default=0.0, metavar="MINUTES", help=budget)
    made.add_argument(
        "--limit", type=int, metavar="N", help="rows of each training set, in place of the study's (0: all)"
    )
    made.add_argument("--max-steps", type=int, metavar="N", help="stop every run after N steps")
    made.add_argument("--weights", default="", metavar="NAME", help="starting weights, in place of the study's")
    made.add_argument("--data", default="", metavar="DIR", help="folder with the data (default: $DATA_DIR, else data/)")
    made.add_argument("--runs", type=Path, default=RUNS, metavar="DIR", help=f"folder of the runs (default: {RUNS})")
    made.add_argument("--dry-run", action="store_true", help="print the runs and their time, measured by short runs")
    made.add_argument("--publish", action="store_true", help="copy the tables of a whole study to ablations/results")
    return made


def main() -> None:
    """Read the command line and the study, run its unfinished cells, and write the tables."""
    given = parser().parse_args()
    if given.study == "list":
        list_studies(given.runs)
        return
    for flag, least in (("jobs", 1), ("seeds", 0), ("budget", 0)):
        if getattr(given, flag) < least:
            raise UserError(f"--{flag}: {getattr(given, flag)} is too small")
    study = read_study(given.study).with_settings(given.weights, limit=given.limit, max_steps=given.max_steps)
    seeds = list(range(1, given.seeds + 1)) or study.file.seeds
    cells = cells_of(study, seeds, given.data, given.runs)
    deadline = time.monotonic() + 60 * given.budget if given.budget else math.inf
    runner = Runner(cells, estimate.Estimates(cells), given.jobs, deadline)
    if given.dry_run:
        dry_run(runner, cells, given.data)
        return
    interrupted = False
    try:
        runner.run()
        if study.file.search and not runner.stopped:
            search(study, seeds[0], given.data, given.runs, runner)
    except KeyboardInterrupt:
        interrupted = True
    write(study, cells, seeds, runner, given)
    if interrupted:
        raise KeyboardInterrupt
    if runner.failed:
        raise SystemExit(1)


def dry_run(runner: Runner, cells: list[Cell], data: str) -> None:
    """Print every command that would be run, and the estimated time of all of them."""
    waiting = [cell for cell in cells if not cell.finished]
    for cell in waiting:
        for _, words in cell.commands():
            say(shown(words, runner.threads))
    runner.estimates = runner.estimates.measured(data, say)
    say(f"{len(cells) - len(waiting)} of {len(cells)} runs are finished; {runner.left(waiting)}")


def write(study: Study, cells: list[Cell], seeds: list[int], runner: Runner, given: argparse.Namespace) -> None:
    """Write the tables of the finished runs, and print which runs failed."""
    folder = given.runs / study.name
    written = table.write_outcome(study, cells, seeds, folder, command(), runner.failed)
    for name, why in runner.failed.items():
        say(f"failed: {name}: {why}")
    if not written:
        say("no run is finished, so there is no table yet")
        return
    say(f"tables: {folder / 'table.md'}; page: {folder / 'report.html'}")
    if given.publish:
        if not all(cell.finished for cell in cells):
            raise UserError("--publish: the study has runs that are not finished")
        target = RESULTS / study.name
        target.mkdir(parents=True, exist_ok=True)
        for name in PUBLISHED:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, target / name)
        say(f"published in {target}")


def command() -> str:
    """The command line for the tables: without paths of this machine and flags that do not change the numbers."""
    given, kept = iter(sys.argv[1:]), []
    for word in given:
        name, equals, _ = word.partition("=")
        if name in ("--data", "--runs") and not equals:
            next(given)
        kept += ["--data", "DIR"] if name == "--data" else [word] if name not in ("--runs", "--publish") else []
    return shlex.join(["python", "ablations/run.py", *kept])


def list_studies(runs: Path) -> None:
    """Print every study's question, the paper's table, its arms and its estimated time."""
    studies = [read_study(name) for name in known_studies()]
    try:
        times, unknown = estimate.of_studies(studies, runs / "rates.json"), "all rows"
    except UserError as error:
        times, unknown = dict.fromkeys([study.name for study in studies], 0.0), str(error)
    for study in studies:
        small, base = times[study.name], times[study.name] * estimate.BERT_BASE_OVER_MINILM
        taken = f"{duration(small)} with MiniLM here, {duration(base)} with bert-base (computed)"
        say(f"{study.name}: {study.file.question}")
        say(f"    {study.file.paper.table}")
        say(f"    arms: {', '.join(study.arms)}")
        say(f"    seeds: {len(study.file.seeds)}; {taken if small else f'time not known: {unknown}'}\n")


if __name__ == "__main__":
    run(main)
