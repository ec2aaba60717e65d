"""The task interface: examples, input encoding, head, loss and score.

Axes: B rows of a batch, D hidden, C outputs of the head (none for a single number).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import special
from torch import Tensor, nn

from minbert.ragged import Ragged
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from tasks import metrics, readers
from tasks.definitions import Definition
from tasks.examples import Examples
from tasks.readers import DataFile
from tasks.readers.rows import SPLITS

LEADERBOARD_ROW = "{id} , {value} \n"
"""The rows of the leaderboard's prediction files, under headers with tabs."""


class Head(nn.Module):
    """Linear 512, ReLU, Linear 256, ReLU, Linear: the heads of CBCL (section 4.2), with one or two dropout layers."""

    def __init__(self, width: int, outputs: int, dropout: float, *, dropout_layers: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, 512),
            nn.ReLU(),
            *([nn.Dropout(dropout)] if dropout_layers == 2 else []),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, outputs),
        )

    def forward(self, features: Tensor) -> Tensor:
        """[B, width] to [B, C], or to [B] if there is one output, in fp32."""
        # bf16 logits have 8 bits, so that the two highest of a row are often equal
        with torch.autocast(features.device.type, enabled=False):
            out: Tensor = self.layers(features.float())
        if self.outputs == 1:
            return out.squeeze(-1)
        return out


class Scaled(nn.Module):
    """5 sigmoid(head): a similarity from 0 to 5."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.inner = head

    def forward(self, features: Tensor) -> Tensor:
        """[B, width] to [B]."""
        out: Tensor = self.inner(features)
        return 5 * torch.sigmoid(out.float())


@dataclass(frozen=True)
class Files:
    """Default names of a task's data files, and the header line and the rows of its prediction files."""

    train: str = ""
    dev: str = ""
    test: str = ""
    flag_prefix: str = ""  # the task's short name: for --task, in the course's file flags, in names of prediction files
    header: str = "id\tprediction\n"
    row: str = "{id}\t{value}\n"


