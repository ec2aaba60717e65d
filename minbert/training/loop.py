"""The one training loop of both scripts.

An objective owns forward and backward; the loop owns the optimizer, the learning rate, evaluation, checkpoints and
the numbers on the screen. Its place in the plan is one integer, so a run stopped anywhere goes on with the same bits.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from minbert.errors import UserError
from minbert.optimizer import AdamW, learning_rate
from minbert.precision import autocast
from minbert.seeds import torch_seed
from minbert.training import checkpoint, ranks
from minbert.training.plan import Plan, Step
from minbert.training.progress import Progress
from minbert.training.records import RunSettings, TrainingSettings
from minbert.training.rundir import RunDir
from minbert.training.stop import Interrupted, stop_on_signal

BEST, LAST = "best", "last"
_LOOK_EVERY = 10  # steps between two looks at the losses, for the bar: a device sync


@dataclass(frozen=True)
class Context:
    """What an objective may know of the step it is in."""

    seed: int
    step: int
    precision: str
    device: torch.device

    def autocast(self) -> AbstractContextManager[object]:
        """The number format of the encoder and the heads."""
        return autocast(self.precision, self.device)

    def seed_dropout(self, purpose: str, part: int = 0) -> None:
        """Fix the dropout masks of what follows by (seed, step, purpose, part, rank)."""
        torch.manual_seed(torch_seed(self.seed, "dropout", self.step, purpose, part, ranks.rank()))


class Objective(Protocol):
    """Forward and backward of one step."""

    def backward(self, model: nn.Module, batch: Step, context: Context) -> dict[str, Tensor]:
        """Add the step's gradients to the model's parameters; returns numbers to report, `loss` among them."""
        ...


Evaluation = tuple[float, dict[str, Any]]
"""A score that shall be high, and whatever else is worth a row in the metrics."""


Floors = Mapping[str, tuple[float, str]]
"""Number -> (its least value, what it means to be less)."""


@dataclass
class LoopState:
    """The loop's place; saved and restored by these names."""

    step: int = 0
    score: float | None = None  # of the newest evaluation
    best: float | None = None
    best_step: int = 0
    kept_step: int = 0  # whose weights `fit` leaves, by `--keep`
    stale: int = 0
    finished: bool = False
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def kept_score(self) -> float | None:
        """The score of the weights that `fit` leaves; None before an evaluation."""
        return self.best if self.kept_step == self.best_step else self.score


def fit(
    model: nn.Module,
    optimizer: AdamW,
    objective: Objective,
    plan: Plan,
    run: RunDir,
    training: TrainingSettings,
    care: RunSettings,
    evaluate: Callable[[], Evaluation],
    *,
    device: torch.device,
    precision: str,
    baseline: float | None = None,
    sentences: int = 1,
    tasks: int = 1,
    floors: Floors | None = None,
) -> LoopState:
    """Train to the end of the plan, or until `patience` runs out, and leave the weights that `keep` names in `model`.

    `care` says how the run is looked after: whether it is resumed, and how often it is saved and logged. `precision` is
    the number format that `--precision` came to. An example holds so many `sentences`, for the speed that is shown;
    with several `tasks`, losses are shown by the task's name; a number below its floor stops the run.
    `baseline` is the score of the model as it comes: evaluations are compared with it, and where `keep` is `best` and
    none is better, the weights of before training are kept, as step 0. Without it the first evaluation is the best so
    far. Raises `UserError` where a loss or a gradient is not finite, `Interrupted` after Ctrl-C.
    """
    restored = _restore(model, optimizer, run) if care.resume else None
    state = restored or LoopState(best=baseline)
    progress = Progress(plan.total, state.step, sentences, tasks=tasks)
    where = device, precision
    loop = _Loop(
        model, optimizer, objective, plan, run, training, care, evaluate, *where, floors or {}, state, progress
    )
    if restored is None and baseline is not None and training.keep == BEST:
        loop.save()
    if not state.finished:
        with stop_on_signal() as stopping, loop.progress:
            while state.step < plan.total and not state.finished:
                loop.step()
                # with several ranks a sync every step: one that stops alone would leave the others waiting
                if state.finished or not ranks.any_rank(bool(stopping), device):
                    continue
                if not loop.saved:
                    loop.save()
                loop.end()
                raise Interrupted(f"stopped after step {state.step:,} of {plan.total:,}")
    checkpoint.load(run.checkpoints, state.kept_step, model)
    loop.end()
    if ranks.rank() == 0 and not care.keep_checkpoints:
        checkpoint.strip(run.checkpoints, state.kept_step)
    return state


