"""A training step of stage one as in `pretrain_cbcl.py`, and triplets for it; shared by the benchmarks."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import CPU, SAMPLE, shuffled
from minbert import weights
from minbert.optimizer import AdamW, decay_groups
from minbert.tokenizer import Tokenizer
from minbert.training import start
from minbert.training.loop import Context
from minbert.training.plan import Step
from tasks import readers
from tasks.contrastive.objectives import OBJECTIVES, ContrastiveModel
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples


def triplets(data: Path | None, given: str, length: int) -> Examples:
    """The NLI triplets of a folder (None: data/sample), tokenised with the vocabulary of the weights `given`."""
    if not data:
        print("DATA_DIR is not set: the small sample, whose rows are repeated again and again")
    tokenizer = Tokenizer.load(weights.resolve(given))
    path = readers.find(data or SAMPLE, "nli", ["nli_for_simcse.csv", "nli-triplets.csv"])
    cache = readers.tokenised(path, "triplet", tokenizer)
    return Examples(cache, tokenizer.cls, tokenizer.sep, length)


def steps(rows: int, size: int, count: int) -> list[Step]:
    """`shuffled` batches as steps of a plan."""
    return [Step("nli", np.array(some), 0, number) for number, some in enumerate(shuffled(rows, size, count))]


def model(given: str, settings: ContrastiveSettings) -> ContrastiveModel:
    """The encoder with the other modules that the objective needs."""
    encoder, _, _ = start.encoder(given, settings.encoder.encoder_dropout)
    return ContrastiveModel.of(settings, encoder)


class Ours:
    """A training step from rows of the token cache: forward, loss, backward, clipping, AdamW."""

    def __init__(self, model: ContrastiveModel, examples: Examples, settings: ContrastiveSettings) -> None:
        self.settings, self.model = settings, model
        self.optimizer = AdamW(
            decay_groups(model.parameters(), settings.training.weight_decay), lr=settings.training.lr
        )
        self.objective = OBJECTIVES[settings.loss.objective](examples, settings)

    def __call__(self, step: Step) -> Tensor:
        """One update with deterministic algorithms, as in the script; returns the loss."""
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        context = Context(self.settings.training.seed, step.number, self.settings.training.precision, CPU)
        numbers = self.objective.backward(self.model, step, context)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        if self.settings.training.clip:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.training.clip, norm)
        self.optimizer.step()
        torch.use_deterministic_algorithms(False)
        return numbers["loss"]
