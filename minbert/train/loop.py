"""The training loop of both scripts.

An objective does forward and backward; the loop does the optimizer's steps, the learning rate, evaluation,
checkpoints, metrics and progress. Its position in the plan is one integer, the step, so a resumed run gives the same
bits as an uninterrupted one.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from minbert.errors import UserError
from minbert.optimizer import AdamW, lr_factor
from minbert.precision import autocast, loss_scaler
from minbert.seeds import torch_seed
from minbert.train import checkpoint, distributed
from minbert.train.cli import Interrupted, catch_signals, stop_on_signal
from minbert.train.plan import Plan, PlannedBatch
from minbert.train.progress import Progress
from minbert.train.run import RunFolder
from minbert.train.settings import RunSettings, TrainingSettings

T = TypeVar("T")
BEST, LAST = "best", "last"
_READ_EVERY = 10  # steps between two reads of the losses, each a device sync
_REMEDY = "a smaller --lr or --precision fp32 may help (the checkpoints are of earlier steps, and finite)"
_LESS_MEMORY = "a smaller --batch-size may help, or --chunk N (stage one) or --accumulate N (stage two)"


@dataclass(frozen=True)
class StepContext:
    """The current step, as an objective sees it."""

    seed: int
    step: int
    precision: str
    device: torch.device
    scaler: torch.amp.GradScaler = field(default_factory=lambda: loss_scaler("fp32", torch.device("cpu")))

    def autocast(self) -> AbstractContextManager[object]:
        """The autocast context of the encoder and the heads."""
        return autocast(self.precision, self.device)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to differentiate: in fp16 times the loss scale, which `fit` divides out of the gradients."""
        return self.scaler.scale(loss)

    def seed_dropout(self, purpose: str, part: int = 0) -> None:
        """Seed torch's generator, which draws the dropout masks, by (seed, step, purpose, part, rank)."""
        torch.manual_seed(torch_seed(self.seed, "dropout", self.step, purpose, part, distributed.rank()))


class TrainStep(Protocol):
    """Forward and backward of one step."""

    def backward(self, model: nn.Module, batch: PlannedBatch, context: StepContext) -> dict[str, Tensor]:
        """Add the gradients of one step to the parameters' `grad`; returns scalars to log, including `loss`."""
        ...


ScoreAndMetrics = tuple[float | None, dict[str, Any]]
"""The score to maximise, and metrics to log; None for what is undefined."""

LoggedStep = tuple[str, dict[str, Tensor], int]
"""The task of a step, its scalars to log, on the device, and the number of its examples."""


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
    unevaluated: bool = False  # a signal stopped the run in the evaluation of its last step
    sums: dict[str, float] = field(default_factory=dict)  # of scalars times examples, since the last row of the metrics
    counts: dict[str, int] = field(default_factory=dict)  # of the examples in `sums`
    loss_scale: dict[str, Any] = field(default_factory=dict)  # state of the loss scaling, empty unless fp16

    @property
    def kept_score(self) -> float | None:
        """The score of the weights of `kept_step`; None if they have not been evaluated."""
        return self.best if self.kept_step == self.best_step else self.score

    def kept_weights(self, training: TrainingSettings, planned: int) -> str:
        """Whose weights are kept: those of a step, by which rule, or the mean over the last of the `planned` steps."""
        if not self.kept_step:
            return "the encoder from before training"
        if training.average and self.kept_step == planned:
            return f"the mean of the weights over the last {training.average:.0%} of {planned:,} steps"
        last = training.keep == LAST or self.kept_step != self.best_step
        rule = "the last" if last else f"the best by {training.metric}"
        return f"step {self.kept_step:,} of {self.step:,}, {rule}"

    def means(self) -> dict[str, float]:
        """The mean of each scalar over the examples since the last row of the metrics."""
        return {key: total / self.counts[key] for key, total in sorted(self.sums.items())}


