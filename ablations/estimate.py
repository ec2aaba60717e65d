"""How long runs take: from runs of the study that are finished, or from a short run of each script.

A run's time is that of its start and end, plus its steps, plus its evaluations. Suites are not counted.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ablations.cells import ROOT, Cell
from ablations.study import FINETUNE, Arm, Study
from minbert.files import read_json, write_json
from minbert.training.settings import Settings

_ROWS, _STEPS = 256, 6  # of the short run
BERT_BASE_OVER_MINILM = (12 * 768**2) / (6 * 384**2)
"""Layers times width squared: the ratio of their products, by which a time with bert-base is computed."""
_COURSE = {"pretrain_cbcl": (7_700, 2), FINETUNE: (12_100, 2)}
"""Sentences of an evaluation on the course's dev files, and how many more evaluations the ends of a run are worth."""


@dataclass(frozen=True)
class Rate:
    """Seconds of a run's start and end, of one sentence in training, and of an evaluation."""

    ends: float
    sentence: float
    evaluation: float


def training_steps(settings: Settings, rows: int = 0) -> int:
    """The steps of a run on as many rows as `--limit` takes of `rows`; 0 where neither is known."""
    flat = settings.flat()
    used = min(flat["limit"] or rows, rows or flat["limit"])
    batches, epochs = math.ceil(used / flat["batch_size"]), flat["epochs"]
    if "tasks" in flat:
        steps = epochs * batches * len(flat["tasks"].split(","))
    elif settings.objective.data_kind != "triplets" or flat["order"] == "none" or flat["equal_steps"]:  # type: ignore[attr-defined]
        steps = epochs * batches
    else:
        steps = sum(math.ceil((epoch / epochs) ** flat["power"] * batches) for epoch in range(1, epochs + 1))
    return min(steps, flat["max_steps"]) if flat["max_steps"] else steps


def sentences_of(settings: Settings, steps: int) -> int:
    """The sentences that so many steps train on."""
    flat = settings.flat()
    each = 1 if "tasks" in flat else {"triplets": 3}.get(settings.objective.data_kind, 2)  # type: ignore[attr-defined]
    return steps * flat["batch_size"] * each


def seconds_of(settings: Settings, rate: Rate, rows: int = 0) -> float:
    """The time of a run; 0 where its rows are not known."""
    steps, flat = training_steps(settings, rows), settings.flat()
    evaluations = steps / flat["evaluate_every"] if flat["evaluate_every"] else flat["epochs"]
    return rate.ends + sentences_of(settings, steps) * rate.sentence + evaluations * rate.evaluation if steps else 0.0


def measure(arm: Arm, data: str, *more: str) -> tuple[Rate, int]:
    """The rate of an arm's script on this machine, from a run of a few steps, and the rows of its largest set."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        short = ["--limit", str(_ROWS), "--max-steps", str(_STEPS), "--evaluate-every", "0", "--keep", "last", *more]
        place = ["--data", data] if data else []
        words = [sys.executable, str(ROOT / f"{arm.script}.py"), *arm.words(), *short, *place, "--run-dir", str(run)]
        begun = time.perf_counter()
        made = subprocess.run(words, capture_output=True, text=True)
        whole = time.perf_counter() - begun
        if made.returncode:
            return Rate(0, 0, 0), 0
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        account = read_json(run / "manifest.json")["data"]["train"]
    spent = {kind: [row["seconds"] for row in rows if row["kind"] == kind] for kind in ("train", "evaluation")}
    trained = sum(spent["train"]) / sentences_of(arm.parsed(arm.words()).settings, _STEPS)
    looked = sum(spent["evaluation"])
    return Rate(whole - sum(spent["train"]) - looked, trained, looked / len(spent["evaluation"])), _largest(account)


def _largest(account: Any) -> int:
    """The most rows of a training set, of a manifest's account of its files."""
    if not isinstance(account, dict):
        return 0
    own = account.get("triplets", account.get("labelled", account.get("texts", 0)))
    return max([own if isinstance(own, int) else 0, *map(_largest, account.values())])


class Estimates:
    """The time of every cell of a study, as far as it is known."""

    def __init__(self, cells: Sequence[Cell], rates: Mapping[str, tuple[Rate, int]] | None = None) -> None:
        self._cells, self._rates = cells, rates or {}

    def whole(self, cell: Cell) -> float:
        """Seconds of a cell's whole run: of its arm's finished runs, or of its script's; 0 where none is known."""
        if cell.arm.measured:
            return 0.0
        alike = [one for one in self._cells if one.arm.script == cell.arm.script and one.manifest.get("parts")]
        for chosen in ([one for one in alike if one.arm.name == cell.arm.name], alike):
            spent = [seconds for one in chosen if (one.folder / "scores.json").is_file() if (seconds := _spent(one))]
            if spent:
                return sum(spent) / len(spent)
        rate, rows = self._rates.get(_family(cell.arm), (Rate(0, 0, 0), 0))
        return seconds_of(cell.arm.parsed(cell.arm.words()).settings, rate, rows)

    def left(self, cell: Cell) -> float:
        """Seconds until a cell is finished, by the steps of it that are made."""
        step, total = cell.reached
        return self.whole(cell) * max(0.02, 1 - (step / total if total else 0))

    def measured(self, data: str, say: Any) -> "Estimates":
        """The same with the rates of a short run of each kind of arm that no finished run tells the time of."""
        rates = {}
        for cell in self._cells:
            family = _family(cell.arm)
            if not cell.arm.measured and family not in rates and not self.whole(cell):
                say(f"measuring {family}")
                rates[family] = measure(cell.arm, data)
        return Estimates(self._cells, rates)


def _spent(cell: Cell) -> float:
    return sum(part["seconds"] for part in cell.manifest["parts"])


def _family(arm: Arm) -> str:
    """Arms whose steps cost the same: the same script, weights, objective, pair input and length."""
    flat = arm.parsed(arm.words()).settings.flat() if not arm.measured else {}
    return " ".join(
        [arm.script, *(str(flat[key]) for key in ("weights", "objective", "pairs", "max_length") if key in flat)]
    )


def of_studies(studies: Sequence[Study], cache: Path) -> dict[str, tuple[float, float]]:
    """Seconds of each study with MiniLM on this machine and, computed, with bert-base; 0 for unlimited rows.

    The rates are those of two short runs on the sample, which are kept in `cache`.
    """
    if cache.is_file():
        kept = {script: Rate(**rate) for script, rate in read_json(cache).items()}
    else:
        sample = str(ROOT / "data" / "sample")
        kept = {}
        for script, (sentences, ends) in _COURSE.items():
            rate, _ = measure(Arm(script, script, {"preset": "sample"}), sample)
            look = sentences * rate.sentence / 3  # a forward pass, of forward and backward
            kept[script] = Rate(5 + ends * look, rate.sentence, look)
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, {script: asdict(rate) for script, rate in kept.items()})
    found = {}
    for study in studies:
        arms = [arm for arm in study.arms.values() if not arm.measured]
        each = [seconds_of(arm.parsed(arm.words()).settings, kept[arm.script]) for arm in arms]
        whole = sum(each) * len(study.file.seeds) if all(each) else 0.0
        found[study.name] = whole, whole * BERT_BASE_OVER_MINILM
    return found


def as_time(seconds: float) -> str:
    """A time in words, with one unit."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
