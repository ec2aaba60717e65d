"""An objective of stage one: one class that owns its settings, the data it reads, the texts it encodes and its loss.

Importing this module loads no torch, nor does importing an objective, so that `--help` is fast: heavy modules
are imported where they are used.

Axes: B rows of a batch, k texts of a row, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from minbert.train.settings import SettingsGroup, flag

if TYPE_CHECKING:
    from torch import Tensor

    from minbert.bert import BertModel
    from minbert.ragged import Ragged
    from minbert.tokenizer import Tokenizer
    from minbert.train.loop import StepContext
    from minbert.train.plan import PlannedBatch
    from tasks.contrastive.curriculum import CurriculumSettings
    from tasks.contrastive.data import TrainingRows
    from tasks.contrastive.model import ContrastiveModel
    from tasks.contrastive.settings import ContrastiveSettings
    from tasks.examples import Augmentation, Examples

Numbers = dict[str, "Tensor"]
"""Scalars to log, among them the `loss` to minimise."""
TextKeys = Sequence[tuple[int, int]]
"""The k texts of a row that are encoded: (column of the data, number of the view)."""


@dataclass(frozen=True)
class Inputs:
    """Sentences to encode: token ids with their special tokens, and token types (None: all 0)."""

    sentences: list[list[int]]
    types: list[list[int]] | None = None

    def __len__(self) -> int:
        return len(self.sentences)

    def part(self, indices: slice) -> Self:
        """Some of the sentences."""
        return replace(self, sentences=self.sentences[indices], types=self.types and self.types[indices])

    def ragged(self) -> Ragged:
        """All sentences as one batch."""
        from minbert.ragged import Ragged

        return Ragged.from_lists(self.sentences, self.types)


def objective_flag(name: str) -> Any:
    """The flag `--objective`, as the class of an objective has it."""
    description = "what is learned; each has flags of its own, which --objective NAME --help-all shows"
    return flag(name, description, common=True)


class Objective(SettingsGroup):
    """What a step of stage one learns. Its fields are the flags that exist only with this objective."""

    objective: str
    row_noun: ClassVar[str]
    """What the rows of its data are called: triplets, pairs or texts."""
    in_batch: ClassVar[bool] = False
    """Whether the other rows of a batch are the negatives of a row."""
    form: ClassVar[str] = "bi"
    """`bi`: each text of a row is a sequence of its own; `cross`: a row is one sequence."""
    unlabelled: ClassVar[bool] = False
    """Whether its rows are texts without labels, of which `read` itself takes the sample of `--limit`."""

    @property
    def classes(self) -> int:
        """Number of classes of the classifier; 0 for an objective without one."""
        return 0

    @property
    def curriculum(self) -> CurriculumSettings | None:
        """The order and the pacing of the rows, triplets; None: other rows, all of them, shuffled, from the start."""
        return None

    def check(self, settings: ContrastiveSettings) -> None:
        """Raises `UserError` for shared settings that this objective excludes, or for one that it requires."""

    def find(self, data: str) -> Any:
        """The files that `read` reads, by `--data`; no further than their headers is read here.

        Raises `UserError` if one is missing or its header cannot be used.
        """
        raise NotImplementedError

    def read(self, settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> TrainingRows:
        """The rows to train on. Raises `UserError` for what is missing or cannot be read."""
        raise NotImplementedError

    def augmentation(
        self, settings: ContrastiveSettings, examples: Examples, tokenizer: Tokenizer, run: Path
    ) -> Augmentation[Any]:
        """The augmentation of the texts at each step: synonyms, if requested.

        `run` is the run's folder, for the texts before and after synonyms.
        """
        from tasks.augment import synonym_augmentation

        return synonym_augmentation(
            settings.synonyms, settings.training, {"nli": examples}, tokenizer, data=settings.files.data, run=run
        )

    def encoded(self, examples: Examples) -> TextKeys:
        """The texts of a row that are encoded."""
        raise NotImplementedError

    def inputs(self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext) -> Inputs:
        """The first text of every row, then the second of every row, and so on: k * B sentences."""
        return Inputs([examples.sentence(row, column) for column, _ in self.encoded(examples) for row in batch.rows])

    def encode(self, model: ContrastiveModel, inputs: Inputs, context: StepContext) -> Tensor:
        """The vectors of the sentences that the loss sees: [sentences, D]."""
        return model.vectors(inputs.ragged().to(context.device))

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """The loss over the vectors [k * B, D] of the texts, a mean over the batch, and further numbers to log."""
        raise NotImplementedError

    def chance(self, batch_size: int, columns: int) -> float | None:
        """The loss of a random guess: ln(number of candidates, or of classes); None for a loss over distances.

        `columns` is the number of texts of a row.
        """
        return None

    def notes(self, encoder: BertModel) -> list[str]:
        """Warnings about an encoder that this objective cannot learn from."""
        return []
