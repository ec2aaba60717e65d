"""Guards: the loop on a toy objective: steps, evaluations, checkpoints, early stop, what is not finite, what is left.

python -m pytest --import-mode=importlib tests/training/test_loop.py
"""

import copy
import math
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from minbert import AdamW, UserError
from minbert.training import checkpoint, loop
from minbert.training.loop import Context
from minbert.training.plan import Plan, Step
from minbert.training.run import RunDir, commit
from minbert.training.settings import RunSettings, TrainingSettings

CPU = torch.device("cpu")
STEPS = 4  # of an epoch
X, Y = torch.randn(STEPS * 3, 5), torch.randn(STEPS * 3)


def plan(epochs: int = 3) -> Plan:
    return Plan([STEPS] * epochs, lambda epoch: [("toy", np.arange(3) + 3 * step) for step in range(STEPS)])


class Objective:
    """Mean squared error of a linear model; notes what it was asked for."""

    def __init__(self, bad: int = -1) -> None:
        self.asked: list[tuple[int, int, list[int], bool]] = []
        self.bad = bad

    def backward(self, model: nn.Module, batch: Step, context: Context) -> dict[str, Tensor]:
        self.asked.append((context.step, batch.epoch, batch.rows.tolist(), model.training))
        loss = ((model(X[batch.rows])[:, 0] - Y[batch.rows]) ** 2).mean()
        if context.step == self.bad:
            loss = loss * math.nan
        loss.backward()
        return {"loss": loss.detach()}


class Falling(Objective):
    """A toy whose spread is 1 until step `low`, and then `value`."""

    def __init__(self, low: int, value: float) -> None:
        super().__init__()
        self.low, self.value = low, value

    def backward(self, model: nn.Module, batch: Step, context: Context) -> dict[str, Tensor]:
        spread = torch.tensor(self.value if context.step >= self.low else 1.0, dtype=torch.float64)
        return super().backward(model, batch, context) | {"spread": spread}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.begin({"settings": {}})
    return made


def fit(
    run: RunDir,
    *,
    scores: Sequence[float] = (),
    epochs: int = 3,
    objective: Objective | None = None,
    baseline: float | None = None,
    floors: dict[str, tuple[float, str]] | None = None,
    **settings: Any,
) -> tuple[nn.Linear, loop.LoopState, list[Tensor]]:
    """Train the toy; evaluations give `scores` in turn. Returns the model, state, and weights at evaluations."""
    torch.manual_seed(3)
    model = nn.Linear(5, 1)
    left, seen = list(scores), []

    def evaluate() -> tuple[float, dict[str, Any]]:
        assert not model.training
        seen.append(model.weight.detach().clone())
        return (left.pop(0) if left else float(len(seen))), {"toy": 0.5}

    care = {"log_every": 100} | {name: settings.pop(name) for name in RunSettings.model_fields if name in settings}
    how = TrainingSettings(**{"lr": 0.1, "clip": 0} | settings), RunSettings(**care)
    optimizer, what = AdamW(model.parameters(), lr=0.1), objective or Objective()
    more = {"device": CPU, "precision": "fp32", "baseline": baseline, "floors": floors}
    state = loop.fit(model, optimizer, what, plan(epochs), run, *how, evaluate, **more)
    return model, state, seen


def by_hand(epochs: int, rates: Callable[[int], float] = lambda step: 0.1, clip: float = 0.0) -> list[Tensor]:
    """The weights after each step of a loop in six lines."""
    torch.manual_seed(3)
    model = nn.Linear(5, 1)
    optimizer = AdamW(model.parameters(), lr=0.1)
    found = []
    for step in range(STEPS * epochs):
        rows = np.arange(3) + 3 * (step % STEPS)
        optimizer.zero_grad()
        ((model(X[rows])[:, 0] - Y[rows]) ** 2).mean().backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.param_groups[0]["lr"] = rates(step)
        optimizer.step()
        found.append(model.weight.detach().clone())
    return found