class Task(ABC):
    """A downstream task over single sentences, or of `PairTask` over pairs.

    Subclasses define all that is specific to it; the training loop never names a task.
    """

    name: str
    title: str
    metric: str  # as `metrics.score` names it
    files: Files
    kind: str  # kind of rows in its data files: single, pair-class or pair-score
    classes: tuple[str, ...] = ()
    num_texts: int = 1  # of a row
    scale: tuple[float, float] = (0.0, 5.0)  # lowest and highest score of a task without classes
    weight: float = 1.0  # of its loss beside those of other tasks
    splits: tuple[str, ...] = SPLITS
    definition: Definition | None = None  # of a task that comes from a user's file
    paths: Mapping[str, Path] = MappingProxyType({})  # split -> file, of a task that names its files itself
    prediction_ending: str = "csv"  # of the names of its prediction files

    def __init__(self, pairs: str = "cross") -> None:
        # a single text has one form, whatever the flag says
        self.pairs = pairs if self.num_texts == 2 else "cross"

    def open(self, path: Path, split: str, tokenizer: Tokenizer, max_length: int) -> Examples:
        """The examples of a file, tokenised once and cached.

        Any file with rows of the task's kind can be read (see `tasks.readers`). Raises `UserError` if no row is usable.
        """
        cache = readers.tokenised(path, self.kind, tokenizer, split, classes=self.class_count)
        return Examples(cache, tokenizer, max_length)

    def read_inputs(self, path: Path) -> DataFile:
        """The rows of a user's file to predict: a table with the columns that training reads, or one text a line.

        The course's tasks ignore labels. Raises `UserError` if the file has another form.
        """
        return readers.read_texts(path, like=self.kind)

    @property
    def class_count(self) -> int | None:
        """Number of classes; None for a regression task."""
        return len(self.classes) or None

    def encode(self, examples: Examples, rows: np.ndarray) -> Ragged:
        """Encode rows as one ragged batch of B sequences; of 2B or 3B for pairs whose texts are read separately."""
        return examples.ragged(rows, self.pairs)

    def features(self, pooled: Tensor) -> Tensor:
        """The head's input from the pooled vectors of a batch, [B, D] or [2B, D]: [B, D or 3D]."""
        return pooled

    def feature_width(self, hidden: int) -> int:
        """The width of the head's input for an encoder of hidden size D: D, 3D (`bi`) or 3D + 1 (`joint`)."""
        return {"bi": 3 * hidden, "joint": 3 * hidden + 1}.get(self.pairs, hidden)

    @abstractmethod
    def head(self, width: int, dropout: float) -> nn.Module:
        """A new head over features [B, width]."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Sum (not mean) of the rows' losses, in fp32; the caller divides by the number of rows of the whole step."""

    def divergence(self, first: Tensor, second: Tensor) -> Tensor:
        """Divergence of the head's outputs for the same rows in two passes: a sum over the rows, in fp32.

        For classes (KL(p || q) + KL(q || p)) / 2, which is (p - q)(log p - log q) / 2 summed over the classes; for a
        score the squared difference.
        """
        a = first.float()
        b = second.float()
        if not self.classes:
            return F.mse_loss(a, b, reduction="sum")
        if a.ndim == 1:
            return ((a.sigmoid() - b.sigmoid()) * (a - b)).sum() / 2
        a = a.log_softmax(1)
        b = b.log_softmax(1)
        return ((a.exp() - b.exp()) * (a - b)).sum() / 2

    @abstractmethod
    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """Predictions (class or score) from the head's outputs: float64 [B]."""

    def probabilities(self, outputs: np.ndarray) -> np.ndarray | None:
        """Class probabilities from the head's outputs: float64 [B, classes]; None for a task without classes.

        The softmax of C logits; for a single logit and two classes, its sigmoid is the probability of class 1. A task
        with other outputs, such as a regression over ordered classes, has its own `probabilities` and `divergence`.
        """
        if not self.classes:
            return None
        logits = outputs.astype(np.float64)
        if logits.ndim == 2:
            return special.softmax(logits, axis=1)
        assert len(self.classes) == 2, f"{self.name} has one output for {len(self.classes)} classes"
        return np.stack([special.expit(-logits), special.expit(logits)], axis=1)

    @abstractmethod
    def format_prediction(self, value: float) -> str:
        """A prediction in the format of the leaderboard's files."""

    def prediction_text(
        self,
        ids: Sequence[str],
        predicted: np.ndarray,
        probabilities: np.ndarray | None = None,
        source: Path | None = None,
        split: str = "",
    ) -> str:
        """The content of a prediction file: the header, then a line for each row, in file order.

        `probabilities`, `source`, the data file of the rows, and their `split` ("" for all rows of a file) are for
        tasks whose prediction file repeats the data file.
        """
        lines = [self.files.header]
        # tolist gives plain floats, so that no np.float32(...) is written
        for id_, value in zip(ids, predicted.tolist(), strict=True):
            lines.append(self.files.row.format(id=id_, value=self.format_prediction(value)))
        return "".join(lines)

    def input_table(self, rows: Sequence[Row], outputs: np.ndarray, path: Path) -> str:
        """The rows that `read_inputs` gives of a file, with the head's outputs for them, as a TSV table.

        Between id and texts stand a class, its name and its probability (sentiment); 0.0 or 1.0 and the probability of
        1.0 (paraphrase); or the similarity from 0 to 5.
        """
        predicted = self.predict(outputs).tolist()
        probabilities = self.probabilities(outputs)
        columns = {"id": [row.id for row in rows]}
        if probabilities is None:
            columns[self.title] = [f"{value:.4f}" for value in predicted]
        elif len(self.classes) > 2:
            labels = [int(value) for value in predicted]
            columns["class"] = [self.format_prediction(value) for value in predicted]
            columns["name"] = [self.classes[label] for label in labels]
            columns["probability"] = [f"{value:.4f}" for value in probabilities[np.arange(len(labels)), labels]]
        else:
            columns[f"is_{self.classes[1].replace(' ', '_')}"] = [self.format_prediction(value) for value in predicted]
            columns["probability"] = [f"{value:.4f}" for value in probabilities[:, 1]]
        names = ["sentence"] if self.num_texts == 1 else ["sentence1", "sentence2"]
        for column, name in enumerate(names):
            # a TAB or a line end inside a text would be one of the table's
            columns[name] = [" ".join(row.texts[column].split()) for row in rows]
        lines = [list(columns), *zip(*columns.values(), strict=True)]
        return "".join("\t".join(cells) + "\n" for cells in lines)

    def score(self, predicted: np.ndarray, gold: np.ndarray) -> float | None:
        """The task's metric over labelled rows; None if it is undefined."""
        return metrics.score(self.metric, predicted, gold)

    def per_class(self, predicted: np.ndarray, gold: np.ndarray) -> list[dict[str, Any]]:
        """Precision, recall, F1 and support of each class; empty for a regression task."""
        return metrics.per_class(predicted, gold, self.classes) if self.classes else []


class PairTask(Task):
    """A task over sentence pairs, each read as one input (`cross`, `paper`), as two (`bi`) or as both (`joint`)."""

    num_texts = 2
    outputs: int  # of the head: 1, or a logit for each class

    def features(self, pooled: Tensor) -> Tensor:
        """The pooled vectors [B, D], or for the bi-encoder [u; v; |u - v|] [B, 3D] (SBERT, section 3)."""
        if self.pairs != "bi":
            return pooled
        u, v = pooled.chunk(2)
        return torch.cat([u, v, (u - v).abs()], dim=1)

    def head(self, width: int, dropout: float) -> nn.Module:
        """A head with two dropout layers."""
        return Head(width, self.outputs, dropout, dropout_layers=2)
