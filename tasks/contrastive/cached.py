"""A backward pass in parts, with the gradient of one pass over the whole batch (Gao et al. 2021, gradient caching).

The contrastive loss of a whole batch needs only the vectors, not what the encoder keeps for its backward pass.
So the batch is encoded part by part, each part's graph is dropped at once, the loss is differentiated with respect to
the vectors, and every part is then encoded again to carry its share of that gradient to the weights. Memory is that
of one part plus the vectors; the price is a second forward pass.

Axes: b sentences of a part, N sentences of the batch, D hidden.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

P = TypeVar("P")


def backward(
    encode: Callable[[int, P], Tensor], parts: Sequence[P], loss: Callable[[Tensor], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Add to every parameter the gradient of `loss(vectors)["loss"]`; returns the numbers of `loss`, detached.

    `encode(number, part)` gives [b, D]; it is called twice, so it fixes its own dropout masks by `number`
    (`Context.seed_dropout`). `loss` is called once, on the vectors of all parts in order, [N, D]; parameters of its
    own get their gradients too. Across ranks it puts the vectors of other ranks, detached, beside these and takes the
    loss of all: then the encoder's gradients need only be summed, while its own parameters have the whole gradient on
    every rank. A single part is one ordinary pass.
    """
    if len(parts) == 1:
        numbers = loss(encode(0, parts[0]))
        numbers["loss"].backward()
    else:
        # Not under no_grad: attention takes another path there, whose last bits differ.
        first = [encode(number, part).detach() for number, part in enumerate(parts)]
        vectors = torch.cat(first).requires_grad_()
        numbers = loss(vectors)
        numbers["loss"].backward()
        assert vectors.grad is not None, "the loss does not depend on the vectors"
        for number, gradient in enumerate(vectors.grad.split([len(part) for part in first])):
            encode(number, parts[number]).backward(gradient)
    return {name: value.detach() for name, value in numbers.items()}
