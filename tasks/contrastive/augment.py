"""What is done to the texts of stage one in a step: synonyms, or punctuation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.tokenizer import Tokenizer
from minbert.training.plan import Step
from tasks.augmentation import Augmentation, E, synonyms_of
from tasks.contrastive import punctuation
from tasks.contrastive.settings import TEXTS, ContrastiveSettings
from tasks.examples import Examples


@dataclass(frozen=True)
class Punctuation:
    """Marks inserted at random places (EdaCSE, section 3.3): column 1 is made of column 1 of triplets, of column 0 of
    texts. A function of (seed, epoch, row)."""

    settings: ContrastiveSettings
    tokenizer: Tokenizer

    def __call__(self, examples: E, batch: Step) -> E:
        """The examples with the marks of this epoch."""
        how, source = self.settings, 0 if self.settings.data_kind == TEXTS else 1
        texts = [
            punctuation.insert(
                examples.cache.text(row, source), seed=how.seed, epoch=batch.epoch, key=int(row), purpose="punctuation",
                most=how.marks_most, marks=how.marks,
            )
            for row in batch.rows
        ]  # fmt: skip
        places = [(int(row), 1) for row in batch.rows]
        return examples.changed(dict(zip(places, self.tokenizer.encode(texts), strict=True)))


def augmentation(
    settings: ContrastiveSettings, train: Examples, tokenizer: Tokenizer, folder: Path
) -> tuple[Augmentation[Any], dict[str, Any]]:
    """What the settings ask for, and the account of it."""
    found, account = synonyms_of(settings, "pretrain", {"nli": train}, tokenizer, folder)
    if not settings.marks_most:
        return found, account
    return Punctuation(settings, tokenizer), {}
