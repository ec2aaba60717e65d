"""The training loop of all training commands.

A `TrainStep` does forward and backward; the loop does the optimizer's steps, the learning rate, evaluation,
checkpoints, metrics and progress. Its position in the plan is one integer, the step, so on a CPU a resumed run gives
the same bits as an uninterrupted one.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from minbert.errors import UserError, format_count
from minbert.optimizer import AdamW, lr_factor
from minbert.precision import autocast, loss_scaler
from minbert.seeds import torch_seed
from minbert.train import checkpoint, distributed
from minbert.train.cli import Interrupted, StopRequest, catch_signals
from minbert.train.plan import Plan, PlannedBatch
from minbert.train.progress import Progress
from minbert.train.run import RunFolder
from minbert.train.settings import RunSettings, TrainingSettings

_READ_EVERY = 10  # steps between two reads of the losses, each a device sync
_REMEDY = "a smaller --lr or --precision fp32 may help in a new --run-dir (the checkpoints hold finite numbers)"
_LESS_MEMORY = "a smaller --batch-size, --chunk N (stage one) or --accumulate N (stage two) may help in a new --run-dir"


@dataclass(frozen=True)
class StepContext:
    """The current step, as a `TrainStep` sees it."""

    seed: int
    step: int
    precision: str
    device: torch.device
    scaler: torch.amp.GradScaler = field(default_factory=lambda: loss_scaler("fp32", torch.device("cpu")))

    def autocast(self) -> AbstractContextManager[object]:
        """The autocast context of the encoder."""
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
    """The loop's state, saved in checkpoints under these names.

    The checkpoint of a step is written before its evaluation, so that the state holds the results of earlier ones.
    """

    step: int = 0
    score: float | None = None  # of the latest evaluation
    best: float | None = None  # the best score so far
    best_step: int = 0
    kept_step: int = 0  # step of the weights that `fit` leaves in the model, by `--keep`
    stale: int = 0  # evaluations since the best one, for early stopping
    finished: bool = False
    sums: dict[str, float] = field(default_factory=dict)  # of scalars times examples, since the last row of the metrics
    counts: dict[str, int] = field(default_factory=dict)  # of the examples in `sums`
    loss_scale: dict[str, Any] = field(default_factory=dict)  # state of the loss scaling, empty unless fp16

    @property
    def kept_score(self) -> float | None:
        """The score of the weights of `kept_step`; None if it is undefined."""
        return self.best if self.kept_step == self.best_step else self.score

    def describe_kept_weights(self, training: TrainingSettings, planned: int) -> str:
        """Describe the kept weights, for display; `planned` is the number of steps in the plan."""
        if not self.kept_step:
            return "the encoder from before training, as no evaluation was better"
        if training.average and self.kept_step == planned:
            return f"the mean of the weights over the last {training.average:.0%} of {format_count(planned, 'steps')}"
        is_best = training.keep == "best" and self.kept_step == self.best_step
        rule = f"the best by {training.metric}" if is_best else "the last"
        return f"step {self.kept_step:,} of {self.step:,}, {rule}"

    def means(self) -> dict[str, float]:
        """The mean of each scalar over the examples since the last row of the metrics."""
        return {key: total / self.counts[key] for key, total in sorted(self.sums.items())}


def fit(
    model: nn.Module,
    optimizer: AdamW,
    train_step: TrainStep,
    plan: Plan,
    run: RunFolder,
    training: TrainingSettings,
    run_settings: RunSettings,
    evaluate: Callable[[], ScoreAndMetrics],
    *,
    device: torch.device,
    precision: str,
    baseline: float | None = None,
    num_tasks: int = 1,
) -> LoopState:
    """Train until the end of the plan or early stopping, and leave the best or the last weights in `model`, by `keep`.

    A resumed run continues from its newest checkpoint.

    training: among others `keep`, which step's weights are left. With `best`, the weights before training are kept as
    step 0 if no evaluation is above the baseline; without a defined score the last step is kept. With `average`, the
    weights of the last step become the mean over the last steps (Izmailov et al., 2018, section 3).
    run_settings: how often the run is saved and logged.
    precision: "fp32", "bf16" or "fp16", in which a step whose gradients overflow changes no weights, but counts.
    baseline: the score of the model before training; without it the first defined score is the best so far.
    num_tasks: with several, losses are displayed with the task's name.
    A parameter group's learning rate follows the schedule from its `peak_lr`, by default that of `training`.

    Raises `UserError` if a loss, a gradient norm or a tensor to be saved is not finite, and `Interrupted`, after a
    checkpoint, if a signal announced the end of the run.
    """
    parameters = [*model.parameters()]
    warmup = _share_of_steps(training.warmup, plan)
    averaged_after = plan.total - _share_of_steps(training.average, plan)
    scaler = loss_scaler(precision, device)

    state = _restore(model, optimizer, run, device)
    if state is None:
        state = LoopState(best=_score_of_first_rank(baseline, device))
        if baseline is not None and training.keep == "best":
            _save(model, optimizer, state, run, training)
    if state.loss_scale:
        scaler.load_state_dict(state.loss_scale)

    pending: list[LoggedStep] = []  # steps whose scalars have not been read from the device
    progress = Progress(plan, state.step, num_tasks, keeps_best=training.keep == "best")
    stop = StopRequest()
    with catch_signals(stop.handle), closing(progress):
        model.train()
        while not state.finished:
            # once in a while: evaluate the step that was just saved. This comes first, so that a run that is stopped or
            # killed during an evaluation resumes with it.
            if _is_evaluated(state.step, plan, training):
                row = _evaluate(model, evaluate, state, plan, training, stop, device)
                # another rank may have had the signal; a resumed run repeats the evaluation
                stopping = distributed.max_over_ranks(stop.number, device)
                if stopping:
                    raise Interrupted(f"stopped after step {state.step:,} of {plan.total:,}", stopping)
                run.log(row)
                progress.evaluated(row)
                if state.finished:
                    break
                model.train()

            # one training step
            batch = plan.at(state.step)
            context = StepContext(training.seed, state.step, precision, device, scaler)
            with _explained_memory_error(state.step + 1):
                # to None: AdamW skips a parameter without gradient, such as another task's head
                optimizer.zero_grad(set_to_none=True)
                metrics = train_step.backward(model, batch, context)
                distributed.sum_gradients(parameters, device)
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
                if training.clip:
                    torch.nn.utils.clip_grads_with_norm_(parameters, training.clip, norm)
                metrics["gradient_norm"] = norm
                factor = lr_factor(training.lr_schedule, state.step, plan.total, warmup)
                rate = training.lr * factor
                for group in optimizer.param_groups:
                    group["lr"] = group.get("peak_lr", training.lr) * factor
                scaler.step(optimizer)
                if scaler.is_enabled():
                    _update_scale(scaler, metrics, state)
                state.step += 1
                if state.step > averaged_after:
                    optimizer.average(state.step - averaged_after)
            pending.append((batch.task, metrics, len(batch.rows)))
            progress.advance(len(batch.rows))

            # with several ranks this is a device sync: they must stop after the same step
            stopping = distributed.max_over_ranks(stop.number, device)
            epoch_ends = state.step in plan.ends
            evaluating = _is_evaluated(state.step, plan, training)
            saving = evaluating or bool(stopping) or _is_due(state.step, run_settings.save_every)
            logging = evaluating or epoch_ends or _is_due(state.step, run_settings.log_every)

            # once in a while: read the losses (a device sync), and log them. No row spans two epochs.
            if logging or saving or progress.due or _is_due(state.step, _READ_EVERY):
                _read_scalars(state, pending)
                progress.show(rate, state.means(), line=logging)
            if logging:
                row = {"kind": "train", "step": state.step, "epoch": batch.epoch + 1, "lr": rate}
                run.log(row | state.means() | progress.times())
                state.sums = {}
                state.counts = {}

            # once in a while: save
            if saving:
                _check_weights(model, optimizer, state.step, batch.task, device)
                # after the check and before the save: the checkpoint of the last step holds the mean
                if training.average and state.step == plan.total:
                    optimizer.use_average()
                _save(model, optimizer, state, run, training)
            if stopping:
                raise Interrupted(f"stopped after step {state.step:,} of {plan.total:,}", stopping)

    state.kept_step = _kept_step(state, training)
    # also the last step, from the file: so a run that is resumed after its end leaves the same weights
    checkpoint.load(run.checkpoints, state.kept_step, model)
    if distributed.rank() == 0:
        run.sync_metrics()
        checkpoint.finish(run.checkpoints, asdict(state))
        run.record_step(state.step)
    model.eval()
    return state


@contextmanager
def _explained_memory_error(step: int) -> Iterator[None]:
    """Raises `UserError` if a step needs more memory than the GPU has."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"step {step}: the GPU's memory is too small; {_LESS_MEMORY}") from error


