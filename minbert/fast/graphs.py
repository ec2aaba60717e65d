"""Sentence vectors in training on a GPU, where a forward pass is one launch, and so is a backward pass.

The encoder of a small batch starts hundreds of kernels of some microseconds each, and the processor takes several times
as long to start them as the GPU to run them. A CUDA graph replays them all at once, but with fixed sizes. So a batch is
filled up to one of a few sizes by more sentences, whose vectors are dropped; a size is recorded when it first occurs.

Axes: T tokens in the batch, B sentences, S sentences with those that fill the batch up, D hidden.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
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
        self.model = model
        self.pooler = pooler
        self.active = False
        self.waiting = False  # between a forward pass and its backward pass
        self._recordings: dict[Any, _Recording] = {}  # by size, autocast's dtype, and the parameters that are trained
        self._pool: Any = None  # the memory of all recordings
        self._gradients: dict[str, Tensor] = {}  # of all recordings
        self._parameters = list(model.parameters())

    def __call__(self, ragged: Ragged) -> Tensor:
        """One vector per sentence: [B, D], in the order of `ragged`."""
        trained = []
        if torch.is_grad_enabled():
            trained = [p for p in self._parameters if p.requires_grad]
        if not self._can_replay(ragged, trained):
            return vectors(self.model, ragged, self.pooler)
        # batches are filled up to a few sizes, since each needs a recording of its own
        size = sizes(ragged.lengths, self.model.config.max_position_embeddings)
        dtype = None
        if torch.is_autocast_enabled(GPU):
            dtype = torch.get_autocast_dtype(GPU)
        key = (size, dtype, tuple(map(id, trained)))
        if key not in self._recordings:
            self._recordings[key] = self._record(ragged, size, dtype)
        recording = self._recordings[key]
        recording.load(ragged)
        out: Tensor = _Replay.apply(self, recording, *trained)  # type: ignore[no-untyped-call]
        return out[: len(ragged)]

    def _can_replay(self, ragged: Ragged, trained: list[nn.Parameter]) -> bool:
        if not self.active or self.waiting or ragged.ids.device.type != GPU:
            return False
        if max(ragged.lengths) > self.model.config.max_position_embeddings:
            return False  # `vectors` raises the error
        return all(p.grad is None for p in trained)

    def _record(self, ragged: Ragged, size: tuple[int, int, int], dtype: torch.dtype | None) -> "_Recording":
        """Record the passes of a batch. The state of torch's generators is as before."""
        device = ragged.ids.device
        recording = _Recording(*size, device)
        recording.load(ragged)
        module = _Vectors(self.model, self.pooler)
        # Aliases: autograd would wait for the stream on which the parameters themselves were used before.
        aliases = {}
        trained = {}
        for name, parameter in module.named_parameters():
            aliases[name] = parameter.detach().requires_grad_(parameter.requires_grad)
            if parameter.requires_grad and torch.is_grad_enabled():
                trained[name] = aliases[name]
        output: list[Tensor] = []  # with its graph, from `forward` to `backward`

        def forward() -> None:
            output.clear()
            with torch.autocast(GPU, dtype, enabled=dtype is not None, cache_enabled=False):
                output.append(torch.func.functional_call(module, aliases, (recording.batch(),)))
            recording.hold(output[0].detach())

        def backward() -> None:
            with torch.autocast(GPU, enabled=False):  # as in any backward pass
                gradients = torch.autograd.grad(output, list(trained.values()), recording.gradient, allow_unused=True)
            for name, gradient in zip(trained, gradients, strict=True):
                if gradient is None:
                    continue
                if name in self._gradients:
                    self._gradients[name].copy_(gradient)
                else:
                    self._gradients[name] = gradient  # the buffer of all recordings

        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        # dropout draws random numbers in the passes below, which are not part of training
        with torch.random.fork_rng([device]):
            with preparation(device):
                forward()
                if trained:
                    backward()
            recording.forward = capture(forward, self._pool)
            if trained:
                recording.backward = capture(backward, self._pool)
        recording.gradients = [self._gradients.get(name) for name in trained]
        return recording


