"""Objectives of stage one by the name that `--objective` has for them, and what they do to a step's texts."""

from pathlib import Path
from typing import Any

from minbert.tokenizer import Tokenizer
from tasks.augment import synonyms
from tasks.augment.punctuation import Punctuation
from tasks.contrastive.objectives import MarginLoss, NTXent, Softmax, Texts, TripletLoss
from tasks.contrastive.settings import TEXTS, ContrastiveSettings
from tasks.contrastive.unsupervised import Joint, SimCSE, Views
from tasks.examples import Augmentation, Examples

OBJECTIVES: dict[str, type[Texts]] = {
    "nt-xent": NTXent,
    "triplet": TripletLoss,
    "margin": MarginLoss,
    "softmax": Softmax,
    "views": Views,
    "joint": Joint,
    "simcse": SimCSE,
}


def objective(
    settings: ContrastiveSettings, train: Examples, tokenizer: Tokenizer, run: Path
) -> tuple[Texts, dict[str, Any]]:
    """The objective over the training data, and the manifest's account of what is done to their texts.

    `run` is the run's folder, for the texts before and after synonyms.
    """
    augment, account = _augmentation(settings, train, tokenizer, run)
    return OBJECTIVES[settings.objective.objective](train, settings, augment), account


def _augmentation(
    settings: ContrastiveSettings, train: Examples, tokenizer: Tokenizer, run: Path
) -> tuple[Augmentation[Any], dict[str, Any]]:
    """What is done to the texts of a step: punctuation or synonyms."""
    training, how = settings.training, settings.views
    if how.marks_most:
        column = 0 if settings.objective.data_kind == TEXTS else 1
        return Punctuation(tokenizer, column, seed=training.seed, most=how.marks_most, marks=how.marks), {}
    sets, data = {"nli": train}, settings.files.data
    return synonyms.augmentation(settings.synonyms, training, "pretrain", sets, tokenizer, data=data, run=run)
