"""A training step of stage one, as `pretrain_cbcl.py` takes it."""

import torch
from torch import Tensor

from minbert.optimizer import AdamW, decay_groups
from minbert.training import start
from minbert.training.loop import Context
from minbert.training.plan import Step
from pretrain_cbcl import build
from tasks.contrastive.model import ContrastiveModel
from tasks.contrastive.registry import OBJECTIVES
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples

CPU = torch.device("cpu")


def model(weights: str, settings: ContrastiveSettings) -> ContrastiveModel:
    """The encoder with what the objective needs beside it."""
    encoder, _, _ = start.encoder(weights, settings.encoder_dropout)
    return build(settings, encoder)


class Ours:
    """From rows of the token cache to updated weights: forward, loss, backward, clipping, AdamW."""

    def __init__(self, model: ContrastiveModel, examples: Examples, settings: ContrastiveSettings) -> None:
        self.settings = settings
        self.model = model
        groups = decay_groups(model.parameters(), settings.weight_decay)
        self.optimizer = AdamW(groups, lr=settings.rate)
        self.objective = OBJECTIVES[settings.objective](examples, settings)

    def __call__(self, step: Step) -> Tensor:
        """One update, with deterministic algorithms on, as the script turns them on; returns the loss."""
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        context = Context(self.settings.seed, step.number, self.settings.precision, CPU)
        numbers = self.objective.backward(self.model, step, context)
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.settings.clip:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.clip, norm)
        self.optimizer.step()
        torch.use_deterministic_algorithms(False)
        return numbers["loss"]
