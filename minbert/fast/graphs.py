"""Sentence vectors in training on a GPU, where a forward pass is one launch, and so is a backward pass.

The encoder of a small batch starts hundreds of kernels of some microseconds each, and the processor takes several times
as long to start them as the GPU to run them. A CUDA graph replays them all at once, but with fixed sizes. So a batch is
filled up to one of a few sizes by more sentences, whose vectors are dropped; a size is recorded when it first occurs.

Axes: T tokens in the batch, B sentences, D hidden.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from minbert.bert import BertModel
from minbert.encoder import vectors
from minbert.ragged import Ragged, to_device

GPU = "cuda"
"""The type of the devices whose batches are replayed; tests replay on a CPU."""


class GraphedVectors:
    """`minbert.encoder.vectors` of an encoder for training steps: `GraphedVectors(model, pooler)(ragged)`, [B, D].

    It replays graphs if it is `active` and the batch on a GPU, unless an earlier pass waits for its backward pass or a
    parameter has a gradient already: a recorded backward pass replaces gradients, it does not add to them. Every other
    call is `vectors`. Dropout masks follow torch's seed, but are not those of `vectors`.
    """

    def __init__(self, model: BertModel, pooler: str) -> None:
        self.model, self.pooler = model, pooler
        self.active = False
        self.waiting = False  # between a forward pass and its backward pass
        self._recorded: dict[Any, _Recorded] = {}
        self._pool: Any = None  # the memory of all recordings
        self._gradients: dict[str, Tensor] = {}  # of all recordings
        self._parameters = [*model.parameters()]

    def __call__(self, ragged: Ragged) -> Tensor:
        """One vector per sentence: [B, D], in the order of `ragged`."""
        positions = self.model.config.max_position_embeddings
        trained = [p for p in self._parameters if p.requires_grad] if torch.is_grad_enabled() else []
        replayable = not self.waiting and all(p.grad is None for p in trained)
        if not (self.active and ragged.ids.device.type == GPU and replayable) or max(ragged.lengths) > positions:
            return vectors(self.model, ragged, self.pooler)
        size = sizes(ragged.lengths, positions)
        dtype = torch.get_autocast_dtype(GPU) if torch.is_autocast_enabled(GPU) else None
        key = size, dtype, bool(trained)
        if key not in self._recorded:
            self._recorded[key] = self._record(ragged, size, dtype)
        recorded = self._recorded[key]
        recorded.load(ragged)
        out: Tensor = _Replay.apply(self, recorded, *trained)  # type: ignore[no-untyped-call]
        return out[: len(ragged)]

    def _record(self, ragged: Ragged, size: tuple[int, int, int], dtype: torch.dtype | None) -> "_Recorded":
        """Record the passes of a batch. The state of torch's generators is as before."""
        device = ragged.ids.device
        recorded = _Recorded(*size, device)
        recorded.load(ragged)
        # Aliases: autograd would wait for the stream on which the parameters themselves were used before.
        aliases = {name: p.detach().requires_grad_(p.requires_grad) for name, p in self.model.named_parameters()}
        trained = {name: p for name, p in aliases.items() if p.requires_grad and torch.is_grad_enabled()}
        module, outputs = _Vectors(self.model, self.pooler), list[Tensor]()

        def forward() -> None:
            with torch.autocast(GPU, dtype, enabled=dtype is not None, cache_enabled=False):
                prefixed = {f"model.{name}": alias for name, alias in aliases.items()}
                outputs[:] = [torch.func.functional_call(module, prefixed, (recorded.ragged(),))]
            recorded.hold(outputs[0].detach())

        def backward() -> None:
            with torch.autocast(GPU, enabled=False):  # as in any backward pass
                found = torch.autograd.grad(outputs, [*trained.values()], recorded.gradient, allow_unused=True)
            for name, new in zip(trained, found, strict=True):
                if new is not None:
                    self._gradients.setdefault(name, new).copy_(new)

        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.random.fork_rng([device]):
            with preparation(device):
                forward()
                if trained:
                    backward()
            recorded.forward = capture(forward, self._pool)
            if trained:
                recorded.backward = capture(backward, self._pool)
        recorded.gradients = [self._gradients.get(name) for name in trained]
        return recorded