def fit(
    model: nn.Module,
    optimizer: AdamW,
    objective: TrainStep,
    plan: Plan,
    run: RunFolder,
    training: TrainingSettings,
    run_settings: RunSettings,
    evaluate: Callable[[], ScoreAndMetrics],
    *,
    device: torch.device,
    precision: str,
    baseline: float | None = None,
    tasks: int = 1,
) -> LoopState:
    """Train until the end of the plan or early stopping, and leave the best or the last weights in `model`, by `keep`.

    training: among others `keep` (with `best`, the weights before training are kept as step 0 if no evaluation is above
    the baseline; without a defined score, the last step is kept) and `average` (the weights of the last step become the
    mean over the last steps; Izmailov et al., 2018, section 3, after every step and under the same schedule).
    run_settings: whether the run is resumed, and how often it is saved and logged.
    precision: "fp32", "bf16" or "fp16", in which a step whose gradients overflow changes no weights, but counts.
    baseline: the score of the model before training; without it the first defined score is the best so far.
    tasks: the number of tasks; with several, losses are displayed with the task's name.
    A parameter group's learning rate follows the schedule from its `peak_lr`, by default that of `training`.

    Raises `UserError` if a loss, a gradient norm or a tensor to be saved is not finite, and `Interrupted`, after a
    checkpoint, if a signal announced the end of the run.
    """
    restored = _restore(model, optimizer, run) if run_settings.resume else None
    state = restored or LoopState(best=_first_ranks_score(baseline, device))
    scaler = loss_scaler(precision, device)
    if state.loss_scale:
        scaler.load_state_dict(state.loss_scale)
    pending: list[LoggedStep] = []
    parameters = [*model.parameters()]
    # 1e-9: 0.07 * 100 is 7.000000000000001
    warmup, averaged = (math.ceil(share * plan.total - 1e-9) for share in (training.warmup, training.average))
    averaged_after = plan.total - averaged
    progress = Progress(plan, state.step, tasks, keeps_best=training.keep == BEST)
    if restored is None and baseline is not None and training.keep == BEST:
        _save(model, optimizer, state, run, training)

    def evaluate_and_save() -> None:
        """Evaluate and save; a signal during the evaluation stops the run, which resumes with this evaluation."""
        model.eval()
        try:
            with catch_signals() if distributed.world() == 1 else nullcontext():
                if signals and distributed.world() == 1:
                    raise Interrupted("stopped", signals[0])
                started = time.perf_counter()
                score, numbers = evaluate()
                seconds = round(time.perf_counter() - started, 3)
        except Interrupted as stop:
            state.unevaluated = True
            _save(model, optimizer, state, run, training)
            run.record_step(state.step, ended=True)
            position = f"after step {state.step:,} of {plan.total:,}, before its evaluation"
            raise Interrupted(f"stopped {position}", stop.number) from None
        state.unevaluated = False
        row = _update(state, score, plan.total, training.patience, device)
        row |= {name: finite_or_none(value) for name, value in numbers.items()} | {"seconds": seconds}
        run.log({"kind": "evaluation", "step": state.step, "epoch": plan.at(state.step - 1).epoch + 1, **row})
        progress.evaluated(row)
        _save(model, optimizer, state, run, training)

    with stop_on_signal() as signals, progress:
        if state.unevaluated:
            evaluate_and_save()
        model.train(not state.finished)
        while not state.finished:
            batch = plan.at(state.step)
            optimizer.zero_grad(set_to_none=True)
            context = StepContext(training.seed, state.step, precision, device, scaler)
            try:
                numbers = objective.backward(model, batch, context)
            except torch.OutOfMemoryError as error:
                raise UserError(f"step {state.step + 1}: the GPU's memory is too small; {_LESS_MEMORY}") from error
            distributed.sum_gradients(parameters, device)
            scaler.unscale_(optimizer)
            numbers["gradient_norm"] = _clip(parameters, training.clip)
            factor = lr_factor(training.lr_schedule, state.step, plan.total, warmup)
            rate = training.lr * factor
            for group in optimizer.param_groups:
                group["lr"] = group.get("peak_lr", training.lr) * factor
            scaler.step(optimizer)
            if scaler.is_enabled():
                _update_scale(scaler, numbers, state)
            state.step += 1
            if state.step > averaged_after:
                optimizer.average(state.step - averaged_after)
            pending.append((batch.task, numbers, len(batch.rows)))
            progress.advance(len(batch.rows))

            # once in a while; with several ranks `max_over_ranks` is a device sync: they must stop after the same step
            stopping = distributed.max_over_ranks(max(signals, default=0), device)
            epoch_ends = state.step in plan.ends
            evaluating = state.step == plan.total or _due(state.step, training.evaluate_every, epoch_ends)
            saving = evaluating or bool(stopping) or _due(state.step, run_settings.save_every)
            logging = evaluating or epoch_ends or _due(state.step, run_settings.log_every)  # no row spans two epochs
            if logging or saving or progress.due or _due(state.step, _READ_EVERY):
                _read_scalars(state, pending)
                progress.show(rate, state.means(), line=logging)
            if logging:
                row = {"kind": "train", "step": state.step, "epoch": batch.epoch + 1, "lr": rate, **state.means()}
                run.log(row | progress.times())
                state.sums, state.counts = {}, {}
            if saving and (name := checkpoint.not_finite(model, optimizer)):
                raise UserError(f"step {state.step}: after the update of {batch.task}, {name} is not finite; {_REMEDY}")
            if saving and (rank := distributed.differing_rank(model.parameters(), device)):
                raise UserError(
                    f"step {state.step}: the parameters of process {rank} differ from those of process 0, so they are "
                    f"not saved; --resume goes on from the last checkpoint"
                )
            if averaged_after < state.step == plan.total:
                optimizer.use_average()
            if evaluating:
                evaluate_and_save()
                model.train(not state.finished)
            elif saving:
                _save(model, optimizer, state, run, training)
            if stopping and not state.finished:
                run.record_step(state.step, ended=True)
                raise Interrupted(f"stopped after step {state.step:,} of {plan.total:,}", stopping)
    checkpoint.load(run.checkpoints, state.kept_step, model)
    run.record_step(state.step, ended=True)
    if distributed.rank() == 0:
        checkpoint.strip(run.checkpoints, state.kept_step)
    return state


