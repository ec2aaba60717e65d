"""Guards: each pooler equals a plain loop over the sentences, values and gradients, and sums in fp32.

python -m pytest --import-mode=importlib tests/minbert/test_pooling.py
"""

from collections.abc import Callable, Sequence

import pytest
import torch

from minbert import Ragged, pooling

LOOPS: dict[str, Callable[[Sequence[torch.Tensor], slice], torch.Tensor]] = {
    "cls": lambda states, rows: states[-1][rows][0],
    "mean": lambda states, rows: states[-1][rows].mean(0),
    "max": lambda states, rows: states[-1][rows].amax(0),
    "avg-first-last": lambda states, rows: ((states[1][rows] + states[-1][rows]) / 2).mean(0),
    "avg-static-last": lambda states, rows: ((states[0][rows] + states[-1][rows]) / 2).mean(0),
    "avg-last-two": lambda states, rows: ((states[-2][rows] + states[-1][rows]) / 2).mean(0),
}


@pytest.mark.parametrize("lengths", [(1,), (3, 1, 4)])
@pytest.mark.parametrize("name", pooling.POOLERS)
def test_pooler_equals_its_loop(name: str, lengths: tuple[int, ...]) -> None:
    ragged = Ragged.from_lists([[1] * n for n in lengths])
    tokens = [torch.randn(sum(lengths), 6) - 3 for _ in range(3)]  # negative: a maximum over zeros would show
    tokens.append(torch.randint(-2, 1, (sum(lengths), 6)).float())  # with equal maxima, which share the gradient
    directions = torch.randn(len(lengths), 6)
    states = [x.clone().requires_grad_() for x in tokens]
    exact = [x.double().requires_grad_() for x in tokens]
    pooled = pooling.POOLERS[name](states, ragged)
    vectors = []
    start = 0
    for length in lengths:
        vectors.append(LOOPS[name](exact, slice(start, start + length)))
        start += length
    wanted = torch.stack(vectors)
    torch.testing.assert_close(pooled.double(), wanted, atol=1e-6, rtol=0)
    (pooled * directions).sum().backward()
    (wanted * directions).sum().backward()
    for ours, loop in zip(states, exact, strict=True):
        assert (ours.grad is None) == (loop.grad is None)
        if ours.grad is not None and loop.grad is not None:
            torch.testing.assert_close(ours.grad.double(), loop.grad, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", [n for n in pooling.POOLERS if n != "cls"])
def test_bf16_states_are_pooled_in_fp32(name: str) -> None:
    ragged = Ragged.from_lists([[1] * 300])
    states = [torch.full((300, 2), 1.0078125).bfloat16() for _ in range(3)]
    out = pooling.POOLERS[name](states, ragged)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, torch.full((1, 2), 1.0078125))
