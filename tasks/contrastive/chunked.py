"""A backward pass in parts, with the gradient of one pass over the whole batch (Gao et al. 2021, gradient caching).

A loss over the vectors of a whole batch needs only the vectors, not the activations that the encoder keeps for its
backward pass. So the batch is encoded part by part, each part's graph is dropped at once, the loss is differentiated
with respect to the vectors, and every part is then encoded again to carry its share of that gradient to the weights.
Memory is that of one part plus the vectors; the price is a second forward pass.

Several ranks do the same with their own parts: every rank takes the loss of the vectors of all ranks, and carries the
gradient of its own vectors to the weights. The sum over the ranks is the gradient of one process.

Axes: b sentences of a part, n of this rank, N of the batch, D hidden.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from minbert.training import ranks

P = TypeVar("P")


@dataclass(frozen=True)
class Share:
    """This rank's sentences: their positions among the `total` of the batch, int64 [n]; the `width` D of vectors."""

    positions: Tensor
    total: int
    width: int

    def gather(self, own: Sequence[Tensor]) -> Tensor:
        """The vectors of all ranks, without a graph, from the parts of this rank's: [N, D]."""
        no_rows = torch.zeros(0, self.width, device=self.positions.device)
        return ranks.gather(torch.cat([no_rows, *own]), self.positions, self.total)


def backward(
    encode: Callable[[int, P], Tensor],
    parts: Sequence[P],
    loss: Callable[[Tensor], dict[str, Tensor]],
    scaled: Callable[[Tensor], Tensor] = lambda loss: loss,
    share: Share | None = None,
) -> dict[str, Tensor]:
    """Add to every parameter the gradient of `loss(vectors)["loss"]`; returns the numbers of `loss`, detached.

    `encode(number, part)` gives [b, D]. Of several parts each is encoded twice, so it fixes its own dropout masks by
    `number` (`Context.seed_dropout`); a single part is encoded once. `loss` is called once, on the vectors of all parts
    in order, [N, D]; parameters of its own get their gradients too. The gradient is that of the `scaled` loss
    (`Context.scaled`).

    With a `share`, `parts` are those of this rank, maybe none, and all gradients need only be summed over the ranks:
    parameters of the loss get theirs on the first rank alone.
    """
    graph_kept = len(parts) == 1 and share is not None  # the part is all of this rank
    # Not under no_grad: attention takes another path there, whose last bits differ.
    first = [encode(number, part) if graph_kept else encode(number, part).detach() for number, part in enumerate(parts)]
    vectors = (share.gather(first) if share else torch.cat(first)).requires_grad_()
    numbers = loss(vectors)
    if ranks.rank() == 0:
        scaled(numbers["loss"]).backward()
        gradient = vectors.grad
    else:
        (gradient,) = torch.autograd.grad(scaled(numbers["loss"]), vectors)
    assert gradient is not None, "the loss does not depend on the vectors"
    own = gradient.index_select(0, share.positions) if share else gradient
    for number, piece in enumerate(own.split([len(part) for part in first])):
        (first[number] if graph_kept else encode(number, parts[number])).backward(piece)
    return {name: value.detach() for name, value in numbers.items()}
