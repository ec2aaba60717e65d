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
RUN_SETTINGS = [setting.name for setting in fields(RunSettings)]


class Toy:
    """Three epochs of four steps of a linear regression, in milliseconds."""

    inputs, targets = torch.linspace(-2, 2, 60).sin().view(12, 5), torch.linspace(1, 3, 12).cos()

    class Objective:
        """Notes what it was asked for. `scalars` takes the place of those logged, and `after` is called, at a step."""

        def __init__(self, scalars: Mapping[int, Any] | None = None, after: Mapping[int, Any] | None = None) -> None:
            self.asked: list[tuple[int, int, list[int], bool]] = []
            self.scalars, self.after = scalars or {}, after or {}
            self.optimizer: AdamW | None = None

        def backward(self, model: nn.Module, batch: PlannedBatch, context: loop.StepContext) -> dict[str, Tensor]:
            self.asked.append((context.step, batch.epoch, batch.rows.tolist(), model.training))
            loss = Toy.loss(model, batch.rows)
            context.scaled(loss).backward()
            self.after.get(context.step, lambda *_: None)(model, self.optimizer)
            scalars = self.scalars.get(context.step, {})
            return {"loss": loss.detach()} | {
                name: torch.tensor(value, dtype=torch.float64) for name, value in scalars.items()
            }

    @staticmethod
    def model() -> nn.Linear:
        torch.manual_seed(3)
        return nn.Linear(5, 1)

    @classmethod
    def loss(cls, model: nn.Module, rows: np.ndarray) -> Tensor:
        return ((model(cls.inputs[rows])[:, 0] - cls.targets[rows]) ** 2).mean()

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
        model, left, seen = cls.model(), list(scores), []

        def evaluate() -> tuple[float | None, dict[str, Any]]:
            assert not model.training
            seen.append(model.weight.detach().clone())
            # by default the number of updates, which is the same in a run that is resumed
            score = left.pop(0) if left else float(optimizer.state[model.weight].get("step", 0))
            return (score() if callable(score) else score), {"toy": 0.5}

        care = {name: settings.pop(name) for name in RUN_SETTINGS if name in settings}
        training = TrainingSettings(**{"lr": 0.1, "clip": 0} | settings)
        optimizer, objective = AdamW(model.parameters(), lr=0.1), objective or cls.Objective()
        objective.optimizer = optimizer
        plan = Plan([4] * epochs, lambda epoch: [("toy", np.arange(3) + 3 * step) for step in range(4)])
        more: dict[str, Any] = {"device": torch.device("cpu"), "precision": precision, "baseline": baseline}
        keep = RunSettings(**{"log_every": 100} | care)
        state = loop.fit(model, optimizer, objective, plan, run, training, keep, evaluate, **more)
        return model, state, seen