def _share_of_steps(share: float, plan: Plan) -> int:
    """A share of the plan's steps, rounded up."""
    return math.ceil(share * plan.total - 1e-9)  # 0.07 * 100 is 7.000000000000001


def _is_due(step: int, interval: int) -> bool:
    """Whether something that is done every `interval` steps, with 0 never, is done after `step`."""
    return interval > 0 and step % interval == 0


def _is_evaluated(step: int, plan: Plan, training: TrainingSettings) -> bool:
    """Whether an evaluation follows `step`: by the interval, or without one at the end of an epoch; and at the end."""
    if step == 0:
        return False
    if step == plan.total:
        return True
    if training.evaluate_every:
        return _is_due(step, training.evaluate_every)
    return step in plan.ends


def _evaluate(
    model: nn.Module,
    evaluate: Callable[[], ScoreAndMetrics],
    state: LoopState,
    plan: Plan,
    training: TrainingSettings,
    stop: StopRequest,
    device: torch.device,
) -> dict[str, Any]:
    """Evaluate and update the state; returns the row of the metrics.

    Raises `Interrupted` if a signal comes during the evaluation of a single process; several ranks finish it together.
    """
    model.eval()
    started = time.perf_counter()
    try:
        with stop.at_once() if distributed.world() == 1 else nullcontext():
            score, metrics = evaluate()
    except Interrupted as interrupted:
        position = f"after step {state.step:,} of {plan.total:,}, before its evaluation"
        raise Interrupted(f"stopped {position}", interrupted.number) from None
    seconds = round(time.perf_counter() - started, 3)

    state.score = _score_of_first_rank(score, device)
    improved = state.score is not None and (state.best is None or state.score > state.best)
    if improved:
        state.best = state.score
        state.best_step = state.step
        state.stale = 0
    else:
        state.stale += 1
    if state.score is None and training.selects_by_dev:
        distributed.note(f"step {state.step}: the score is undefined, so this evaluation cannot be the best")
    out_of_patience = training.patience > 0 and state.stale >= training.patience
    state.finished = state.step == plan.total or out_of_patience
    return {
        "kind": "evaluation",
        "step": state.step,
        "epoch": plan.epoch_of(state.step - 1) + 1,
        "score": state.score,
        "best": improved,
        **{name: finite_or_none(value) for name, value in metrics.items()},
        "seconds": seconds,
    }


