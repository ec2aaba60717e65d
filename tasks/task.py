"""The task interface: examples, input encoding, head, loss and score.

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
    """Linear 512, ReLU, Linear 256, ReLU, Linear: the heads of CBCL (section 4.2), with one or two dropout layers."""

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
        """[B, width] to [B, C], or to [B] if there is one output."""
        out: Tensor = self.layers(features)
        return out.squeeze(-1) if self.outputs == 1 else out


@dataclass(frozen=True)
class Files:
    """Default names of a task's data files, and the header line of its prediction files."""

    train: str
    dev: str
    test: str
    short: str  # the course's short name of the task, in flags and names of prediction files
    header: str


class Task(ABC, Generic[E]):
    """A downstream task. Subclasses define all that is specific to it; the training loop never names a task."""

    name: ClassVar[str]
    title: ClassVar[str]
    metric: ClassVar[str]
    files: ClassVar[Files]
    kind: ClassVar[str]  # kind of rows in its data files: single, pair-class or pair-score
    classes: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[int]
    examples: ClassVar[type[Examples]]

    def __init__(self, pairs: str = "cross") -> None:
        self.pairs = pairs

    def open(self, path: Path, split: str, tokenizer: Tokenizer, max_length: int, columns: str = "") -> E:
        """The examples of a file, tokenised once and cached.

        Any layout of the task's kind can be read (see `tasks.readers.layouts`); `columns` is the value of `--columns`
        for other tables. Raises `UserError` if there is no usable row.
        """
        cache = readers.tokenised(path, self.kind, tokenizer, split, columns, classes=self.class_count)
        if not len(cache):
            raise UserError(f"{path}: no usable row")
        view: E = self.examples(cache, tokenizer.cls, tokenizer.sep, max_length)  # type: ignore[assignment]
        return view

    def check(self, path: Path, split: str, columns: str = "") -> None:
        """Raise `UserError` if the file is missing, or its header fits no layout of the task's kind."""
        readers.open_as(present(path), self.kind, split, columns, classes=self.class_count)

    @property
    def class_count(self) -> int | None:
        """Number of classes; None for a regression task."""
        return len(self.classes) or None

    @abstractmethod
    def encode(self, examples: E, rows: np.ndarray) -> Ragged:
        """Encode the given rows as one ragged batch."""

    @abstractmethod
    def truncated(self, examples: E) -> tuple[int, int]:
        """Number of inputs truncated to the maximum length, and number of inputs."""

    def features(self, pooled: Tensor) -> Tensor:
        """The head's input from the pooled vectors of a batch, [B, D] or [2B, D]: [B, D or 3D]."""
        return pooled

    @abstractmethod
    def head(self, width: int, dropout: float) -> nn.Module:
        """A new head for an encoder of hidden size `width`."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Sum (not mean) of the rows' losses, in fp32; the caller divides by the number of rows of the whole step."""

    @abstractmethod
    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Predictions (class or score) from the head's outputs: float64 [B]."""

    @abstractmethod
    def score(self, predicted: np.ndarray, gold: np.ndarray) -> float | None:
        """The task's metric over labelled rows; None if it is undefined."""

    def normalised(self, score: float | None) -> float:
        """The score as it enters the dev norm, in [0, 1]; an undefined score is 0."""
        return 0.0 if score is None else score

    def per_class(self, predicted: np.ndarray, gold: np.ndarray) -> list[ClassScore]:
        """Precision, recall, F1 and support of each class; empty for a regression task."""
        return []

    @abstractmethod
    def written(self, value: float) -> str:
        """A prediction in the format of the leaderboard's files."""


class SingleTask(Task[Single]):
    """A task over single sentences."""

    columns = 1
    examples = Single

    def encode(self, examples: Single, rows: np.ndarray) -> Ragged:
        """[CLS] a [SEP]."""
        return examples.ragged(rows)

    def truncated(self, examples: Single) -> tuple[int, int]:
        """Number of inputs longer than the maximum length, and number of inputs: one per sentence."""
        return examples.truncated(2, joined=True)


class PairTask(Task[Pair]):
    """A task over sentence pairs: one joint input per pair, or two separate ones with `pairs="bi"`."""

    columns = 2
    examples = Pair

    def encode(self, examples: Pair, rows: np.ndarray) -> Ragged:
        """B sequences, or 2B for the bi-encoder."""
        return examples.ragged(rows, self.pairs)

    def truncated(self, examples: Pair) -> tuple[int, int]:
        """Number of inputs longer than the maximum length, and number of inputs: one per pair, two for `bi`."""
        special = {"cross": 3, "paper": 4, "bi": 2}[self.pairs]
        return examples.truncated(special, joined=self.pairs != "bi")

    def features(self, pooled: Tensor) -> Tensor:
        """The pooled vectors [B, D], or for the bi-encoder [u; v; |u - v|] [B, 3D] (SBERT, section 3)."""
        if self.pairs != "bi":
            return pooled
        u, v = pooled.chunk(2)
        return torch.cat([u, v, (u - v).abs()], dim=1)

    def head(self, width: int, dropout: float) -> nn.Module:
        """A head with one output and two dropout layers."""
        return Head(3 * width if self.pairs == "bi" else width, 1, dropout, dropouts=2)


Factory = Callable[..., Task[Any]]
