"""Guards: what surrounds CUDA graphs, without a GPU; `test_cuda.py` has the graphs themselves.

python -m pytest --import-mode=importlib tests/minbert/test_graphs.py
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from minbert import BertModel, Ragged, attention, graphs, pooling, weights
from minbert.config import BertConfig
from minbert.encode import vectors
from minbert.graphs import GraphedVectors, filled, sizes


@given(st.lists(st.integers(1, 510), min_size=1, max_size=300), st.integers(4, 512))
def test_a_size_holds_the_batch_and_its_sentences(lengths: list[int], positions: int) -> None:
    lengths = [min(length, positions) for length in lengths]
    tokens, sentences, bound = sizes(lengths, positions)
    all_lengths = filled(lengths, tokens, sentences)
    assert all_lengths[: len(lengths)] == lengths
    assert (len(all_lengths), sum(all_lengths)) == (sentences, tokens)
    assert min(all_lengths) >= 1 and max(all_lengths) <= bound <= positions
    assert tokens - bound >= sentences - 1, "no token for one of the others"
    assert tokens - sum(lengths) <= 64 + 256 + sum(lengths) // 8


@pytest.fixture
def replayed_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Functions are called again in place of replaying them; attention pads, as the lengths are not the real ones."""
    captured = []

    def capture(function: Callable[[], None], pool: object) -> Callable[[], None]:
        captured.append(torch.enable_grad()(function))
        return captured[-1]

    monkeypatch.setattr(graphs, "GPU", "cpu")
    monkeypatch.setattr(graphs, "capture", capture)
    monkeypatch.setattr(graphs, "preparation", lambda device: nullcontext())
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(attention, "GPUS", ("cpu",))
    monkeypatch.setattr(attention, "kernel_name", lambda *_: "padded")
    return captured


def step(read: Callable[[Ragged], Tensor], model: BertModel, parts: list[Ragged]) -> list[Tensor]:
    """The vectors of the parts of a batch, then the gradients of a sum over all."""
    model.zero_grad(set_to_none=True)
    out = [read(part) for part in parts]
    (torch.cat(out)[:, 0] * torch.arange(sum(map(len, out)))).sum().backward()
    return [*out, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("pooler", pooling.NAMES)
def test_replays_give_vectors_and_gradients_of_the_encoder(
    tiny: Path, replayed_on_the_cpu: list[Callable[[], None]], pooler: str
) -> None:
    """Batches of several sizes, one of them again, and a step of two forward passes, which adds gradients."""
    model = BertModel.with_weights(weights.resolve(str(tiny)), BertConfig.read(tiny)).eval()
    read = GraphedVectors(model, pooler)
    read.active = True
    lengths = [(4, 1, 30, 4, 9), (3, 3), (40, 2, 7, 7, 25), (2, 2, 29, 5, 9), (60,) * 40]
    batches = [Ragged.from_lists([[2, *range(5, 5 + n), 3] for n in batch]) for batch in lengths]
    for parts in [*([batch] for batch in batches), batches[:2]]:
        wanted = step(lambda part: vectors(model, part, pooler), model, parts)
        largest = max(float(x.detach().abs().max()) for x in wanted)  # keys' biases have gradients of rounding errors
        for mine, theirs in zip(step(read, model, parts), wanted, strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-6 * largest, rtol=0)
    assert len(replayed_on_the_cpu) == 2 * 4, "two passes of every size"