def test_the_loop_is_the_plain_loop(run: RunDir) -> None:
    objective = Objective()
    _, state, seen = fit(run, objective=objective)
    expected = by_hand(3)
    assert state.step == 12 and state.finished
    torch.testing.assert_close(seen, [expected[3], expected[7], expected[11]], rtol=0, atol=0)
    wanted = [(step, step // 4, (np.arange(3) + 3 * (step % 4)).tolist(), True) for step in range(12)]
    assert objective.asked == wanted


def test_clipping_bounds_the_gradient(run: RunDir) -> None:
    *_, seen = fit(run, clip=0.05)
    torch.testing.assert_close(seen[-1], by_hand(3, clip=0.05)[-1])
    assert not torch.allclose(seen[-1], by_hand(3)[-1])


def test_the_learning_rate_follows_its_schedule(run: RunDir) -> None:
    *_, seen = fit(run, lr_schedule="linear", warmup=0.25)
    rates = [0.1 * (step + 1) / 3 if step < 3 else 0.1 * (1 - (step - 3) / 9) for step in range(12)]
    torch.testing.assert_close(seen[-1], by_hand(3, rates.__getitem__)[-1])
    logged = [row["lr"] for row in run.metrics() if row["kind"] == "train"]
    assert logged == pytest.approx([rates[3], rates[7], rates[11]])


def test_the_last_steps_weights_are_left_where_they_are_to_be_kept(run: RunDir) -> None:
    model, state, seen = fit(run, scores=[0.3, 0.9, 0.5], keep="last", save_every=3)
    assert (state.best, state.best_step, state.kept_step, state.kept_score) == (0.9, 8, 12, 0.5)
    assert torch.equal(model.weight, seen[2])
    assert checkpoint.steps(run.checkpoints) == [12], "no checkpoint of a step that is not kept"
    checkpoint.check(run.checkpoints)
    again, resumed, _ = fit(run, keep="last", resume=True)
    assert torch.equal(again.weight, model.weight) and resumed == state


def start() -> Tensor:
    torch.manual_seed(3)
    return nn.Linear(5, 1).weight.detach()


@pytest.mark.parametrize("baseline", [0.9, 1.0])
def test_weights_from_before_training_are_kept_where_no_evaluation_is_better(run: RunDir, baseline: float) -> None:
    model, state, _ = fit(run, scores=[0.3, 0.9, 0.5], baseline=baseline, save_every=3)
    assert (state.best, state.best_step, state.kept_step, state.kept_score) == (baseline, 0, 0, baseline)
    assert torch.equal(model.weight, start())
    assert [row["best"] for row in run.metrics() if row["kind"] == "evaluation"] == [False] * 3
    assert checkpoint.steps(run.checkpoints) == [0, 12]
    again, resumed, _ = fit(run, baseline=baseline, resume=True)
    assert torch.equal(again.weight, model.weight) and resumed == state


def test_patience_counts_evaluations_that_are_no_better_than_before_training(run: RunDir) -> None:
    objective = Objective()
    _, state, _ = fit(run, scores=[0.1, 0.2, 0.9], baseline=0.5, epochs=5, patience=2, objective=objective)
    assert len(objective.asked) == 8 and state.finished and state.kept_step == 0


def test_a_run_stopped_before_any_gain_goes_on_with_the_weights_from_before_training(run: RunDir) -> None:
    with pytest.raises(UserError, match="step 6"):
        fit(run, scores=[0.1], baseline=0.5, objective=Objective(5), save_every=3)
    assert checkpoint.steps(run.checkpoints) == [0, 4]
    model, state, _ = fit(run, scores=[0.2, 0.3], baseline=0.5, resume=True)
    assert (state.step, state.kept_step) == (12, 0) and torch.equal(model.weight, start())


def test_patience_stops_early(run: RunDir) -> None:
    objective = Objective()
    model, state, seen = fit(run, scores=[0.1, 0.9, 0.8, 0.9, 1.0], epochs=5, patience=2, objective=objective)
    assert len(objective.asked) == 16, "two evaluations without gain after the second"
    assert state.finished and state.best_step == 8
    assert torch.equal(model.weight, seen[1])
    again = Objective()
    resumed, *_ = fit(run, epochs=5, patience=2, objective=again, resume=True)
    assert not again.asked and torch.equal(resumed.weight, model.weight)


@pytest.mark.parametrize("scores", [[0.9, 0.5, 0.4], [0.1, 0.9, 0.4], [0.1, 0.2, 0.3], [-1.0, -1.0, -1.0]])
def test_rotation_keeps_only_the_newest_and_the_best(run: RunDir, scores: list[float]) -> None:
    fit(run, scores=scores, save_every=3)
    assert checkpoint.steps(run.checkpoints) == sorted({4 * (1 + scores.index(max(scores))), 12})


def test_evaluations_come_when_asked_for_and_at_the_very_end(run: RunDir) -> None:
    *_, seen = fit(run, evaluate_every=5)
    rows = run.metrics()
    assert [row["step"] for row in rows if row["kind"] == "evaluation"] == [5, 10, 12]
    assert len(seen) == 3


@pytest.mark.parametrize("evaluate_every", [0, 100])
def test_rows_hold_the_means_since_the_last_row(run: RunDir, evaluate_every: int) -> None:
    fit(run, log_every=3, evaluate_every=evaluate_every)
    rows = [row for row in run.metrics() if row["kind"] == "train"]
    assert [row["step"] for row in rows] == [3, 4, 6, 8, 9, 12], "one ends with every epoch"
    every = RunDir(run.path.parent / "every")
    every.begin({"settings": {}})
    fit(every, log_every=1)
    single = {row["step"]: row["toy/loss"] for row in every.metrics() if row["kind"] == "train"}
    for row, steps in zip(rows, [(1, 2, 3), (4,), (5, 6), (7, 8), (9,), (10, 11, 12)], strict=True):
        assert row["toy/loss"] == pytest.approx(np.mean([single[step] for step in steps]))
        assert row["epoch"] == (row["step"] - 1) // STEPS + 1


@pytest.mark.parametrize("bad", [0, 2, 5])
def test_what_is_not_finite_stops_the_run_with_a_sentence(run: RunDir, bad: int) -> None:
    with pytest.raises(UserError, match=rf"step {bad + 1}: .*nan.*--lr") as caught:
        fit(run, objective=Objective(bad), save_every=3)
    assert "\n" not in str(caught.value)
    for step in checkpoint.steps(run.checkpoints):
        model = nn.Linear(5, 1)
        checkpoint.load(run.checkpoints, step, model)
        assert bool(model.weight.isfinite().all())


FLOORS = {"spread": (0.01, "all vectors point one way")}


@pytest.mark.parametrize("low", [0, 8])
def test_a_value_under_its_floor_stops_the_run_before_it_is_saved(run: RunDir, low: int) -> None:
    with pytest.raises(UserError, match=rf"^step {low + 1}: all vectors point one way \(spread 0.001"):
        fit(run, objective=Falling(low, 0.001), save_every=3, floors=FLOORS)
    assert checkpoint.steps(run.checkpoints) == ([] if low == 0 else [8])


@pytest.mark.parametrize(("value", "floors"), [(0.01, FLOORS), (0.0, {})])
def test_a_value_at_its_floor_or_without_one_does_not(run: RunDir, value: float, floors: dict) -> None:
    fit(run, objective=Falling(0, value), floors=floors)
    assert [row["toy/spread"] for row in run.metrics() if row["kind"] == "train"] == pytest.approx([value] * 3)


def test_a_checkpoint_restores_model_optimizer_and_state(run: RunDir, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = AdamW(model.parameters(), lr=0.1)
    for _ in range(3):  # the second layer's bias never has a gradient
        optimizer.zero_grad(set_to_none=True)
        (nn.functional.linear(model[0](torch.randn(5, 4)), model[1].weight) ** 2).sum().backward()
        optimizer.step()
    checkpoint.save(tmp_path, 3, model, optimizer, {"step": 3, "best": None})
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    fresh = AdamW(other.parameters(), lr=0.1)
    assert checkpoint.load(tmp_path, 3, other, fresh) == {"step": 3, "best": None}
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        one, two = optimizer.state.get(mine, {}), fresh.state.get(theirs, {})
        assert one.keys() == two.keys()
        assert all(torch.equal(torch.as_tensor(one[key]), torch.as_tensor(two[key])) for key in one)
    assert not fresh.state.get(other[1].bias)


def test_a_checkpoint_whose_state_was_changed_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    checkpoint.save(tmp_path, 3, model, AdamW(model.parameters()), {"seen": 41, "best": 0.1 + 0.2, "rows": [1, None]})
    assert checkpoint.load(tmp_path, 3, model) == {"seen": 41, "best": 0.1 + 0.2, "rows": [1, None]}
    path = tmp_path / "step-00000003" / "state.json"
    path.write_text(path.read_text().replace('"seen": 41', '"seen": 42'))
    with pytest.raises(UserError, match=str(path)):
        checkpoint.load(tmp_path, 3, model)


def test_where_to_go_on_after_a_damaged_checkpoint(run: RunDir, tmp_path: Path) -> None:
    """From the one before, but not where a finished run has deleted its optimizer."""
    model = nn.Linear(4, 3)
    for step in (3, 7):
        checkpoint.save(tmp_path, step, model, AdamW(model.parameters()), {"finished": True, "kept_step": 3})
    (tmp_path / "step-00000007" / "state.json").write_text("{")
    with pytest.raises(UserError, match=rf"delete {tmp_path / 'step-00000007'} to go back to step 3"):
        checkpoint.check(tmp_path)
    fit(run, scores=[0.3, 0.9, 0.5])
    (run.checkpoints / "step-00000012" / "state.json").write_text("{")
    with pytest.raises(UserError, match=rf"delete {run.checkpoints} to start over"):
        checkpoint.check(run.checkpoints)


def test_rows_after_the_checkpoint_and_a_line_cut_off_are_forgotten(run: RunDir) -> None:
    for step in (5, 10, 15):
        run.log({"step": step})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 1')
    run.forget_after(10)
    assert (run.path / "metrics.jsonl").read_text() == '{"step": 5}\n{"step": 10}\n'


def test_the_commit_is_that_of_the_projects_own_repository(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True, text=True).stdout

    (tmp_path / "project").mkdir()
    assert commit(tmp_path) is None
    git("init", "-q")
    (tmp_path / "a.py").write_text("1")
    git("add", "a.py")
    git("commit", "-q", "-m", "a")
    head = git("rev-parse", "HEAD").strip()
    assert commit(tmp_path) == head
    (tmp_path / "a.py").write_text("2")
    assert commit(tmp_path) == f"{head}-dirty"
    assert commit(tmp_path / "project") is None, "a project in another one's repository has no commit"


def test_a_finished_run_keeps_one_model_and_no_optimizer_unless_asked(run: RunDir) -> None:
    model, state, _ = fit(run, scores=[0.3, 0.9, 0.5])
    files = {str(path.relative_to(run.checkpoints)) for path in run.checkpoints.rglob("*.*")}
    assert files == {"step-00000008/state.json", "step-00000008/model.safetensors", "step-00000012/state.json"}
    asked = Objective()
    again, resumed, _ = fit(run, objective=asked, resume=True)
    assert not asked.asked and resumed == state and torch.equal(again.weight, model.weight)
    whole = RunDir(run.path.parent / "whole")
    whole.begin({"settings": {}})
    fit(whole, scores=[0.3, 0.9, 0.5], keep_checkpoints=True)
    assert len([*whole.checkpoints.rglob("optimizer.safetensors")]) == 2


def test_without_a_terminal_a_line_comes_with_each_row(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    fit(run, log_every=3)
    lines = [line for line in capsys.readouterr().out.splitlines() if "evaluation" not in line]
    rows = [row for row in run.metrics() if row["kind"] == "train"]
    for line, row in zip(lines, rows, strict=True):
        assert f"step {row['step']}/12" in line and f"loss {row['toy/loss']:.3f}" in line


def test_dropout_seeds_differ_by_every_part_of_their_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for seed in range(3):
        for step in range(40):
            for purpose in ("encoder", "head"):
                for part in range(3):
                    Context(seed, step, "fp32", CPU).seed_dropout(purpose, part)
                    seen.add(tuple(torch.rand(4).tolist()))
    assert len(seen) == 3 * 40 * 2 * 3
