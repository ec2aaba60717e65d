"""Guards: AdamW equals the course's handout and torch's; its running mean, its groups, and the learning-rate schedules.

python -m pytest --import-mode=importlib tests/minbert/test_optimizer.py
"""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from minbert import AdamW
from minbert.optimizer import SCHEDULES, decay_groups, lr_factor

PATHS = pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])


def quiet_gradients() -> list[list[Tensor]]:
    """Gradients of two parameters for 30 steps, of very different sizes, exact zeros among them."""
    generator = torch.Generator().manual_seed(3)
    sizes = torch.tensor([1e-8, 1e-3, 1.0, 0.0, 30.0])
    gradients = []
    for _ in range(30):
        gradients.append([torch.randn(rows, 5, generator=generator) * sizes for rows in (4, 1)])
    return gradients


def drive(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], gradients: list[list[Tensor]]) -> None:
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()


def fresh() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(rows, 5, generator=generator)) for rows in (4, 1)]


def float64_loop(
    gradients: list[list[Tensor]],
    lr: float,
    wd: float,
    correct: bool,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
) -> list[Tensor]:
    """The course's handout, line by line, in double precision."""
    beta1, beta2 = betas
    results = []
    for number, parameter in enumerate(fresh()):
        x = parameter.detach().double()
        m = torch.zeros_like(x)
        v = torch.zeros_like(x)
        for t, step in enumerate(gradients, start=1):
            g = step[number].double()
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g**2
            rate = lr
            if correct:
                rate = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            x = x - rate * m / (v.sqrt() + eps)
            x = x - lr * wd * x
        results.append(x)
    return results


@PATHS
def test_reference_numbers_of_the_course(fused: bool) -> None:
    draws = np.random.default_rng(0)
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False)
    optimizer = AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, correct_bias=True, fused=fused)
    for _ in range(1000):
        optimizer.zero_grad()
        x = torch.tensor(draws.uniform(size=3), dtype=torch.float32)
        wanted = torch.stack([x[0] + x[1], -x[2]])
        ((wanted - model(x)) ** 2).sum().backward()
        optimizer.step()
    expected = torch.tensor([[0.55482787, 0.86665666, 0.07291982], [-0.44724506, -0.2951228, -0.2717272]])
    torch.testing.assert_close(model.weight.detach(), expected, atol=1e-6, rtol=1e-4)


def test_copy_makes_the_same_updates() -> None:
    gradients = quiet_gradients()
    parameters = fresh()
    optimizer = AdamW(parameters, lr=0.05, weight_decay=0.3)
    drive(optimizer, parameters, gradients[:5])
    copied = copy.deepcopy(optimizer)
    others = copied.param_groups[0]["params"]
    drive(optimizer, parameters, gradients[5:])
    drive(copied, others, gradients[5:])
    for parameter, other in zip(parameters, others, strict=True):
        assert other is not parameter and torch.equal(other, parameter)


@PATHS
@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize("wd", [0.0, 0.3])
def test_equals_the_float64_handout(fused: bool, correct: bool, wd: float) -> None:
    gradients = quiet_gradients()
    parameters = fresh()
    drive(AdamW(parameters, lr=0.05, weight_decay=wd, correct_bias=correct, fused=fused), parameters, gradients)
    values = [parameter.detach().double() for parameter in parameters]
    torch.testing.assert_close(values, float64_loop(gradients, 0.05, wd, correct), atol=3e-6, rtol=3e-6)


@PATHS
def test_betas_and_eps_are_those_given(fused: bool) -> None:
    gradients = quiet_gradients()
    parameters = fresh()
    constants: dict[str, Any] = {"betas": (0.7, 0.95), "eps": 1e-2}
    drive(AdamW(parameters, lr=0.05, fused=fused, **constants), parameters, gradients)
    values = [parameter.detach().double() for parameter in parameters]
    torch.testing.assert_close(values, float64_loop(gradients, 0.05, 0, True, **constants), atol=3e-6, rtol=3e-6)


@PATHS
def test_no_gradient_keeps_everything(fused: bool) -> None:
    """A parameter that is idle for 7 steps goes on as if they had not been, at its own step count."""
    gradients = quiet_gradients()
    parameters = fresh()
    optimizer = AdamW(parameters, lr=0.05, weight_decay=0.3, fused=fused)
    drive(optimizer, parameters, gradients[:5])
    weight = parameters[0].detach().clone()
    for step in gradients[5:12]:
        parameters[0].grad = None
        parameters[1].grad = step[1].clone()
        optimizer.step()
    assert torch.equal(parameters[0], weight)
    drive(optimizer, parameters, gradients[12:20])
    steps_with_gradient = gradients[:5] + gradients[12:20]
    alone = fresh()
    drive(AdamW(alone, lr=0.05, weight_decay=0.3, fused=fused), alone, steps_with_gradient)
    assert torch.equal(parameters[0], alone[0])
    assert [optimizer.state[parameter]["step"] for parameter in parameters] == [13, 20]


@PATHS
def test_strided_gradients_equal_torch(fused: bool) -> None:
    weights = torch.randn(6, 4).double()
    gradient = torch.randn(4, 6).double().T
    ours = nn.Parameter(weights.clone())
    theirs = nn.Parameter(weights.clone())
    optimizer = AdamW([ours], lr=0.1, eps=1e-8, fused=fused)
    other = torch.optim.AdamW([theirs], lr=0.1, eps=1e-8, weight_decay=0.0)
    ours.grad = gradient
    theirs.grad = gradient.contiguous()
    for _ in range(3):
        optimizer.step()
        other.step()
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_running_mean_covers_all_steps() -> None:
    always = nn.Parameter(torch.randn(3, 4))
    late = nn.Parameter(torch.randn(5))
    optimizer = AdamW([{"params": [always]}, {"params": [late]}], lr=0.1)
    seen: dict[nn.Parameter, list[Tensor]] = {always: [], late: []}
    for step in range(7):
        optimizer.zero_grad()
        always.square().sum().backward()
        if step > 3:
            late.square().sum().backward()
        optimizer.step()
        optimizer.average(step + 1)
        for parameter, values in seen.items():
            values.append(parameter.detach().double().clone())
    optimizer.use_average()
    for parameter, values in seen.items():
        torch.testing.assert_close(parameter.detach(), torch.stack(values).mean(0).float())


def test_decay_groups_split_by_axes() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2), nn.LayerNorm(2))
    decayed, free = decay_groups(model.parameters(), 0.01)
    assert [p.shape for p in decayed["params"]] == [(5, 3), (2, 3)]
    assert decayed["weight_decay"] == 0.01
    assert [p.shape for p in free["params"]] == [(2,), (2,), (2,)]
    assert free["weight_decay"] == 0.0


@pytest.mark.parametrize("warmup", [0, 10])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule_equals_transformers(schedule: str, warmup: int) -> None:
    """From the end of the warm-up on; during it ours is one step ahead, so that no update has rate 0."""
    name = "constant_with_warmup" if schedule == "constant" else schedule
    (factor,) = transformers.get_scheduler(name, AdamW(fresh(), lr=1.0), warmup, 50).lr_lambdas
    for step in range(50):
        mine = lr_factor(schedule, step, 50, warmup)
        theirs = factor(step) if step >= warmup else factor(step + 1)
        assert 0 < mine <= 1
        assert mine == pytest.approx(theirs, abs=1e-12)