@dataclass
class _Loop:
    model: nn.Module
    optimizer: AdamW
    objective: Objective
    plan: Plan
    run: RunDir
    training: TrainingSettings
    care: RunSettings
    evaluate: Callable[[], Evaluation]
    device: torch.device
    precision: str
    floors: Floors
    state: LoopState
    progress: Progress
    saved: bool = False
    pending: list[tuple[str, dict[str, Tensor]]] = field(default_factory=list)

    def step(self) -> None:
        """One update, and once in a while a look at it."""
        state, training, care = self.state, self.training, self.care
        batch = self.plan.at(state.step)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        context = Context(training.seed, state.step, self.precision, self.device)
        numbers = self.objective.backward(self.model, batch, context)
        ranks.sum_gradients(self.model.parameters(), self.device)
        numbers["gradient_norm"] = self._clip()
        rate = self._rate(state.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        state.step += 1
        self.saved = False
        self.pending.append((batch.task, numbers))
        self.progress.advance(len(batch.rows))

        # once in a while
        at_end = state.step in self.plan.ends
        evaluating = state.step % training.evaluate_every == 0 if training.evaluate_every else at_end
        evaluating = evaluating or state.step == self.plan.total
        saving = bool(care.save_every) and state.step % care.save_every == 0
        logging = evaluating or at_end or state.step % care.log_every == 0  # no row spans two epochs
        due = self.progress.due
        if logging or saving or due or state.step % _LOOK_EVERY == 0:
            self._look()
        if logging or due:
            self.progress.line(batch.epoch + 1, len(self.plan.lengths), rate, self._means())
        if logging:
            self._log(batch.epoch, rate)
        if evaluating:
            self._evaluate(batch.epoch)
        if evaluating or saving:
            self.save()

    def _clip(self) -> Tensor:
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.training.clip:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.training.clip, norm)
        return norm

    def _rate(self, step: int) -> float:
        total, how = self.plan.total, self.training
        return how.lr * learning_rate(how.lr_schedule, step, total, math.ceil(how.warmup * total))

    def _look(self) -> None:
        """Bring the numbers since the last look to the host (the one sync), check and add them up."""
        first = self.state.step - len(self.pending)
        for offset, (task, numbers) in enumerate(self.pending, start=1):
            for name, tensor in numbers.items():
                value = float(tensor)
                if not math.isfinite(value):
                    raise UserError(
                        f"step {first + offset}: the {name.replace('_', ' ')} of {task} is {value}; a smaller --lr or "
                        f"--precision fp32 may help (checkpoints up to step {first} are sound)"
                    )
                least, meaning = self.floors.get(name, (value, ""))
                if value < least:
                    raise UserError(
                        f"step {first + offset}: {meaning} ({name} {value:.2g}, less than {least:g}); a smaller --lr "
                        f"or a larger --batch-size may help (checkpoints up to step {first} are sound)"
                    )
                key = f"{task}/{name}"
                self.state.sums[key] = self.state.sums.get(key, 0.0) + value
                self.state.counts[key] = self.state.counts.get(key, 0) + 1
        self.pending.clear()
        self.progress.show(self._means())

    def _means(self) -> dict[str, float]:
        """Of every number since the last row of the metrics."""
        return {key: total / self.state.counts[key] for key, total in sorted(self.state.sums.items())}

    def _log(self, epoch: int, rate: float) -> None:
        row = {
            "kind": "train",
            "step": self.state.step,
            "epoch": epoch + 1,
            "lr": rate,
            **self._means(),
            **self.progress.times(),
        }
        self.state.sums.clear()
        self.state.counts.clear()
        if ranks.rank() == 0:
            self.run.log(row)

    def _evaluate(self, epoch: int) -> None:
        started = time.perf_counter()
        self.model.eval()
        score, numbers = self.evaluate()
        state, patience = self.state, self.training.patience
        state.score = score
        gained = state.best is None or score > state.best
        if gained:
            state.best, state.best_step, state.stale = score, state.step, 0
        else:
            state.stale += 1
        state.finished = state.step == self.plan.total or bool(patience and state.stale >= patience)
        row = {"kind": "evaluation", "step": state.step, "epoch": epoch + 1, "score": score, "best": gained, **numbers}
        if ranks.rank() == 0:
            self.run.log(row | {"seconds": round(time.perf_counter() - started, 3)})
            self.progress.say(epoch + 1, len(self.plan.lengths), state.step, numbers, gained)
        self.progress.restart()

    def end(self) -> None:
        """Note that this part of the run has ended, with a checkpoint."""
        if ranks.rank() == 0:
            self.run.reached(self.state.step, ended=True)

    def save(self) -> None:
        """Write a checkpoint of now, and delete all but this one and the one that is kept."""
        self._look()
        state = self.state
        state.kept_step = state.best_step if self.training.keep == BEST else state.step
        if ranks.rank() == 0:
            checkpoint.save(self.run.checkpoints, state.step, self.model, self.optimizer, asdict(state))
            checkpoint.rotate(self.run.checkpoints, {state.step, state.kept_step})
            self.run.reached(state.step)
        ranks.wait()
        self.saved = True


def _restore(model: nn.Module, optimizer: AdamW, run: RunDir) -> LoopState | None:
    found = checkpoint.steps(run.checkpoints)
    if not found:
        run.forget_after(-1)
        return None
    state = LoopState(**checkpoint.state_of(run.checkpoints, found[-1]))
    if not state.finished:  # else the kept model is loaded, and nothing is trained
        checkpoint.load(run.checkpoints, found[-1], model, optimizer)
    run.forget_after(state.step)
    return state
