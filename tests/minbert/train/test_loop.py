"""Guards: the loop on a toy: steps, evaluations, checkpoints, early stopping, signals, infinite numbers, what is left.

python -m pytest --import-mode=importlib tests/minbert/train/test_loop.py
"""

import io
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from minbert import AdamW, UserError
from minbert.train import checkpoint, cli, distributed, progress
from minbert.train.loop import LoopState, StepContext
from minbert.train.run import RunFolder
from minbert.train.settings import TrainingSettings
from tests.toy import die

STEPS = 4  # of an epoch
WARMUP_THEN_LINEAR = [0.1 / 3, 0.2 / 3, 0.1] + [0.1 * (1 - step / 9) for step in range(9)]


def by_hand(toy: Any, rates: list[float] | None = None, clip: float = 0.0, skipped: int = -1) -> list[Tensor]:
    """The weights after each step of a plain loop, without the step `skipped`."""
    model = toy.model()
    optimizer = AdamW(model.parameters(), lr=0.1)
    weights = []
    for step in range(STEPS * 3):
        if step == skipped:
            continue
        optimizer.zero_grad()
        toy.loss(model, toy.rows(step)).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if rates:
            optimizer.param_groups[0]["lr"] = rates[step]
        optimizer.step()
        weights.append(model.weight.detach().clone())
    return weights


def logged(run: RunFolder, kind: str) -> list[dict[str, Any]]:
    return [row for row in run.metrics() if row["kind"] == kind]


def set_peak(_: nn.Module, optimizer: AdamW) -> None:
    optimizer.param_groups[0]["peak_lr"] = 0.3


def test_group_has_its_own_peak_rate(toy: Any, run: RunFolder) -> None:
    model, *_ = toy.fit(run, objective=toy.Objective(after={0: set_peak}), lr_schedule="linear", warmup=0.25)
    expected = by_hand(toy, rates=[3 * rate for rate in WARMUP_THEN_LINEAR])[-1]
    torch.testing.assert_close(model.weight.detach(), expected, rtol=0, atol=1e-7)


def exhaust(*_: Any) -> None:
    raise torch.OutOfMemoryError


def exhaust_update(_: nn.Module, optimizer: AdamW) -> None:
    optimizer.step = exhaust  # type: ignore[method-assign]