def _due(step: int, interval: int, otherwise: bool = False) -> bool:
    """Whether something that is done every `interval` steps is due; with an interval of 0, `otherwise`."""
    return step % interval == 0 if interval else otherwise


def _clip(parameters: list[nn.Parameter], limit: float) -> Tensor:
    """The norm of the gradients, which are scaled down to `limit` unless it is 0."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if limit:
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm


def _update_scale(scaler: torch.amp.GradScaler, numbers: dict[str, Tensor], state: LoopState) -> None:
    """Adapt the loss scale after a step, and log it and whether the step was skipped (a device sync).

    A skipped step's gradient norm, which is not finite, is not logged, unless no smaller scale would help.
    """
    scale = scaler.get_scale()
    scaler.update()
    skipped = scaler.get_scale() < scale
    if skipped and scale > 1:
        del numbers["gradient_norm"]
    numbers |= {"loss_scale": torch.tensor(scale), "skipped": torch.tensor(float(skipped))}
    state.loss_scale = scaler.state_dict()


def _read_scalars(state: LoopState, pending: list[LoggedStep]) -> None:
    """Copy the scalars since the last call to the host (a device sync), check them and add them to the sums."""
    for step, (task, numbers, examples) in enumerate(pending, start=state.step - len(pending) + 1):
        for name, tensor in numbers.items():
            value = float(tensor)
            if not math.isfinite(value):
                raise UserError(f"step {step}: the {name.replace('_', ' ')} of {task} is {value}; {_REMEDY}")
            key = f"{task}/{name}"
            state.sums[key] = state.sums.get(key, 0.0) + value * examples
            state.counts[key] = state.counts.get(key, 0) + examples
    pending.clear()


def _update(state: LoopState, score: float | None, total: int, patience: int, device: torch.device) -> dict[str, Any]:
    """Update the state after an evaluation; returns what the metrics say of it."""
    state.score = _first_ranks_score(score, device)
    improved = state.score is not None and (state.best is None or state.score > state.best)
    if improved:
        state.best, state.best_step, state.stale = state.score, state.step, 0
    else:
        state.stale += 1
    if state.score is None:
        distributed.note(f"step {state.step}: the score is undefined, so this evaluation cannot be the best")
    state.finished = state.step == total or bool(patience and state.stale >= patience)
    return {"score": state.score, "best": improved}


def _first_ranks_score(score: float | None, device: torch.device) -> float | None:
    """The first rank's score, None if undefined: all ranks stop and keep alike, however their processors round."""
    tensor = torch.tensor(math.nan if score is None else score, dtype=torch.float64, device=device)
    return finite_or_none(float(distributed.broadcast(tensor)))


def finite_or_none(value: T) -> T | None:
    """None for a number that is not finite, which JSON cannot hold; else the value."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _save(model: nn.Module, optimizer: AdamW, state: LoopState, run: RunFolder, training: TrainingSettings) -> None:
    """Write a checkpoint, and delete all others but that of `kept_step`."""
    state.kept_step = state.step if training.keep == LAST or state.best is None else state.best_step
    if distributed.rank() == 0:
        run.sync_metrics()
        checkpoint.save(run.checkpoints, state.step, model, optimizer, asdict(state))
        checkpoint.rotate(run.checkpoints, {state.step, state.kept_step})
        run.record_step(state.step)
    distributed.barrier()


def _restore(model: nn.Module, optimizer: AdamW, run: RunFolder) -> LoopState | None:
    """Load the newest checkpoint, if there is one; `RunFolder.begin_part` has verified it."""
    saved = checkpoint.steps(run.checkpoints)
    if not saved:
        run.forget_after(-1)
        return None
    state = LoopState(**checkpoint.state_of(run.checkpoints, saved[-1]))
    run.forget_after(saved[-1], unevaluated=state.unevaluated)
    if state.kept_step not in saved:  # it was damaged
        state.kept_step, state.best_step = state.step, state.step
        state.best = state.score if state.finished else None
    if not state.finished:  # a finished run trains no more; `fit` loads the kept weights
        checkpoint.load(run.checkpoints, state.step, model, optimizer)
    if distributed.rank() == 0:
        checkpoint.rotate(run.checkpoints, {state.step, state.kept_step})
    distributed.barrier()
    return state
