"""Run an ablation study, one run for each arm and seed, and write its tables and its figure.

    python ablations/run.py list
    python ablations/run.py order --data DIR --jobs 2
    python ablations/run.py selfccl --set epochs=2 --set limit=0 --data DIR

The same command continues a stopped study: finished runs are skipped, stopped ones resumed.
"""

import argparse
import os
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ablations import table
from ablations.study import ROOT, ArmRun, Command, read_study, runs_of, study_names, study_path
from minbert.errors import UserError
from minbert.files import data_path, expand_user, read_toml
from minbert.train.cli import Interrupted, Parser, catch_signals, run, say
from minbert.train.settings import require_range
from tasks.tables import duration

RUNS = Path("runs/ablations")
DATA_SETS = ("course", "nli", "senteval", "zh")
"""The folders of a data folder."""


class Runner:
    """Runs the commands of a study as processes, `jobs` at once; a failed run is listed and the others continue."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.failed: dict[str, str] = {}  # name of a run -> reason
        self.stopped = 0  # the number of the signal that stopped the study
        self._processes: set[subprocess.Popen[bytes]] = set()
        cores = os.cpu_count() or 1
        if sys.platform == "linux":
            # a job of a cluster may use fewer cores than the machine has
            cores = len(os.sched_getaffinity(0))
        self.threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // jobs))

    def run(self, runs: Sequence[ArmRun]) -> None:
        """Run what is not finished. Raises `Interrupted` after a signal, when every process has ended."""
        futures: dict[Path, Future[bool]] = {}
        with ThreadPoolExecutor(self.jobs) as pool, catch_signals(self._stop):
            for arm_run in runs:
                # a run comes after the one that it starts from, so waiting for that always ends
                before = futures.get(arm_run.start) if arm_run.start else None
                futures[arm_run.folder] = pool.submit(self._finish, arm_run, before)
            # inside the block, so that a signal is passed on
            wait(futures.values())
        for future in futures.values():
            future.result()
        if self.stopped:
            raise Interrupted("stopped; the same command continues", self.stopped)

    def describe(self, command: Command) -> str:
        """A command as it is typed."""
        return f"OMP_NUM_THREADS={self.threads} {shlex.join(['python', *command])}"

    def _finish(self, arm_run: ArmRun, before: Future[bool] | None) -> bool:
        """Run the commands of a run after the run that it starts from; returns whether it is finished."""
        if before is not None and not before.result():
            return self._fail(arm_run, f"{arm_run.arm.start} seed {arm_run.seed} is not finished")
        try:
            for command in arm_run.pending():
                if self.stopped:
                    return False
                code = self._call(arm_run, command)
                if code:
                    return self._fail(arm_run, f"exit code {code}: {arm_run.last_line()} ({arm_run.log})")
        except UserError as error:
            return self._fail(arm_run, str(error))
        return True

    def _call(self, arm_run: ArmRun, command: Command) -> int:
        """The exit code of a command, whose output is appended to the run's log."""
        say(f"{arm_run.name}: {self.describe(command)}")
        started = time.monotonic()
        arm_run.log.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": self.threads,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        with open(arm_run.log, "ab") as log:
            # in a session of its own it gets Ctrl-C from `_stop` alone
            process = subprocess.Popen(
                [sys.executable, *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._processes.add(process)
            # a signal that came just before has not reached this process
            if self.stopped:
                process.terminate()
            code = process.wait()
        self._processes.remove(process)
        if code == 0:
            say(f"{arm_run.name}: finished in {duration(time.monotonic() - started)}")
        return code

    def _fail(self, arm_run: ArmRun, reason: str) -> bool:
        if not self.stopped:
            self.failed[arm_run.name] = reason
            say(f"{arm_run.name}: failed: {reason}")
        return False

    def _stop(self, number: int, frame: object) -> None:
        """Pass a signal on to the processes, which save a checkpoint and end; a second one ends them at once."""
        self.stopped = self.stopped or number
        for process in list(self._processes):
            # not SIGINT: the processes of a study that a shell started in the background ignore it
            process.terminate()


def main() -> None:
    """Read the command line and the study, run what is not finished, and write the tables."""
    options = parse_arguments()
    if options.study == "list":
        list_studies()
        return
    study = read_study(options.study, options.model)
    settings = settings_of(options.set)
    if options.quick:
        settings = {**study.quick, **settings}
    if settings:
        study = study.with_settings(settings)
    seeds = [1] if options.quick else list(study.seeds)
    if options.seeds:
        seeds = list(range(1, options.seeds + 1))
    folder = options.runs / study.name
    if options.quick:
        # in a folder of its own, as a trial has other settings than the study
        folder = options.runs / "quick" / study.name
    # resolved: a run is the same however its folder of data is typed
    data = data_path(options.data).resolve()
    runs = runs_of(study, seeds, str(data), folder)
    runner = Runner(options.jobs)
    if options.dry_run:
        for arm_run in runs:
            for command in arm_run.pending():
                say(runner.describe(command))
        return
    # once, and not in every arm
    if not any((data / name).is_dir() for name in DATA_SETS) and not any(data.glob("*.csv")):
        raise UserError(f"--data {data}: holds none of {', '.join(DATA_SETS)}; python data/get_data.py fetches them")

    finished = sum(arm_run.is_finished() for arm_run in runs)
    say(f"{finished} of {len(runs)} runs are finished")
    interrupted = None
    try:
        runner.run(runs)
    except Interrupted as stop:
        interrupted = stop
    written = table.write_results(study, runs, folder, typed_command(options), runner.failed)
    for name, reason in runner.failed.items():
        say(f"failed: {name}: {reason}")
    if written:
        say(f"tables: {folder / 'table.md'}")
    else:
        say("no run is finished, so there is no table")
    # only now: a stopped study has the tables of its finished runs
    if interrupted:
        raise interrupted
    if runner.failed:
        raise SystemExit(1)


def parse_arguments() -> argparse.Namespace:
    """The command line. Raises `UserError`."""
    parser = Parser(prog="python ablations/run.py", doc=__doc__)
    parser.add_argument("study", metavar="STUDY", help="a study of ablations/studies, a TOML file, or `list`")
    parser.add_argument("--set", action="append", default=[], metavar="FLAG=VALUE", help="a setting of every arm")
    parser.add_argument("--model", default="", metavar="NAME", help="a model of the study's file, with its settings")
    parser.add_argument("--quick", action="store_true", help="the study's small size, with one seed, to see it run")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="seeds 1 to N (default: the study's)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once, which share the cores")
    parser.add_argument("--data", default="", metavar="DIR", help="folder of the data (default: $DATA_DIR, else data/)")
    runs_help = f"folder of the runs (default: {RUNS})"
    parser.add_argument("--runs", type=expand_user, default=RUNS, metavar="DIR", help=runs_help)
    parser.add_argument("--dry-run", action="store_true", help="print the commands that would be run")
    options = parser.parse_args()
    require_range(options, "jobs", 1)
    require_range(options, "seeds", 0)
    return options


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """The settings of `--set FLAG=VALUE`. Raises `UserError` without an equals sign."""
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise UserError(f"--set {word}: is not FLAG=VALUE")
        settings[name.lstrip("-")] = value
    return settings


def typed_command(options: argparse.Namespace) -> str:
    """The command line for the tables, without paths of this machine and flags that do not change the numbers."""
    words = ["python", "ablations/run.py", Path(options.study).name]
    if options.model:
        words += ["--model", options.model]
    if options.quick:
        words += ["--quick"]
    if options.seeds:
        words += ["--seeds", str(options.seeds)]
    for word in options.set:
        words += ["--set", word]
    return shlex.join([*words, "--data", "DIR"])


def list_studies() -> None:
    """Print every study's question, the paper's table, what differs from its settings, and what the runs take."""
    for name in study_names():
        for model in ["", *read_toml(study_path(name)).get("models", {})]:
            study = read_study(name, model)
            say(f"    --model {model}" if model else f"\n{name}: {study.question}")
            departures = study.describe_departures()
            lines = {
                "paper": study.paper.table,
                "differs (in brackets the paper's)": departures or "nothing",
                "limits": study.limits,
                "takes": study.takes,
            }
            indent = " " * (8 if model else 4)
            wrapper = textwrap.TextWrapper(110, break_on_hyphens=False)
            wrapper.initial_indent = indent
            wrapper.subsequent_indent = f"{indent}  "
            for title, text in lines.items():
                if text:
                    say(wrapper.fill(f"{title}: {text}"))


if __name__ == "__main__":
    run(main)
