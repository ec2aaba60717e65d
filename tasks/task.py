"""What a task is: which examples, how they are encoded, which head, which loss, which score.

Axes: B rows of a batch, D hidden, C outputs of the head (none for a single number).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from minbert.errors import UserError
from minbert.files import present
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from tasks import readers
from tasks.examples import Examples, Pair, Single
from tasks.metrics import ClassScore

E = TypeVar("E", bound=Examples)
SPLITS = ("train", "dev", "test")


class Head(nn.Module):
    """Linear 512, ReLU, Linear 256, ReLU, Linear: the heads of CBCL (section 4.2), with one or two dropouts."""

    def __init__(self, width: int, outputs: int, dropout: float, *, dropouts: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, 512),
            nn.ReLU(),
            *([nn.Dropout(dropout)] if dropouts == 2 else []),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, outputs),
        )

    def forward(self, features: Tensor) -> Tensor:
        """[B, width] to [B, C], or to [B] where there is one output."""
        out: Tensor = self.layers(features)
        return out.squeeze(-1) if self.outputs == 1 else out


@dataclass(frozen=True)
class Files:
    """The usual names of a task's files, and its columns in prediction files."""

    train: str
    dev: str
    test: str
    short: str  # the course's word for the task in flags and prediction files
    header: str


class Task(ABC, Generic[E]):
    """One downstream task; subclasses say everything that is particular to it."""

    name: ClassVar[str]
    title: ClassVar[str]
    metric: ClassVar[str]
    files: ClassVar[Files]
    kind: ClassVar[str]  # of its data files: single, pair-class or pair-score
    classes: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[int]
    examples: ClassVar[type[Examples]]

    def __init__(self, pairs: str = "cross") -> None:
        self.pairs = pairs

    def open(self, path: Path, split: str, tokenizer: Tokenizer, max_length: int, columns: str = "") -> E:
        """Examples of a file, tokenised once and cached.

        Any layout of the task's kind is read (see `tasks.readers.layouts`); `columns` names those of a user's own.
        """
        cache = readers.tokenised(path, self.kind, tokenizer, split, columns, classes=self.class_count)
        if not len(cache):
            raise UserError(f"{path}: no usable row")
        view: E = self.examples(cache, tokenizer.cls, tokenizer.sep, max_length)  # type: ignore[assignment]
        return view

    def check(self, path: Path, split: str, columns: str = "") -> None:
        """Raises `UserError` where a file is not there, or its header fits no layout of the task's kind."""
        readers.open_as(present(path), self.kind, split, columns, classes=self.class_count)

    @property
    def class_count(self) -> int | None:
        """How many classes a label may name; None for scores."""
        return len(self.classes) or None

    @abstractmethod
    def encode(self, examples: E, rows: np.ndarray) -> Ragged:
        """The rows as one ragged batch."""

    @abstractmethod
    def truncated(self, examples: E) -> tuple[int, int]:
        """How many inputs are cut to the encoder's length, and how many inputs there are."""

    def features(self, pooled: Tensor) -> Tensor:
        """What the head sees of the pooled vectors of a batch: [B, D or 3D]."""
        return pooled

    @abstractmethod
    def head(self, width: int, dropout: float) -> nn.Module:
        """A fresh head over pooled vectors of `width`."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The SUM of the rows' losses, in fp32; whoever calls divides by the count of the whole step."""

    @abstractmethod
    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Predictions as they are scored and written, from the head's outputs: float64 [B]."""

    @abstractmethod
    def score(self, predicted: np.ndarray, gold: np.ndarray) -> float | None:
        """The task's score over labelled rows; None where it is undefined."""

    def normalised(self, score: float | None) -> float:
        """The score's part in the dev norm, from 0 to 1."""
        return 0.0 if score is None else score

    def per_class(self, predicted: np.ndarray, gold: np.ndarray) -> list[ClassScore]:
        """Precision, recall, F1 and support of each class; nothing for a regression."""
        return []

    @abstractmethod
    def written(self, value: float) -> str:
        """A prediction as the leaderboard's files have it."""


class SingleTask(Task[Single]):
    """A task over one sentence."""

    columns = 1
    examples = Single

    def encode(self, examples: Single, rows: np.ndarray) -> Ragged:
        """[CLS] a [SEP]."""
        return examples.ragged(rows)

    def truncated(self, examples: Single) -> tuple[int, int]:
        """Sentences longer than the encoder's length, of all."""
        return examples.truncated(2, joined=True)


class PairTask(Task[Pair]):
    """A task over two sentences: one cross-encoder input, or two vectors with `pairs="bi"`."""

    columns = 2
    examples = Pair

    def encode(self, examples: Pair, rows: np.ndarray) -> Ragged:
        """B inputs, or 2B for the bi-encoder."""
        return examples.ragged(rows, self.pairs)

    def truncated(self, examples: Pair) -> tuple[int, int]:
        """Inputs longer than the encoder's length, of all: one a pair, or two for the bi-encoder."""
        special = {"cross": 3, "paper": 4, "bi": 2}[self.pairs]
        return examples.truncated(special, joined=self.pairs != "bi")

    def features(self, pooled: Tensor) -> Tensor:
        """The pooled vectors of joined pairs, or [u; v; |u - v|] (SBERT, section 3)."""
        if self.pairs != "bi":
            return pooled
        u, v = pooled.chunk(2)
        return torch.cat([u, v, (u - v).abs()], dim=1)

    def head(self, width: int, dropout: float) -> nn.Module:
        """One output, two dropouts."""
        return Head(3 * width if self.pairs == "bi" else width, 1, dropout, dropouts=2)


Factory = Callable[..., Task[Any]]