def _update_scale(scaler: torch.amp.GradScaler, metrics: dict[str, Tensor], state: LoopState) -> None:
    """Adapt the loss scale after a step, and log it and whether the step was skipped (a device sync).

    A skipped step's gradient norm, which is not finite, is not logged, unless no smaller scale would help.
    """
    scale = scaler.get_scale()
    scaler.update()
    skipped = scaler.get_scale() < scale
    if skipped and scale > 1:
        del metrics["gradient_norm"]
    metrics["loss_scale"] = torch.tensor(scale)
    metrics["skipped"] = torch.tensor(float(skipped))
    state.loss_scale = scaler.state_dict()


def _read_scalars(state: LoopState, pending: list[LoggedStep]) -> None:
    """Copy the scalars since the last call to the host (a device sync), check them and add them to the sums."""
    for step, (task, metrics, examples) in enumerate(pending, start=state.step - len(pending) + 1):
        for name, tensor in metrics.items():
            value = float(tensor)
            if not math.isfinite(value):
                raise UserError(f"step {step}: the {name.replace('_', ' ')} of {task} is {value}; {_REMEDY}")
            key = f"{task}/{name}"
            state.sums[key] = state.sums.get(key, 0.0) + value * examples
            state.counts[key] = state.counts.get(key, 0) + examples
    pending.clear()


def _score_of_first_rank(score: float | None, device: torch.device) -> float | None:
    """The first rank's score, None if undefined: all ranks stop and keep alike, however their processors round."""
    tensor = torch.tensor(math.nan if score is None else score, dtype=torch.float64, device=device)
    return finite_or_none(float(distributed.broadcast(tensor)))


def finite_or_none(value: float | None) -> float | None:
    """None for a number that is undefined or not finite, which JSON cannot hold; else the number."""
    if value is None or not math.isfinite(value):
        return None
    return value


def _check_weights(model: nn.Module, optimizer: AdamW, step: int, task: str, device: torch.device) -> None:
    """Raises `UserError` if what is about to be saved is not finite, or differs between the ranks."""
    if name := checkpoint.not_finite(model, optimizer):
        raise UserError(f"step {step}: after the update of {task}, {name} is not finite; {_REMEDY}")
    if rank := distributed.differing_rank(model.parameters(), device):
        raise UserError(
            f"step {step}: the parameters of process {rank} differ from those of process 0, so they are not saved; "
            f"--resume goes on from the last checkpoint"
        )


def _kept_step(state: LoopState, training: TrainingSettings) -> int:
    """The step of the weights to keep: the best by a defined score, or the last."""
    if training.keep == "last" or state.best is None:
        return state.step
    return state.best_step


def _save(model: nn.Module, optimizer: AdamW, state: LoopState, run: RunFolder, training: TrainingSettings) -> None:
    """Write a checkpoint, and delete all others but that of the weights to keep."""
    state.kept_step = _kept_step(state, training)
    if distributed.rank() == 0:
        run.sync_metrics()
        checkpoint.save(run.checkpoints, state.step, model, optimizer, asdict(state))
        checkpoint.rotate(run.checkpoints, {state.step, state.kept_step})
        run.record_step(state.step)
    distributed.barrier()


def _restore(model: nn.Module, optimizer: AdamW, run: RunFolder, device: torch.device) -> LoopState | None:
    """Load the checkpoint that a resumed run continues from; None if training begins."""
    # only the first rank has looked for it
    step = distributed.max_over_ranks(-1 if run.resumed_step is None else run.resumed_step, device)
    if step < 0:
        return None
    state = LoopState(**checkpoint.state_of(run.checkpoints, step))
    if not state.finished:  # a finished run trains no more; `fit` loads the kept weights
        checkpoint.load(run.checkpoints, step, model, optimizer)
    return state