@cache
def _preparation_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recordings, as cuBLAS keeps a workspace for each stream."""
    return torch.cuda.Stream(device)


@contextmanager
def preparation(device: torch.device) -> Iterator[None]:
    """A stream for passes before those recorded: libraries prepare themselves in the first ones."""
    stream = _preparation_stream(device)
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
    bound = max(32, 2 ** (max(lengths) - 1).bit_length())
    bound = min(bound, positions)
    step = max(64, 2 ** (count.bit_length() - 4))
    step = min(step, 256)
    # at most added + step - 1 tokens fill the batch up, so that a share of `added` sentences is within the bound
    added = math.ceil((step - 1) / (bound - 1))
    tokens = math.ceil((count + added) / step) * step
    sentences = len(lengths) + added
    return tokens, sentences, min(bound, tokens - sentences + 1)


def filled(lengths: Sequence[int], tokens: int, sentences: int) -> list[int]:
    """The lengths, and those of the sentences that fill a batch up, in equal shares; the first may be larger by 1."""
    added = sentences - len(lengths)
    share, larger = divmod(tokens - sum(lengths), added)
    return [*lengths, *[share + 1] * larger, *[share] * (added - larger)]


@dataclass(frozen=True)
class _FixedSizeBatch(Ragged):
    """A batch whose sentences end where a tensor says, which every replay reads anew.

    Of `lengths`, which are those of no batch, only their number, their sum and the largest are used: in a recording,
    kernels and poolers read `cu_seqlens`.
    """

    ends: Tensor

    @property
    def cu_seqlens(self) -> Tensor:
        """Cumulative sequence lengths, starting at 0: int32 [S + 1]."""
        return self.ends


class _Vectors(nn.Module):
    """`vectors` as a module, for `functional_call`."""

    def __init__(self, model: BertModel, pooler: str) -> None:
        super().__init__()
        self.model = model
        self.pooler = pooler

    def forward(self, ragged: Ragged) -> Tensor:
        """[B, D]."""
        return vectors(self.model, ragged, self.pooler)


class _Recording:
    """The passes of batches of one size, and the tensors that they read and write."""

    forward: Callable[[], None]
    backward: Callable[[], None]
    out: Tensor | None = None  # [S, D]
    gradient: Tensor  # of `out`
    gradients: list[Tensor | None]  # of the parameters

    def __init__(self, tokens: int, sentences: int, bound: int, device: torch.device) -> None:
        self.lengths = tuple(filled([bound], tokens, sentences))
        self.tokens = torch.zeros(3, tokens, dtype=torch.int64, device=device)
        self.ends = torch.zeros(sentences + 1, dtype=torch.int32, device=device)

    def load(self, ragged: Ragged) -> None:
        """Copy a batch to the tensors that the graphs read, with the sentences that fill it up."""
        total = self.tokens.shape[1]
        # stacked, so that one kernel copies and pads all three
        together = torch.stack([ragged.ids, ragged.positions, ragged.types])
        self.tokens.copy_(F.pad(together, (0, total - together.shape[1])))
        ends = np.cumsum([0, *filled(ragged.lengths, total, len(self.lengths))]).astype(np.int32)
        self.ends.copy_(to_device(torch.from_numpy(ends), self.ends.device))

    def batch(self) -> Ragged:
        """The batch that the graphs read."""
        ids, positions, types = self.tokens.unbind()
        return _FixedSizeBatch(ids, positions, types, self.lengths, self.ends)

    def hold(self, out: Tensor) -> None:
        """Copy the vectors of a pass to `out`."""
        if self.out is None:
            self.out = torch.empty_like(out)
            self.gradient = torch.zeros_like(out)
        self.out.copy_(out)


class _Replay(torch.autograd.Function):
    """The recorded passes as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, owner: GraphedVectors, recording: _Recording, *parameters: Tensor) -> Tensor:
        """Vectors of all sentences, those that fill the batch up included: [S, D]."""
        ctx.owner = owner
        ctx.recording = recording
        owner.waiting = bool(parameters)
        recording.forward()
        assert recording.out is not None
        # a copy: the next replay overwrites the tensor
        return recording.out.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the parameters."""
        assert ctx.owner.waiting, "a replayed pass has one backward pass"
        recording: _Recording = ctx.recording
        recording.gradient.copy_(gradient)
        recording.backward()
        ctx.owner.waiting = False
        gradients = [None if x is None else x.detach() for x in recording.gradients]
        return None, None, *gradients
