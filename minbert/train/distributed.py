"""Data-parallel training with torch.distributed; with a single process these functions do nothing.

    torchrun --nproc-per-node 2 multitask_train.py ...

Of n ranks, each takes every n-th example of a step. In stage two it divides its losses by the number of examples on all
ranks; in stage one all ranks take the loss of the whole batch, and each goes back through its own examples. The
gradients are summed once per step, after backward. The model is not wrapped.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from minbert.errors import UserError, reason
from minbert.train import cli

_BUCKET = 6_000_000  # gradients in one exchange, 24 MB: as large as DistributedDataParallel's


@contextmanager
def group(device: torch.device) -> Iterator[None]:
    """Join the process group if `torchrun` started the script, and leave it at the end, also after an error.

    gloo's threads abort a process that ends while it is still in the group.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    # torch's default of minutes is too short: the others wait while the first rank scores the triplets or saves
    dist.init_process_group(
        backend="nccl" if device.type == "cuda" else "gloo",
        timeout=timedelta(days=1),
        **_rendezvous_after_restart(),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def _rendezvous_after_restart() -> dict[str, Any]:
    """Arguments by which processes that torchrun has restarted find each other, and not those that ended.

    torchrun keeps one store for all restarts (pytorch/pytorch issue 135712). On several machines they count restarts
    differently, and torchrun needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
    """
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    on_one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    if restarts == "0" or not on_one_machine:
        return {}
    store, rank, world = next(rendezvous("env://"))
    return {"store": PrefixStore(f"restart {restarts}", store), "rank": rank, "world_size": world}


def rank() -> int:
    """The rank of this process; 0 for a single process."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def say(text: str) -> None:
    """Print a line, on the first rank only."""
    if rank() == 0:
        cli.say(text)


def note(text: str) -> None:
    """Print a warning to standard error, on the first rank only."""
    if rank() == 0:
        cli.say(f"note: {text}", sys.stderr)


def own_rows(rows: np.ndarray) -> np.ndarray:
    """This rank's part of a step's examples."""
    return rows[rank() :: world()]


def _exchange(operation: Callable[..., Any], *arguments: Any) -> None:
    """Call an operation of torch.distributed, if there are several ranks. Raises `UserError` if another has ended."""
    if not dist.is_initialized():
        return
    try:
        operation(*arguments)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise UserError(f"another process of this run has ended or cannot be reached: {reason(error)}") from error


def barrier() -> None:
    """Wait until every rank has called this."""
    _exchange(dist.barrier)


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of `x` over all ranks, in place."""
    _exchange(dist.all_reduce, x)
    return x


def gather(rows: Tensor, positions: Tensor, total: int) -> Tensor:
    """The rows of all ranks, without a graph: [total, D], from this rank's `rows` [n, D] and their positions among all.

    `positions` are int64 [n]; a rank may have none. Every position belongs to one rank.
    """
    gathered = torch.zeros(total, rows.shape[1], dtype=rows.dtype, device=rows.device)
    return sum_over_ranks(gathered.index_copy_(0, positions, rows.detach()))


def broadcast(x: Tensor) -> Tensor:
    """The first rank's `x`, in place; `x` has one shape and type on all ranks."""
    _exchange(dist.broadcast, x, 0)
    return x


def max_over_ranks(number: int, device: torch.device) -> int:
    """The highest number of any rank; all ranks get the same one. A device sync with several ranks."""
    if not dist.is_initialized():
        return number
    tensor = torch.tensor(number, device=device)
    _exchange(dist.all_reduce, tensor, dist.ReduceOp.MAX)
    return int(tensor)


def differing_rank(tensors: Iterable[Tensor], device: torch.device) -> int:
    """The highest rank whose tensors differ in a bit from those of the first rank; 0 if there is none."""
    if not dist.is_initialized():
        return 0
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    local = torch.tensor([*digest.digest()], device=device)
    first = broadcast(local.clone())
    # the first rank is equal to itself, so 0 is free to say that all are equal
    difference = 0 if torch.equal(first, local) else rank()
    return max_over_ranks(difference, device)


def sum_gradients(parameters: Iterable[nn.Parameter], device: torch.device) -> None:
    """Sum the gradients of all ranks. A parameter with a gradient on no rank keeps none.

    They are exchanged in buckets, so that a bucket is copied while the one before it is on its way.
    """
    if not dist.is_initialized():
        return
    trained = [p for p in parameters if p.requires_grad]
    # a rank without rows of a batch has no gradients, but every rank must exchange the same buckets
    has_gradient = torch.tensor([p.grad is not None for p in trained], dtype=torch.float32, device=device)
    counts = sum_over_ranks(has_gradient).tolist()  # of the ranks with a gradient
    _exchange(_sum_in_buckets, [p for p, count in zip(trained, counts, strict=True) if count])


def _sum_in_buckets(parameters: list[nn.Parameter]) -> None:
    exchanges = []
    for bucket in _buckets(parameters):
        gradients = []
        for parameter in bucket:
            gradient = parameter.grad
            if gradient is None:
                gradient = torch.zeros_like(parameter)
            gradients.append(gradient.flatten())
        flat = torch.cat(gradients)
        exchanges.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    for bucket, flat, work in exchanges:
        work.wait()
        sizes = [parameter.numel() for parameter in bucket]
        for parameter, gradient in zip(bucket, flat.split(sizes), strict=True):
            parameter.grad = gradient.view_as(parameter)


def _buckets(parameters: Iterable[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """The parameters in their order, in groups of at least `_BUCKET` numbers; the last group may be smaller."""
    bucket: list[nn.Parameter] = []
    size = 0
    for parameter in parameters:
        bucket.append(parameter)
        size += parameter.numel()
        if size >= _BUCKET:
            yield bucket
            bucket = []
            size = 0
    if bucket:
        yield bucket
