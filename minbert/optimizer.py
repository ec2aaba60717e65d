"""AdamW as in the CS 224N course, with weight averaging, and learning-rate schedules as pure functions of the step."""

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay (Kingma & Ba 2015, section 2; Loshchilov & Hutter 2019, algorithm 2).

    For each parameter theta with a gradient g, where t counts the updates of this parameter:

        m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
        theta = theta - lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)
        theta = theta - lr weight_decay theta

    As in the course's handout, `eps` is added before the bias correction, and the decay is applied last.
    `correct_bias=False` drops the two corrections. A parameter without a gradient is not changed, nor is its state,
    including the step count. `fused=False` selects the plain implementation, the reference for the fused one.
    """

    # torch's decorator of these two methods imports its compiler at the first call, some 2 s of every start, to keep
    # them out of compiled code. Nothing here is compiled.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        *,
        fused: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "correct_bias": correct_bias,
            "fused": fused,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            # the step count of the fused kernel is that of all parameters in a call
            by_step: dict[int, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self._state_of(parameter)
                    state["step"] += 1
                    by_step[state["step"]].append(parameter)
            update = self._fused_update if group["fused"] else self._plain_update
            for step, parameters in by_step.items():
                update(parameters, step, group)
        return loss

    # Weight averaging stands here and not in `torch.optim.swa_utils.AveragedModel`, so that the mean is part of the
    # optimizer's state: it is saved with a checkpoint, and no second model is needed.

    @torch.no_grad()
    def average(self, count: int) -> None:
        """Take the current weights into each parameter's running mean as its `count`-th value; 1 starts the mean.

        The mean has the parameter's shape (Izmailov et al., 2018, algorithm 1).
        """
        parameters: list[Tensor] = []
        for group in self.param_groups:
            parameters += group["params"]
        if count == 1:
            for parameter in parameters:
                self._state_of(parameter)["mean"] = parameter.clone()
        else:
            means = [self.state[parameter]["mean"] for parameter in parameters]
            # mean += (value - mean) / count, of all parameters in one call
            torch._foreach_lerp_(means, parameters, 1 / count)

    @torch.no_grad()
    def use_average(self) -> None:
        """Set every parameter to its running mean; `average` must have been called before."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.copy_(self.state[parameter]["mean"])

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state

    def _plain_update(self, parameters: list[Tensor], step: int, group: dict[str, Any]) -> None:
        """The formula of this class, line by line."""
        beta1, beta2 = group["betas"]
        rate = group["lr"]
        if group["correct_bias"]:
            rate *= math.sqrt(1 - beta2**step) / (1 - beta1**step)
        for parameter in parameters:
            gradient = parameter.grad
            assert gradient is not None
            m = self.state[parameter]["exp_avg"]
            v = self.state[parameter]["exp_avg_sq"]
            m.mul_(beta1).add_(gradient, alpha=1 - beta1)
            v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            parameter.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-rate)
            # last, and by the rate without bias correction, as the course's handout has it
            parameter.mul_(1 - group["lr"] * group["weight_decay"])

    def _fused_update(self, parameters: list[Tensor], step: int, group: dict[str, Any]) -> None:
        """The same update in one pass over memory, by torch's fused kernel.

        The kernel computes theta (1 - a w) - a / (1 - b1^s) m / (sqrt(v / (1 - b2^s)) + e). In the formula of this
        class decay comes last and scales the update u too: (theta - lr u)(1 - lr weight_decay). The values of a, w, e
        and s below make both equal: a = lr (1 - lr weight_decay), w = weight_decay / (1 - lr weight_decay).
        """
        beta1, beta2 = group["betas"]
        shrink = 1 - group["lr"] * group["weight_decay"]
        rate = group["lr"] * shrink
        weight_decay = group["weight_decay"] / shrink
        eps = group["eps"]
        if group["correct_bias"]:
            kernel_step = step
            # the kernel adds it after the correction of v, this class before
            eps /= math.sqrt(1 - beta2**step)
        else:
            # after so many steps both corrections are 1 in double precision
            kernel_step = 1_000_000_000
        counter = torch.full((), float(kernel_step), device=parameters[0].device)
        torch._fused_adamw_(
            parameters,
            [_with_strides_of(p, p.grad) for p in parameters if p.grad is not None],
            [self.state[p]["exp_avg"] for p in parameters],
            [self.state[p]["exp_avg_sq"] for p in parameters],
            [],  # the maxima of AMSGrad
            [counter] * len(parameters),
            lr=rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=False,
            maximize=False,
        )


def _with_strides_of(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient in the parameter's memory layout, in which torch's kernel reads both."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def decay_groups(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: weight decay for parameters of two or more axes, none for biases and layer normalisation."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: max(0.0, 1.0 - done),
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * min(1.0, done))),
}
"""Factor on the learning rate, given the share of the steps after the warm-up that is done."""


def lr_factor(schedule: str, step: int, total: int, warmup: int = 0) -> float:
    """Factor on the learning rate at `step` of 0..total-1: `warmup` steps of linear warm-up, then the schedule.

    The warm-up rises from 1/warmup to 1; `linear` and `cosine` then fall from 1 to 0, reached at `total`.
    """
    if step < warmup:
        return (step + 1) / warmup
    return SCHEDULES[schedule]((step - warmup) / max(1, total - warmup))
