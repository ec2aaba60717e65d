"""Runs of the two scripts for the tests of this folder: small, in real processes, each with its own output."""

import csv
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from minbert import AdamW
from minbert.training import loop
from minbert.training.plan import Plan, Step
from minbert.training.run import RunDir
from minbert.training.settings import RunSettings, TrainingSettings
from tasks.contrastive.settings import PRESETS

ROOT = Path(__file__).parent.parent.parent
TIMED = ("metrics.jsonl", "manifest.json")  # they hold times, speeds and commands
SAMPLE = ROOT / "data" / "sample"


@dataclass(frozen=True)
class Run:
    """How a script ended."""

    code: int
    codes: list[int]  # of every rank
    out: str
    err: str
    folder: Path

    @property
    def errors(self) -> list[str]:
        """The lines of stderr that aren't notes."""
        return [line for line in self.err.splitlines() if not line.startswith("note: ")]

    def rows(self) -> list[dict[str, Any]]:
        """metrics.jsonl without its times."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        times = ("seconds", "time", "examples_per_second")
        return [{key: value for key, value in json.loads(line).items() if key not in times} for line in lines]

    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text())
        return content

    def bits(self) -> dict[str, str]:
        """The hash of every file of the run folder but those with times in them."""
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.name not in TIMED
        }


Script = Callable[..., Run]


class Toy:
    """Three epochs of four steps of a linear regression, in milliseconds."""

    inputs, targets = torch.linspace(-2, 2, 60).sin().view(12, 5), torch.linspace(1, 3, 12).cos()

    class Objective:
        """Notes what it was asked for. `scalars` takes the place of those logged, and `after` is called, at a step."""

        def __init__(self, scalars: Mapping[int, Any] | None = None, after: Mapping[int, Any] | None = None) -> None:
            self.asked: list[tuple[int, int, list[int], bool]] = []
            self.scalars, self.after = scalars or {}, after or {}
            self.optimizer: AdamW | None = None

        def backward(self, model: nn.Module, batch: Step, context: loop.Context) -> dict[str, Tensor]:
            self.asked.append((context.step, batch.epoch, batch.rows.tolist(), model.training))
            loss = Toy.loss(model, batch.rows)
            context.scaled(loss).backward()
            self.after.get(context.step, lambda *_: None)(model, self.optimizer)
            given = self.scalars.get(context.step, {})
            return {"loss": loss.detach()} | {
                name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()
            }

    @staticmethod
    def model() -> nn.Linear:
        torch.manual_seed(3)
        return nn.Linear(5, 1)

    @classmethod
    def loss(cls, model: nn.Module, rows: np.ndarray) -> Tensor:
        return ((model(cls.inputs[rows])[:, 0] - cls.targets[rows]) ** 2).mean()

    @staticmethod
    def begin(path: Path) -> RunDir:
        run = RunDir(path)
        run.begin_part({"settings": {}})
        return run

    @classmethod
    def fit(
        cls,
        run: RunDir,
        *,
        scores: Sequence[float | Callable[[], float] | None] = (),
        epochs: int = 3,
        objective: Any = None,
        precision: str = "fp32",
        baseline: float | None = None,
        **settings: Any,
    ) -> tuple[nn.Linear, loop.LoopState, list[Tensor]]:
        """Train; evaluations give `scores` in turn. Returns the model, state, and weights at evaluations."""
        model, left, seen = cls.model(), list(scores), []

        def evaluate() -> tuple[float | None, dict[str, Any]]:
            assert not model.training
            seen.append(model.weight.detach().clone())
            score = left.pop(0) if left else float(len(seen))
            return (score() if callable(score) else score), {"toy": 0.5}

        care = {name: settings.pop(name) for name in RunSettings.model_fields if name in settings}
        training = TrainingSettings(**{"lr": 0.1, "clip": 0} | settings)
        optimizer, objective = AdamW(model.parameters(), lr=0.1), objective or cls.Objective()
        objective.optimizer = optimizer
        plan = Plan([4] * epochs, lambda epoch: [("toy", np.arange(3) + 3 * step) for step in range(4)])
        more: dict[str, Any] = {"device": torch.device("cpu"), "precision": precision, "baseline": baseline}
        keep = RunSettings(**{"log_every": 100} | care)
        state = loop.fit(model, optimizer, objective, plan, run, training, keep, evaluate, **more)
        return model, state, seen


@pytest.fixture
def toy() -> type[Toy]:
    return Toy


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return Toy.begin(tmp_path / "run")


@pytest.fixture(scope="session")
def forks(_own_folders_and_threads: None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "forks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "2", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
    ) as process:
        yield process
        process.kill()  # its own end, with all that it has imported, takes seconds


@pytest.fixture(scope="session")
def runner(forks: subprocess.Popen[str], tiny: Path) -> Script:
    """A function that runs a script in a folder, with flags, by default on the sample corpus from the tiny random BERT.

    `run_dir` names the run folder inside the given one. `signal` is (number, place, step), as in forks.py. With
    `unread` the reader of the output has gone. Only with `report` does the run write its page, which takes seconds.
    `argv` takes the place of all flags.
    """
    numbers = count()

    def run(
        parent: Path,
        name: str,
        *flags: str | int | float | Path,
        run_dir: str = "run",
        weights: bool = True,
        data: bool = True,
        signal: tuple[int, str, int] | None = None,
        ranks: int = 1,
        unread: bool = False,
        report: bool = False,
        argv: Sequence[str] = (),
        **environment: str,
    ) -> Run:
        folder = parent / run_dir
        usual = ["--run-dir", folder, "--precision", "fp32", "--max-length", 24]
        usual += ["--weights", tiny] if weights else []
        usual += ["--data", SAMPLE] if data else []
        number = next(numbers)
        request: dict[str, Any] = {
            "argv": list(argv) or [str(ROOT / name), *map(str, (*usual, *flags))],
            "cwd": str(parent),
            "env": {**environment, **(_group(ranks) if ranks > 1 else {})},
            "signal": signal,
            "unread": unread,
            "report": report,
            "out": str(parent / f"{number}.out"),
            "err": str(parent / f"{number}.err"),
        }
        assert forks.stdin is not None and forks.stdout is not None
        forks.stdin.write(json.dumps(request) + "\n")
        forks.stdin.flush()
        codes = json.loads(forks.stdout.readline())
        out, err = (Path(request[name]).read_text() for name in ("out", "err"))
        return Run(codes[0], codes, out, err, folder)

    return run


@pytest.fixture
def script(runner: Script, tmp_path: Path) -> Script:
    """The runner, in this test's own folder."""
    return partial(runner, tmp_path)


