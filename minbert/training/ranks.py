"""Several processes on one job: torch.distributed behind a few functions that do nothing when there is one process.

    torchrun --nproc-per-node 2 multitask_train.py ...

Each rank takes every n-th example of a step, divides its losses by the count of all ranks, and the gradients are
summed once per step. Nothing wraps the model.
"""

import os
from collections.abc import Iterable

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from minbert.errors import UserError
from minbert.training import cli


def start(device: torch.device) -> None:
    """Join the group that `torchrun` describes in the environment, if there is one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def rank() -> int:
    """This process's number, 0 when alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def refuse(what: str) -> None:
    """Raises `UserError` in a group of processes, for what runs in one."""
    if world() > 1:
        raise UserError(f"{what} runs in one process; start it without torchrun")


def say(text: str) -> None:
    """Print a line, in the first process alone."""
    if rank() == 0:
        cli.say(text)


def share(rows: np.ndarray) -> np.ndarray:
    """This rank's part of a step's examples."""
    return rows[rank() :: world()]


def wait() -> None:
    """Return when every rank has come here."""
    if dist.is_initialized():
        dist.barrier()


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of `x` over all ranks, in place."""
    if dist.is_initialized():
        dist.all_reduce(x)
    return x


def any_rank(flag: bool, device: torch.device) -> bool:
    """Whether the flag is up on any rank: all ranks get the same answer."""
    if not dist.is_initialized():
        return flag
    return bool(sum_over_ranks(torch.tensor(float(flag), device=device)).item())


def sum_gradients(parameters: Iterable[nn.Parameter], device: torch.device) -> None:
    """Sum the gradients of all ranks in one exchange; a parameter that no rank has a gradient for keeps none."""
    if not dist.is_initialized():
        return
    parameters = [p for p in parameters if p.requires_grad]
    present = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float32, device=device)
    used = [p for p, ranks in zip(parameters, sum_over_ranks(present).tolist(), strict=True) if ranks]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in used])
    sum_over_ranks(flat)
    for parameter, part in zip(used, flat.split([p.numel() for p in used]), strict=True):
        parameter.grad = part.view_as(parameter).clone()
