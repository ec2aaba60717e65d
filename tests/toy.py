"""A linear regression of milliseconds, for tests of the training loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minbert import AdamW
from minbert.train import loop
from minbert.train.plan import Plan, PlannedBatch
from minbert.train.run import RunFolder
from minbert.train.settings import RunSettings, TrainingSettings

MANIFEST: dict[str, Any] = {"settings": {}, "command": "toy", "environment": {"started": "now"}}


def die(*_: Any) -> None:
    """As an `after` of the objective: the process is killed at a step."""
    raise KeyboardInterrupt


class Toy:
    """Three epochs of four steps of a linear regression with five inputs; the last batch of an epoch is smaller."""

    inputs = torch.linspace(-2, 2, 60).sin().view(12, 5)
    targets = torch.linspace(1, 3, 12).cos()

    class Objective:
        """Records its steps in `asked`. At a step, `scalars` replaces logged ones, and `after` is called at its end."""

        def __init__(self, scalars: Mapping[int, Any] | None = None, after: Mapping[int, Any] | None = None) -> None:
            self.asked: list[tuple[int, int, list[int], bool]] = []
            self.scalars = scalars or {}
            self.after = after or {}
            self.optimizer: AdamW | None = None

        def backward(self, model: nn.Module, batch: PlannedBatch, context: loop.StepContext) -> dict[str, Tensor]:
            self.asked.append((context.step, batch.epoch, batch.rows.tolist(), model.training))
            loss = Toy.loss(model, batch.rows)
            context.scaled(loss).backward()
            if context.step in self.after:
                self.after[context.step](model, self.optimizer)
            logged = {"loss": loss.detach()}
            for name, value in self.scalars.get(context.step, {}).items():
                logged[name] = torch.tensor(value, dtype=torch.float64)
            return logged

    @staticmethod
    def model() -> nn.Linear:
        torch.manual_seed(3)
        return nn.Linear(5, 1)

    @classmethod
    def loss(cls, model: nn.Module, rows: np.ndarray) -> Tensor:
        return ((model(cls.inputs[rows])[:, 0] - cls.targets[rows]) ** 2).mean()

    @staticmethod
    def rows(step: int) -> np.ndarray:
        """The rows of a step."""
        first = 3 * (step % 4)
        return np.arange(first, min(first + 3, 11))

    @staticmethod
    def begin(path: Path) -> RunFolder:
        run = RunFolder(path)
        run.start_session(MANIFEST)
        return run

    @classmethod
    def fit(
        cls,
        run: RunFolder,
        *,
        scores: Sequence[float | Callable[[], float] | None] = (),
        epochs: int = 3,
        objective: Any = None,
        resume: bool = False,
        precision: str = "fp32",
        baseline: float | None = None,
        **settings: Any,
    ) -> tuple[nn.Linear, loop.LoopState, list[Tensor]]:
        """Train; evaluations give `scores` in turn, then rising ones.

        With `resume`, the run goes on in a new session. Returns the model, state, and weights at evaluations.
        """
        if resume:
            run.start_session(MANIFEST)
        model = cls.model()
        optimizer = AdamW(model.parameters(), lr=0.1)
        objective = objective or cls.Objective()
        objective.optimizer = optimizer
        remaining = list(scores)
        evaluated = []

        def evaluate() -> tuple[float | None, dict[str, Any]]:
            assert not model.training
            evaluated.append(model.weight.detach().clone())
            # by default the number of updates, which is the same in a run that is resumed
            score = remaining.pop(0) if remaining else float(optimizer.state[model.weight].get("step", 0))
            return (score() if callable(score) else score), {"toy": 0.5}

        names = {setting.name for setting in fields(RunSettings)}
        run_settings = {name: settings.pop(name) for name in names & settings.keys()}
        state = loop.fit(
            model,
            optimizer,
            objective,
            Plan([4] * epochs, lambda epoch: [("toy", cls.rows(step)) for step in range(4)]),
            run,
            TrainingSettings(**{"lr": 0.1, "clip": 0} | settings),
            RunSettings(**{"log_every": 100} | run_settings),
            evaluate,
            device=torch.device("cpu"),
            precision=precision,
            baseline=baseline,
        )
        return model, state, evaluated