@pytest.fixture(scope="session")
def shared(runner: Script, tmp_path_factory: pytest.TempPathFactory) -> Script:
    """As `script`, but a command runs once for all tests of the session; they leave its run folder as it is."""
    known: dict[str, Run] = {}

    def get(*command: Any, **how: Any) -> Run:
        key = repr((command, how))
        if key not in known:
            known[key] = runner(tmp_path_factory.mktemp("shared"), *command, **how)
        return known[key]

    return get


def _group(ranks: int) -> dict[str, str]:
    """What torchrun would tell each of its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, labelled pairs and phrases, made from the sample's triplets."""
    folder = tmp_path_factory.mktemp("corpora")
    with open(SAMPLE / "nli" / "nli-triplets.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:40]
    (folder / "texts.txt").write_text("".join(f"{row['sent0']}\n" for row in rows), encoding="utf-8")
    phrases = "".join(f"{row['sent1']}\t{number % 2}\n" for number, row in enumerate(rows))
    (folder / "phrases.tsv").write_text(phrases, encoding="utf-8")
    labels = (("sent1", "entailment"), ("hard_neg", "contradiction"))
    pairs = "".join(f"{row['sent0']}\t{row[column]}\t{label}\n" for row in rows for column, label in labels)
    (folder / "pairs.tsv").write_text("premise\thypothesis\tlabel\n" + pairs, encoding="utf-8")
    return folder


def small_data(preset: str, corpora: Path) -> list[Any]:
    """Flags that give a preset of stage one small data in place of those that it names."""
    settings = {"objective": "nt-xent", **PRESETS[preset][1]}
    flags: list[Any] = ["--preset", preset, "--sts-dev", SAMPLE / "course" / "sts-dev.csv"]
    if settings["objective"] in ("views", "simcse"):
        flags += ["--texts", corpora / "texts.txt"]
    if settings["objective"] in ("softmax", "cross", "joint"):
        flags += ["--nli-pairs", corpora / "pairs.tsv"]
    if "phrases" in settings:
        flags += ["--phrases", corpora / "phrases.tsv"]
    if "synonyms" in settings:
        flags += ["--synonyms", "none"]  # WordNet is not on every machine
    return flags