@contextmanager
def preparation(device: torch.device) -> Iterator[None]:
    """A stream for passes before those recorded: libraries prepare themselves in the first ones."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def capture(function: Callable[[], None], pool: Any) -> Callable[[], None]:
    """Record the kernels that a function starts, with memory of a pool; returns what replays them."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool):
        function()
    return graph.replay


def sizes(lengths: Sequence[int], positions: int) -> tuple[int, int, int]:
    """The tokens and sentences that batches like this one are filled up to, and a bound of the sentences' lengths.

    Tokens are added up to a multiple of 64 (128 or 256 in larger batches). They form as many sentences as it takes for
    none to exceed the bound, which is the longest length of the batch, rounded up to a power of two.
    """
    count = sum(lengths)
    bound = min(max(32, 2 ** (max(lengths) - 1).bit_length()), positions)
    step = min(max(64, 2 ** (count.bit_length() - 4)), 256)
    added = -(-(step - 1) // (bound - 1))
    tokens, sentences = -(-(count + added) // step) * step, len(lengths) + added
    return tokens, sentences, min(bound, tokens - sentences + 1)


def filled(lengths: Sequence[int], tokens: int, sentences: int) -> list[int]:
    """The lengths, and those of the sentences that fill a batch up, in equal shares."""
    return [*lengths, *_shares(tokens - sum(lengths), sentences - len(lengths))]


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]


class _Vectors(nn.Module):
    """`vectors` as a module, for `functional_call`."""

    def __init__(self, model: BertModel, pooler: str) -> None:
        super().__init__()
        self.model, self.pooler = model, pooler

    def forward(self, ragged: Ragged) -> Tensor:
        """[B, D]."""
        return vectors(self.model, ragged, self.pooler)


class _Recorded:
    """The passes of batches of one size, and the tensors that they read and write."""

    forward: Callable[[], None]
    backward: Callable[[], None]
    out: Tensor | None = None  # [S, D], S sentences with those that fill the batch up
    gradient: Tensor  # of `out`
    gradients: list[Tensor | None]  # of the parameters

    def __init__(self, tokens: int, sentences: int, bound: int, device: torch.device) -> None:
        # Only the number of the lengths, their sum and the largest are used, as the kernels read `ends`.
        self.lengths = bound, *_shares(tokens - bound, sentences - 1)
        self.tokens = torch.zeros(3, tokens, dtype=torch.int64, device=device)
        self.ends = torch.zeros(sentences + 1, dtype=torch.int32, device=device)

    def load(self, ragged: Ragged) -> None:
        """Copy a batch to the tensors that the graphs read, with the sentences that fill it up."""
        total = self.tokens.shape[1]
        together = torch.stack([ragged.ids, ragged.positions, ragged.types])
        self.tokens.copy_(F.pad(together, (0, total - together.shape[1])))
        ends = np.cumsum([0, *filled(ragged.lengths, total, len(self.lengths))]).astype(np.int32)
        self.ends.copy_(to_device(torch.from_numpy(ends), self.ends.device))

    def hold(self, out: Tensor) -> None:
        """Copy the vectors of a pass to `out`."""
        if self.out is None:
            self.out, self.gradient = torch.empty_like(out), torch.zeros_like(out)
        self.out.copy_(out)

    def ragged(self) -> Ragged:
        """The batch. Its sentences end where `ends` says, and are not as long as its `lengths`."""
        ids, positions, types = self.tokens.unbind()
        ragged = Ragged(ids, positions, types, self.lengths)
        ragged.__dict__["cu_seqlens"] = self.ends
        return ragged


class _Replay(torch.autograd.Function):
    """The recorded passes as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, owner: GraphedVectors, recorded: _Recorded, *parameters: Tensor) -> Tensor:
        """Vectors of all sentences, those that fill the batch up included: [S, D]."""
        ctx.owner, ctx.recorded = owner, recorded
        owner.waiting = bool(parameters)
        recorded.forward()
        assert recorded.out is not None
        return recorded.out.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the parameters."""
        assert ctx.owner.waiting, "a replayed pass has one backward pass"
        recorded: _Recorded = ctx.recorded
        recorded.gradient.copy_(gradient)
        recorded.backward()
        ctx.owner.waiting = False
        return None, None, *(x if x is None else x.detach() for x in recorded.gradients)
