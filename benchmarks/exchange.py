"""The exchange of gradients: one flat all-reduce after backward, or DistributedDataParallel's buckets during it.

torchrun --nproc-per-node 2 -m benchmarks.exchange --threads 1

A step is forward and backward of the mean square of sentence vectors, in fp32, without the optimizer. "alone" is the
first process on the whole batch while the others wait; the rest divide it. All are run on each batch, in turn.
"""

import time

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks import harness
from minbert.bert import BertModel
from minbert.ragged import Ragged
from minbert.training import cli, ranks, start


class Pooled(nn.Module):
    """A loss of the vectors of some sentences; DistributedDataParallel needs it inside of `forward`."""

    def __init__(self, encoder: BertModel) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ragged: Ragged) -> Tensor:
        """The mean square of the vectors, a scalar."""
        return self.encoder.pooled(ragged).float().square().mean()


def main() -> None:
    """Print the time of a step each way, and of the exchange alone."""
    parser = harness.parser(__doc__, "nothing: sentences are random", 12, warmup=2)
    parser.add_argument("--sentences", type=int, default=48, help="of a batch (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=24, help="of a sentence (default: %(default)s)")
    options = harness.parse(parser)
    ranks.start(harness.CPU)
    flat, bucketed = (Pooled(start.encoder(options.weights, 0.0)[0]).train() for _ in range(2))
    buckets = DistributedDataParallel(bucketed, gradient_as_bucket_view=True)
    vocabulary = flat.encoder.config.vocab_size
    batches = torch.randint(1000, vocabulary, (options.batches, options.sentences, options.tokens)).tolist()

    def step(model: nn.Module, sentences: list[list[int]]) -> None:
        model.zero_grad(set_to_none=True)
        model(Ragged.from_lists(sentences)).backward()

    def share(sentences: list[list[int]]) -> list[list[int]]:
        return sentences[ranks.rank() :: ranks.world()]

    def alone(sentences: list[list[int]]) -> None:
        if ranks.rank() == 0:
            step(flat, sentences)
        ranks.wait()

    def in_one(sentences: list[list[int]]) -> None:
        step(flat, share(sentences))
        ranks.sum_gradients(flat.parameters(), harness.CPU)
        ranks.wait()

    def in_buckets(sentences: list[list[int]]) -> None:
        step(buckets, share(sentences))
        ranks.wait()

    def exchange(_: list[list[int]]) -> None:
        ranks.sum_gradients(flat.parameters(), harness.CPU)
        ranks.wait()

    contestants = {"flat": in_one, "buckets": in_buckets, "the exchange alone": exchange, "alone": alone}
    seconds = harness.measure(contestants, batches, options.warmup)
    if ranks.rank() == 0:
        harness.print_machine("torch")
        print(f"{ranks.world()} processes, {time.strftime('%H:%M')}")
        print(harness.markdown(seconds, "step", ["flat", "alone"]))


if __name__ == "__main__":
    cli.run(main)
