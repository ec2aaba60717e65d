"""Estimates of how long runs take, from finished runs of the study or from a short run of each script.

The time of a run is that of its start and end, of its training sentences and of its evaluations. Suites are not
counted.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablations.cells import ROOT, Cell
from ablations.study import FINETUNE, PRETRAIN, Arm, Study
from minbert.errors import UserError
from minbert.files import read_json, write_json
from minbert.training.run import RunDir
from minbert.training.settings import names_in
from tasks import schedule
from tasks.contrastive import curriculum
from tasks.contrastive.settings import DATA, TRIPLETS, ContrastiveSettings

_ROWS, _STEPS = 256, 6  # of the short run
BERT_BASE_OVER_MINILM = (12 * 768**2) / (6 * 384**2)
"""The ratio of layers times width squared, by which a time with bert-base is computed."""
_DEV_SENTENCES = {PRETRAIN: 7_700, FINETUNE: 12_100}
"""Sentences of an evaluation on the course's dev files; the ends of a run are worth two more evaluations."""


class Rate(NamedTuple):
    """Seconds of a run's start and end, of one training sentence and of one evaluation; rows of its training sets."""

    ends: float
    sentence: float
    evaluation: float
    rows: Mapping[str, int] = {}


def training_steps(arm: Arm, rows: Mapping[str, int]) -> int:
    """Number of steps of a run on sets of so many `rows`, each at most `--limit`; 0 if neither number is known."""
    flat = arm.flat
    sets = names_in(flat["tasks"]) if arm.script == FINETUNE else [""]
    sizes = {name: min(flat["limit"] or rows.get(name, 0), rows.get(name) or flat["limit"]) for name in sets}
    if not all(sizes.values()):
        return 0
    if arm.script == PRETRAIN:
        return curriculum.pace(ContrastiveSettings.of(**flat), np.arange(sizes[""]), None).plan.total
    how = {name: flat[name] for name in ("epochs", "batch_size", "seed", "power")}
    steps = schedule.plan(flat["sampling"], sizes, **how).total
    return min(steps, flat["max_steps"] or steps)


def sentences(arm: Arm, examples: float) -> float:
    """Number of sentences in this many training examples."""
    return examples * (1 if arm.script == FINETUNE else 3 if DATA[arm.flat["objective"]] == TRIPLETS else 2)


def seconds(arm: Arm, rate: Rate) -> float:
    """Seconds of a whole run; 0 if its number of rows is unknown."""
    steps, every = training_steps(arm, rate.rows), arm.flat["evaluate_every"]
    evaluations = steps / every if every else arm.flat["epochs"]
    read = sentences(arm, steps * arm.flat["batch_size"])
    return rate.ends + read * rate.sentence + evaluations * rate.evaluation if steps else 0.0


def measure(arm: Arm, data: str) -> Rate:
    """The rate of an arm's script on this machine, measured by a run of a few steps. Raises `UserError` if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        short = f"--limit {_ROWS} --max-steps {_STEPS} --evaluate-every 0 --keep last".split()
        place = ["--data", data] if data else []
        words = [sys.executable, str(ROOT / f"{arm.script}.py"), *arm.words(), *short, *place, "--run-dir", str(run)]
        begun = time.perf_counter()
        made = subprocess.run(words, capture_output=True, text=True)
        if made.returncode:
            said = made.stderr.strip().splitlines() or [f"exit code {made.returncode}"]
            raise UserError(f"no estimate, as a short run of {arm.name} failed: {said[-1]}")
        whole = time.perf_counter() - begun
        metrics, account = RunDir(run).metrics(), read_json(run / "manifest.json")["data"]["train"]
    rows, looks = ([row for row in metrics if row["kind"] == kind] for kind in ("train", "evaluation"))
    train, evaluation = (sum(row["seconds"] for row in part) for part in (rows, looks))
    examples = sum(row["seconds"] * row["examples_per_second"] for row in rows)
    each = train / sentences(arm, examples)
    if arm.script == FINETUNE:
        sizes = {name: part["labelled"] for name, part in account.items()}
    else:
        counts, texts = account.get("counts", account), "texts" if account.get("duplicates_kept") else "distinct"
        sizes = {"": next(counts[name] for name in ("triplets", "labelled", texts) if name in counts)}
    return Rate(whole - train - evaluation, each, evaluation / len(looks), sizes)


class Estimates:
    """Estimated times of the cells of a study."""

    def __init__(self, cells: Sequence[Cell], rates: Mapping[tuple[Any, ...], Rate] | None = None) -> None:
        self._cells, self._rates = cells, rates or {}

    def whole(self, cell: Cell) -> float:
        """Seconds of a whole run: the mean over finished runs of its arm, else of its script; 0 if unknown."""
        if cell.arm.measured:
            return 0.0
        done = [one for one in self._cells if (one.folder / "scores.json").is_file()]
        for key in ("name", "script"):
            alike = [one for one in done if getattr(one.arm, key) == getattr(cell.arm, key)]
            spent = [sum(part["seconds"] for part in one.manifest["parts"]) for one in alike]
            if spent:
                return sum(spent) / len(spent)
        return seconds(cell.arm, self._rates.get(_kind(cell.arm), Rate(0, 0, 0)))

    def left(self, cell: Cell) -> float:
        """Seconds until a cell is finished, in proportion to its remaining steps."""
        step, total = cell.reached
        return self.whole(cell) * max(0.02, 1 - (step / total if total else 0))

    def measured(self, data: str, say: Callable[[str], None]) -> "Estimates":
        """The same, with rates measured by a short run for each kind of arm without a finished run."""
        rates: dict[tuple[Any, ...], Rate] = {}
        for cell in self._cells:
            if not cell.arm.measured and _kind(cell.arm) not in rates and not self.whole(cell):
                say(f"measuring a short run of {cell.arm.name}")
                try:
                    rates[_kind(cell.arm)] = measure(cell.arm, data)
                except UserError as error:  # the run itself may yet succeed, and is listed if it fails
                    say(str(error))
                    rates[_kind(cell.arm)] = Rate(0, 0, 0)
        return Estimates(self._cells, rates)


def _kind(arm: Arm) -> tuple[Any, ...]:
    """A key that is equal for arms whose steps cost the same and whose data are the same."""
    return (arm.script, *(arm.flat.get(name) for name in ("weights", "objective", "pairs", "max_length", "tasks")))


def of_studies(studies: Sequence[Study], cache: Path) -> dict[str, float]:
    """Seconds of each study with MiniLM on this machine; 0 for unlimited rows.

    The rates are those of two short runs on the sample, which are kept in `cache`. Raises `UserError` if one fails.
    """
    if not cache.is_file():
        arms = [Arm(script, script, {"preset": "sample"}) for script in _DEV_SENTENCES]
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, {arm.script: measure(arm, str(ROOT / "data" / "sample")) for arm in arms})
    rates = {}
    for script, (ends, sentence, _, _) in read_json(cache).items():
        look = _DEV_SENTENCES[script] * sentence / 3  # a forward pass, of forward and backward
        rates[script] = Rate(ends + 2 * look, sentence, look)
    found = {}
    for study in studies:
        each = [seconds(arm, rates[arm.script]) for arm in study.arms.values() if not arm.measured]
        found[study.name] = sum(each) * len(study.file.seeds) if all(each) else 0.0
    return found
