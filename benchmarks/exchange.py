"""The exchange of gradients: ours after backward, or DistributedDataParallel's during it.

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
    parser = harness.parser(__doc__, None, 12, warmup=2)
    parser.add_argument("--sentences", type=int, default=48, help="of a batch (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=24, help="of a sentence (default: %(default)s)")
    options = harness.parse(parser)
    ranks.start(harness.CPU)
    ours, wrapped = (Pooled(start.encoder(options.weights, 0.0)[0]).train() for _ in range(2))
    parallel = DistributedDataParallel(wrapped, gradient_as_bucket_view=True)
    vocabulary = ours.encoder.config.vocab_size
    batches = torch.randint(
        1000, vocabulary, (options.warmup + options.batches, options.sentences, options.tokens)
    ).tolist()

    def step(model: nn.Module, sentences: list[list[int]]) -> None:
        model.zero_grad(set_to_none=True)
        model(Ragged.from_lists(sentences)).backward()

    def share(sentences: list[list[int]]) -> list[list[int]]:
        return sentences[ranks.rank() :: ranks.world()]

    def alone(sentences: list[list[int]]) -> None:
        if ranks.rank() == 0:
            step(ours, sentences)
        ranks.wait()

    def exchanged_after(sentences: list[list[int]]) -> None:
        step(ours, share(sentences))
        ranks.sum_gradients(ours.parameters(), harness.CPU)
        ranks.wait()

    def exchanged_during(sentences: list[list[int]]) -> None:
        step(parallel, share(sentences))
        ranks.wait()

    def exchange(_: list[list[int]]) -> None:
        ranks.sum_gradients(ours.parameters(), harness.CPU)
        ranks.wait()

    contestants = {
        "ours": exchanged_after,
        "DistributedDataParallel": exchanged_during,
        "the exchange alone": exchange,
        "alone": alone,
    }
    seconds = harness.measure(contestants, batches, options.warmup)
    if ranks.rank() == 0:
        harness.print_machine("torch")
        print(f"{ranks.world()} processes, {time.strftime('%H:%M')}")
        print(harness.markdown(seconds, "step", ["ours", "alone"]))


if __name__ == "__main__":
    cli.run(main)
