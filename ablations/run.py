"""Run an ablation study, one run of a training script for each arm and seed, and write its tables.

    python ablations/run.py list
    python ablations/run.py order --data DIR --jobs 2
    python ablations/run.py few-shot --quick --data DIR
    python ablations/run.py selfccl --set epochs=2 --set limit=0 --data DIR

The same command continues a stopped study: finished runs are skipped, stopped ones resumed.
"""

import argparse
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ablations.cells import cells_of, shown
from ablations.files import Value, read_file, study_names
from ablations.runner import Runner
from ablations.study import read_study
from minbert.errors import UserError
from minbert.train.cli import Interrupted, Parser, run, say

RUNS = Path("runs/ablations")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    flags = Parser(prog="python ablations/run.py", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    flags.add_argument("study", metavar="STUDY", help="a study of ablations/studies, a TOML file, or `list`")
    flags.add_argument("--set", action="append", default=[], metavar="FLAG=VALUE", help="a setting of every arm")
    flags.add_argument("--model", default="", metavar="NAME", help="a model of the study's file, with its settings")
    flags.add_argument("--quick", action="store_true", help="the study's own small size, with one seed: to see it run")
    flags.add_argument("--seeds", type=int, default=0, metavar="N", help="seeds 1 to N (default: the study's)")
    flags.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at once, each with its share of the cores"
    )
    flags.add_argument(
        "--data", default="", metavar="DIR", help="folder with the data (default: $DATA_DIR, else data/)"
    )
    flags.add_argument("--runs", type=Path, default=RUNS, metavar="DIR", help=f"folder of the runs (default: {RUNS})")
    flags.add_argument("--dry-run", action="store_true", help="print the commands that would be run")
    return flags


def main() -> None:
    """Read the command line and the study, run its unfinished cells, and write the tables."""
    options = parser().parse_args()
    if options.study == "list":
        list_studies()
        return
    from ablations import table  # imports scipy, which `list` does not wait for

    for flag, least in (("jobs", 1), ("seeds", 0)):
        if getattr(options, flag) < least:
            raise UserError(f"--{flag}: {getattr(options, flag)} is too small")
    study = read_study(options.study, options.model)
    if options.quick and not study.file.quick:
        raise UserError(f"--quick: {options.study} has no quick settings")
    if settings := {**(study.file.quick if options.quick else {}), **settings_of(options.set)}:
        study = study.changed(settings)
    seeds = list(range(1, options.seeds + 1)) or ([1] if options.quick else study.file.seeds)
    runs = options.runs / "quick" if options.quick else options.runs
    cells = cells_of(study, seeds, options.data, runs)
    runner = Runner(cells, options.jobs)
    if options.dry_run:
        for _, words in (command for cell in cells for command in cell.commands()):
            say(shown(words, runner.threads))
        say(runner.summary())
        return
    interrupted = None
    try:
        runner.run()
    except Interrupted as stop:
        interrupted = stop
    folder = runs / study.name
    written = table.write_results(study, cells, seeds, folder, command(), runner.failed)
    for name, why in runner.failed.items():
        say(f"failed: {name}: {why}")
    say(f"tables: {folder / 'table.md'}" if written else "no run is finished, so there is no table yet")
    if interrupted:
        raise interrupted
    if runner.failed:
        raise SystemExit(1)


def settings_of(words: list[str]) -> dict[str, Value]:
    """The settings of `--set FLAG=VALUE`; true and false are switches. Raises `UserError` without an equals sign."""
    settings: dict[str, Value] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise UserError(f"--set {word}: is not FLAG=VALUE")
        settings[name.lstrip("-")] = {"true": True, "false": False}.get(value, value)
    return settings


def command() -> str:
    """The command line for the tables: without paths of this machine and flags that do not change the numbers."""
    words, kept = iter(sys.argv[1:]), []
    for word in words:
        name, equals, _ = word.partition("=")
        if name in ("--data", "--runs") and not equals:
            next(words)
        kept += ["--data", "DIR"] if name == "--data" else [word] if name != "--runs" else []
    return shlex.join(["python", "ablations/run.py", *kept])


def list_studies() -> None:
    """Print every study's question, the paper's table, its limits and its models."""
    for name in study_names():
        file = read_file(name)
        models = (f"    --model {model}: {other.table}\n" for model, other in file.models.items())
        say(f"{name}: {file.question}\n    {file.paper.table}\n    {file.limits}; {len(file.seeds)} seeds")
        say("".join(models))


if __name__ == "__main__":
    run(main)
