"""The training loop of both scripts.

An objective does forward and backward; the loop does the optimizer's steps, the learning rate, evaluation,
checkpoints, metrics and progress. Its position in the plan is one integer, the step, so a resumed run gives the same
bits as an uninterrupted one.
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
_LOOK_EVERY = 10  # steps between two reads of the losses, each a device sync


@dataclass(frozen=True)
class Context:
    """The current step, as an objective sees it."""

    seed: int
    step: int
    precision: str
    device: torch.device

    def autocast(self) -> AbstractContextManager[object]:
        """The autocast context of the encoder and the heads."""
        return autocast(self.precision, self.device)

    def seed_dropout(self, purpose: str, part: int = 0) -> None:
        """Seed torch's generator, which draws the dropout masks, by (seed, step, purpose, part, rank)."""
        torch.manual_seed(torch_seed(self.seed, "dropout", self.step, purpose, part, ranks.rank()))


class Objective(Protocol):
    """Forward and backward of one step."""

    def backward(self, model: nn.Module, batch: Step, context: Context) -> dict[str, Tensor]:
        """Add the gradients of one step to the parameters' `grad`; returns scalars to log, including `loss`."""
        ...


Evaluation = tuple[float, dict[str, Any]]
"""The score to maximise, and metrics to log."""


Floors = Mapping[str, tuple[float, str]]
"""Name of a logged scalar -> (its minimum, what a lower value means). A lower value stops the run."""


@dataclass
class LoopState:
    """The loop's state, saved in checkpoints under these names."""

    step: int = 0
    score: float | None = None  # of the latest evaluation
    best: float | None = None  # the best score so far
    best_step: int = 0
    kept_step: int = 0  # step of the weights that `fit` leaves in the model, by `--keep`
    stale: int = 0  # evaluations since the best one, for early stopping
    finished: bool = False
    sums: dict[str, float] = field(default_factory=dict)  # of each logged scalar, since the last row of the metrics
    counts: dict[str, int] = field(default_factory=dict)  # of the values in `sums`

    @property
    def kept_score(self) -> float | None:
        """The score of the weights of `kept_step`; None if they have not been evaluated."""
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
    """Train until the end of the plan or early stopping, and leave the best or the last weights in `model`, by `keep`.

    `care` says whether the run is resumed, and how often it is saved and logged. `precision` is "fp32" or "bf16".
    `sentences` is the number of sentences per example, for the displayed speed. `tasks` is the number of tasks; with
    several, losses are displayed with the task's name. `baseline` is the score of the model before training. If
    `keep` is `best` and no evaluation is above the baseline, the weights before training are kept, as step 0. Without
    a baseline, the first evaluation is the best so far.

    Raises `UserError` if a loss or gradient norm is not finite, or a scalar is below its minimum in `floors`, and
    `Interrupted` after Ctrl-C.
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
                # with several ranks, a sync every step: if one stopped alone, the others would wait for it forever
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
        """One update, then logging, evaluation and a checkpoint when due."""
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
        logging = evaluating or at_end or state.step % care.log_every == 0  # no row of the metrics spans two epochs
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
        """Copy the scalars since the last call to the host (a device sync), check them and add them to the sums."""
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
        """The mean of each scalar since the last row of the metrics."""
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
        """Record in the manifest that this part of the run has ended at the current step."""
        if ranks.rank() == 0:
            self.run.reached(self.state.step, ended=True)

    def save(self) -> None:
        """Write a checkpoint, and delete all others but that of `kept_step`."""
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
    if not state.finished:  # a finished run trains no more; `fit` loads the kept weights
        checkpoint.load(run.checkpoints, found[-1], model, optimizer)
    run.forget_after(state.step)
    return state