@pytest.mark.parametrize("fault", [exhaust, exhaust_update])
def test_memory_that_is_too_small(toy: Any, run: RunFolder, fault: Callable[..., None]) -> None:
    with pytest.raises(UserError, match="step 6: the GPU's memory is too small; a smaller --batch-size"):
        toy.fit(run, objective=toy.Objective(after={5: fault}))


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"clip": 0.05}, {"clip": 0.05}),
        ({"lr_schedule": "linear", "warmup": 0.25}, {"rates": WARMUP_THEN_LINEAR}),
    ],
)
def test_loop_equals_plain_loop(toy: Any, run: RunFolder, settings: dict[str, Any], options: dict[str, Any]) -> None:
    objective = toy.Objective()
    _, state, seen = toy.fit(run, objective=objective, **settings)
    assert state.step == 12 and state.finished
    torch.testing.assert_close(seen, by_hand(toy, **options)[3::4], rtol=0, atol=1e-7)
    assert objective.asked == [(step, step // 4, toy.rows(step).tolist(), True) for step in range(12)]
    rates = options.get("rates", [0.1] * 12)
    assert [row["lr"] for row in logged(run, "train")] == pytest.approx(rates[3::4])


def overflow(model: nn.Module, _: Any) -> None:
    assert model.weight.grad is not None
    model.weight.grad.fill_(math.inf)


def test_fp16_overflow_is_skipped(toy: Any, run: RunFolder) -> None:
    """The loss scale is a power of two, so that all other steps are bit-equal to those without it."""
    objective = toy.Objective(after={3: overflow})
    model, state, _ = toy.fit(run, objective=objective, precision="fp16", log_every=1, clip=0.05)
    assert torch.equal(model.weight, by_hand(toy, clip=0.05, skipped=3)[-1])
    rows = logged(run, "train")
    assert [row["toy/skipped"] for row in rows] == [float(step == 3) for step in range(12)]
    assert [row["toy/loss_scale"] for row in rows] == [65536.0] * 4 + [32768.0] * 8
    assert ["toy/gradient_norm" in row for row in rows] == [step != 3 for step in range(12)]
    # a resumed run goes on with the scale
    other = toy.begin(run.path.parent / "other")
    killed = toy.Objective(after={3: overflow, 7: die})
    with pytest.raises(KeyboardInterrupt):
        toy.fit(other, objective=killed, precision="fp16", save_every=1, clip=0.05)
    again, resumed, _ = toy.fit(other, precision="fp16", resume=True, clip=0.05)
    assert torch.equal(again.weight, model.weight) and resumed.loss_scale == state.loss_scale


def test_overflow_at_every_scale_fails(toy: Any, run: RunFolder) -> None:
    objective = toy.Objective(after=dict.fromkeys(range(40), overflow))
    with pytest.raises(UserError, match="gradient norm of toy is"):
        toy.fit(run, objective=objective, precision="fp16", epochs=10)


def assert_resumes_finished(toy: Any, run: RunFolder, model: nn.Linear, state: Any, **settings: Any) -> None:
    """A run that has ended trains no more, and leaves the same weights and metrics again."""
    rows = run.metrics()
    objective = toy.Objective()
    again, resumed, _ = toy.fit(run, objective=objective, resume=True, **settings)
    assert not objective.asked
    assert torch.equal(again.weight, model.weight) and resumed == state
    assert run.metrics() == rows


def test_finished_run_keeps_one_model(toy: Any, run: RunFolder) -> None:
    model, state, seen = toy.fit(run, scores=[0.3, 0.9, 0.5])
    assert torch.equal(model.weight, seen[1]), "of the best evaluation"
    files = {str(path.relative_to(run.checkpoints)) for path in run.checkpoints.glob("*/*.*")}
    assert files == {"step-00000008/state.json", "step-00000008/model.safetensors", "step-00000012/state.json"}
    assert_resumes_finished(toy, run, model, state)


def test_keep_last_leaves_last_weights(toy: Any, run: RunFolder) -> None:
    model, state, seen = toy.fit(run, scores=[0.3, 0.9, 0.5], keep="last", save_every=3)
    assert (state.best, state.best_step, state.kept_step, state.kept_score) == (0.9, 8, 12, 0.5)
    assert torch.equal(model.weight, seen[2])
    assert checkpoint.steps(run.checkpoints) == [12], "no checkpoint of a step that is not kept"
    assert_resumes_finished(toy, run, model, state, keep="last")


def test_initial_weights_kept_without_gain(toy: Any, run: RunFolder) -> None:
    options = {"scores": [0.3, 0.9, 0.5], "baseline": 0.9, "save_every": 3}
    with pytest.raises(KeyboardInterrupt):
        toy.fit(run, objective=toy.Objective(after={5: die}), **options)
    assert checkpoint.steps(run.checkpoints) == [0, 4]
    model, state, _ = toy.fit(run, resume=True, **options)
    assert (state.best, state.best_step, state.kept_step, state.kept_score) == (0.9, 0, 0, 0.9)
    assert torch.equal(model.weight, toy.model().weight)
    assert [row["best"] for row in logged(run, "evaluation")] == [False] * 3
    assert checkpoint.steps(run.checkpoints) == [0, 12]
    assert_resumes_finished(toy, run, model, state, baseline=0.9)


@pytest.mark.parametrize(
    ("scores", "baseline", "best"), [([0.1, 0.9, 0.8, 0.9, 1], None, 8), ([0.1, 0.2, 0.9], 0.5, 0)]
)
def test_patience_stops_early(toy: Any, run: RunFolder, scores: list[float], baseline: float | None, best: int) -> None:
    objective = toy.Objective()
    model, state, _ = toy.fit(run, scores=scores, epochs=5, patience=2, objective=objective, baseline=baseline)
    assert len(objective.asked) == best + 8, "two evaluations without gain after the best one"
    assert state.finished and state.best_step == state.kept_step == best
    assert_resumes_finished(toy, run, model, state, epochs=5, patience=2, baseline=baseline)


def test_first_ranks_scores_decide(toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "broadcast", lambda score: torch.full_like(score, 0.4))
    _, state, _ = toy.fit(run, scores=[0.3, None, 0.9], baseline=0.1)
    assert (state.best, state.best_step, state.score) == (0.4, 0, 0.4)


@pytest.mark.parametrize("bad", [math.nan, None])
def test_undefined_score_is_never_best(
    toy: Any, run: RunFolder, bad: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    _, state, _ = toy.fit(run, scores=[bad, 0.1, bad])
    assert (state.best, state.best_step, state.kept_step) == (0.1, 8, 8)
    scores = [(row["score"], row["best"]) for row in logged(run, "evaluation")]
    assert scores == [(None, False), (0.1, True), (None, False)]
    assert "note: step 4: the score is undefined" in capsys.readouterr().err
    never, state, _ = toy.fit(toy.begin(run.path.parent / "never"), scores=[bad] * 3)
    assert (state.best, state.kept_step) == (None, 12), "without a best evaluation the last step is kept"
    assert torch.equal(never.weight, by_hand(toy)[-1])


@pytest.mark.parametrize(
    ("part", "steps", "keep"), [(0.0, 1, "best"), (0.05, 1, "last"), (0.5, 6, "best"), (1.0, 12, "last")]
)
def test_last_evaluation_of_mean_weights(toy: Any, run: RunFolder, part: float, steps: int, keep: str) -> None:
    model, state, seen = toy.fit(run, average=part, keep=keep)
    plain = by_hand(toy)
    torch.testing.assert_close(seen[:-1], plain[3:-1:4], rtol=0, atol=0)
    torch.testing.assert_close(seen[-1], torch.stack(plain[-steps:]).double().mean(0).float())
    assert torch.equal(model.weight, seen[-1]) and state.kept_step == 12
    assert_resumes_finished(toy, run, model, state, average=part, keep=keep)


@pytest.mark.parametrize(
    ("kept", "best", "settings", "text"),
    [
        (0, 0, {"keep": "best"}, "the encoder from before training"),
        (8, 8, {"keep": "best"}, f"step 8 of 12, the best by {TrainingSettings.metric}"),
        (12, 8, {"keep": "best"}, "step 12 of 12, the last"),  # no evaluation has a score
        (12, 12, {"keep": "last"}, "step 12 of 12, the last"),
        (12, 12, {"keep": "best", "average": 0.25}, "the mean of the weights over the last 25% of 12 steps"),
        (8, 8, {"keep": "best", "average": 0.25}, "step 8 of 12, the best"),
    ],
)
def test_kept_weights_are_described(kept: int, best: int, settings: dict[str, Any], text: str) -> None:
    state = LoopState(step=12, kept_step=kept, best_step=best)
    assert state.describe_kept_weights(TrainingSettings(**settings), 12).startswith(text)


def test_rows_hold_means_since_last(toy: Any, run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    toy.fit(run, log_every=3, evaluate_every=5)
    lines = [line for line in capsys.readouterr().out.splitlines() if "evaluation" not in line]
    every = toy.begin(run.path.parent / "every")
    toy.fit(every, log_every=1)
    losses = [row["toy/loss"] for row in logged(every, "train")]
    assert [row["step"] for row in logged(run, "evaluation")] == [5, 10, 12], "by the interval, and at the end"
    rows = logged(run, "train")
    assert [row["step"] for row in rows] == [3, 4, 5, 6, 8, 9, 10, 12], "one ends with every epoch and evaluation"
    start = 0
    for line, row in zip(lines, rows, strict=True):
        end = row["step"]
        examples = [len(toy.rows(step)) for step in range(start, end)]
        assert row["toy/loss"] == pytest.approx(np.average(losses[start:end], weights=examples))
        assert row["epoch"] == (end - 1) // STEPS + 1
        assert f"step {end}/12" in line and f"loss {row['toy/loss']:.4f}" in line
        start = end


def spoil_parameter(model: nn.Linear, optimizer: AdamW) -> None:
    with torch.no_grad():
        model.bias[0] = math.inf


def spoil_moment(model: nn.Linear, optimizer: AdamW) -> None:
    optimizer.state[model.weight]["exp_avg_sq"][0, 0] = math.inf


@pytest.mark.parametrize(
    ("fault", "step", "every"),
    [
        ({"scalars": {5: {"loss": math.nan}}}, 6, {"save_every": 3}),
        ({"after": {2: overflow}}, 3, {"save_every": 1}),
        ({"after": {5: spoil_parameter}}, 6, {"save_every": 3}),
        ({"after": {11: spoil_moment}}, 12, {"log_every": 1}),
    ],
)
def test_no_checkpoint_is_infinite(
    toy: Any, run: RunFolder, fault: dict[str, Any], step: int, every: dict[str, int]
) -> None:
    """The error names the step and the task: that of the fault, or of the checkpoint that would have held it."""
    with pytest.raises(UserError, match=f"^step {step}: .*toy.*--lr") as caught:
        toy.fit(run, objective=toy.Objective(**fault), **every)
    assert "\n" not in str(caught.value)
    files = [*run.checkpoints.glob("*/*.safetensors")]
    assert files
    for file in files:
        for name, tensor in load_file(file).items():
            assert tensor.isfinite().all(), name


def send(*numbers: int) -> Callable[..., None]:
    """A function that sends signals to this process."""

    def kill(*_: Any) -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return kill


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signal_stops_after_its_step(toy: Any, run: RunFolder, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_ONE_NOTICE", math.inf)
    whole, *_ = toy.fit(toy.begin(run.path.parent / "whole"))
    objective = toy.Objective(after={5: send(number, number)})  # clusters send it twice
    with pytest.raises(SystemExit) as stop:
        cli.run(lambda: toy.fit(run, objective=objective))
    assert stop.value.code == 128 + number
    assert checkpoint.steps(run.checkpoints) == [4, 6]
    resumed, *_ = toy.fit(run, resume=True)
    assert torch.equal(resumed.weight, whole.weight)


def test_second_signal_ends_at_once(toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_ONE_NOTICE", -1.0)
    with pytest.raises(SystemExit) as stop:
        toy.fit(run, objective=toy.Objective(after={5: send(signal.SIGTERM, signal.SIGUSR1)}))
    assert stop.value.code == 128 + signal.SIGUSR1
    assert checkpoint.steps(run.checkpoints) == [4]


@pytest.mark.parametrize("here", [True, False])
def test_ranks_finish_a_stopped_evaluation(
    toy: Any, run: RunFolder, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together, although one of them alone has had the signal; a resumed run repeats the evaluation."""
    ended = []

    def score() -> float:
        if here:
            os.kill(os.getpid(), signal.SIGTERM)
        ended.append(True)
        return 0.5

    def max_over_ranks(own: int, _: torch.device) -> int:
        return signal.SIGTERM if ended else own

    monkeypatch.setattr(distributed, "world", lambda: 2)
    if not here:
        monkeypatch.setattr(distributed, "max_over_ranks", max_over_ranks)
    with pytest.raises(cli.Interrupted, match="stopped after step 8 of 12"):
        toy.fit(run, scores=[0.4, score])
    assert ended and [row["step"] for row in logged(run, "evaluation")] == [4]
    assert checkpoint.steps(run.checkpoints) == [4, 8]
    monkeypatch.undo()
    toy.fit(run, resume=True)
    assert [row["step"] for row in logged(run, "evaluation")] == [4, 8, 12]


def test_differing_ranks_are_not_saved(toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    differing = iter([0, 1])
    monkeypatch.setattr(distributed, "differing_rank", lambda *_: next(differing))
    with pytest.raises(UserError, match="step 4: the parameters of process 1 differ from those of process 0"):
        toy.fit(run, save_every=2)
    assert checkpoint.steps(run.checkpoints) == [2]


def test_ranks_draw_their_own_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = set()
    for rank in range(3):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        StepContext(1, 2, "fp32", torch.device("cpu")).seed_dropout("encoder")
        seeds.add(torch.initial_seed())
    assert len(seeds) == 3


def test_a_terminal_has_a_bar(toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("JPY_PARENT_PID", "TQDM_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    toy.fit(run)
    assert "12/12" in terminal.getvalue()
    assert terminal.getvalue().count("evaluation: ") == 3


def test_silence_is_broken(
    toy: Any, run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SILENCE", 0)
    toy.fit(run, log_every=100)
    printed = capsys.readouterr().out
    assert all(f"step {step}/12" in printed for step in range(1, 13))


def test_ignored_signal_stays_ignored(toy: Any, run: RunFolder) -> None:
    """SIGHUP of a command under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _, state, _ = toy.fit(run, objective=toy.Objective(after={5: send(signal.SIGHUP)}))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert state.finished


def in_destructor() -> float:
    """A signal whose exception Python drops, as it is raised inside a destructor."""

    class Dying:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    Dying()
    return 0.3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signal_before_the_loop_stops(toy: Any, run: RunFolder) -> None:
    """One whose exception was lost."""

    def command() -> None:
        in_destructor()
        toy.fit(run)

    with pytest.raises(SystemExit) as stop:
        cli.run(command)
    assert stop.value.code == 128 + signal.SIGTERM
    assert checkpoint.steps(run.checkpoints) == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("evaluation", [send(signal.SIGTERM), in_destructor, None], ids=["signal", "lost", "kill"])
def test_stopped_evaluation_is_done_again(
    toy: Any, run: RunFolder, evaluation: Callable[..., Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one whose row is logged, while its result is in no checkpoint."""
    whole_run = toy.begin(run.path.parent / "whole")
    whole, state, _ = toy.fit(whole_run, scores=[0.1, 0.3, 0.2])
    if evaluation is None:
        with pytest.raises(KeyboardInterrupt):
            toy.fit(run, scores=[0.1, 0.3], objective=toy.Objective(after={9: die}))
        assert [row["step"] for row in logged(run, "evaluation")] == [4, 8]
    else:
        with pytest.raises(SystemExit) as stop:
            cli.run(lambda: toy.fit(run, scores=[0.1, evaluation]))
        assert stop.value.code == 128 + signal.SIGTERM
        assert "stopped after step 8 of 12, before its evaluation" in capsys.readouterr().err
    assert checkpoint.steps(run.checkpoints) == [4, 8]
    resumed, later, _ = toy.fit(run, resume=True, scores=[0.3, 0.2])
    assert torch.equal(resumed.weight, whole.weight)
    assert later == state
    assert [row["step"] for row in run.metrics()] == [row["step"] for row in whole_run.metrics()]
