"""A task of your own: a `Task` whose attributes come from a file, see `tasks.definitions`."""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from minbert import token_cache
from minbert.errors import UserError, format_list, short_repr
from minbert.seeds import numpy_generator
from minbert.token_cache import Issue, ReaderReport, Row
from minbert.tokenizer import Tokenizer
from tasks import readers
from tasks.definitions import READER_KINDS, Definition
from tasks.examples import Examples
from tasks.readers import DataFile
from tasks.readers.formats import cell, is_json, is_parquet, read_records
from tasks.readers.kinds import parse_name, parse_score
from tasks.readers.rows import is_of_split, plain_lines, read_label, records_of_split
from tasks.readers.table import Record, ending
from tasks.task import Files, Head, PairTask, Scaled

_DEV_EVERY = 10  # every tenth training row is a dev row


class OwnTask(PairTask):
    """A task over single texts or pairs, with classes or scores, whose attributes come from a file.

    Classes: a logit for each, cross entropy. Scores: the squared error of 5 sigmoid(logit), the labels brought to the
    scale from 0 to 5, so that the loss weighs as much on every scale. Pairs are read as those of any other task.
    """

    definition: Definition

    def __init__(self, definition: Definition, pairs: str = "cross") -> None:
        self.kind = READER_KINDS[definition.kind]
        self.num_texts = len(definition.texts)
        super().__init__(pairs)
        self.definition = definition
        self.name = definition.name
        self.title = definition.title
        self.metric = definition.metric
        self.files = Files(flag_prefix=definition.name)
        self.classes = definition.labels
        self.outputs = len(definition.labels) or 1
        self.scale = definition.scale
        self.weight = definition.weight
        self.paths = {split: Path(path) for split, path in definition.files.items()}
        self.splits = tuple(self.paths)
        # by its name: a finished run's training file may be gone
        if ending(self.paths["train"]) in (".json", ".jsonl", ".ndjson"):
            self.prediction_ending = "jsonl"

    # --- head, loss and predictions

    def head(self, width: int, dropout: float) -> nn.Module:
        """A head with one dropout layer for single texts, else two; a score is on the scale from 0 to 5."""
        if self.num_texts == 1:
            return Head(width, self.outputs, dropout, dropout_layers=1)
        head = super().head(width, dropout)
        return head if self.classes else Scaled(head)

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Sum over rows of the cross entropy, or of the squared error on the scale from 0 to 5."""
        if self.classes:
            return F.cross_entropy(outputs.float(), labels.long(), reduction="sum")
        low, high = self.scale
        return F.mse_loss(outputs.float(), 5 * (labels.float() - low) / (high - low), reduction="sum")

    def predict(self, outputs: np.ndarray) -> np.ndarray:
        """The most probable class, or the score on the task's own scale."""
        if self.classes:
            return outputs.argmax(1).astype(np.float64)
        low, high = self.scale
        return low + outputs.astype(np.float64) / 5 * (high - low)

    def format_prediction(self, value: float) -> str:
        """The name of a class, or a score with six digits."""
        return self.classes[int(value)] if self.classes else str(round(float(value), 6))

    def prediction_text(
        self,
        ids: Sequence[str],
        predicted: np.ndarray,
        probabilities: np.ndarray | None = None,
        source: Path | None = None,
        split: str = "",
    ) -> str:
        """The rows of `source` with columns `prediction` and, for each class, `p(class)`: CSV, or JSON lines of JSON.

        Rows that have no prediction are left out.
        """
        assert source is not None
        index = {id_: row for row, id_ in enumerate(ids)}
        names, records = self._records(source)
        rows = []
        for line, record in records:
            row = index.get(self._id(source, line, record, split))
            # an id may stand again in another split, or in a row that was skipped
            is_of_this_split = is_of_split(record, names, self._split_in_file(split))
            if row is None or not is_of_this_split or not all(self._texts(source, line, record)):
                continue
            value = predicted[row]
            added = {"prediction": self.format_prediction(value) if self.classes else round(float(value), 6)}
            if probabilities is not None:
                for name, probability in zip(self.classes, probabilities[row].tolist(), strict=True):
                    added[f"p({name})"] = round(probability, 6)
            rows.append({**record, **added})
        # standard output has the form of the input, a prediction file that of its name
        as_json = is_json(source)
        if split:
            as_json = self.prediction_ending == "jsonl"
        if as_json:
            text = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
            # an unpaired surrogate, as in texts that were cut, stays the escape that it was
            return text.encode("utf-8", "backslashreplace").decode("utf-8")
        new_columns = ["prediction"]
        if probabilities is not None:
            new_columns += [f"p({name})" for name in self.classes]
        # the file may have such columns, from an earlier prediction
        columns = list(dict.fromkeys([*names, *new_columns]))
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue()

    def input_table(self, rows: Sequence[Row], outputs: np.ndarray, path: Path) -> str:
        """The file itself with its predictions added, as `prediction_text`."""
        ids = [row.id for row in rows]
        return self.prediction_text(ids, self.predict(outputs), self.probabilities(outputs), path, "")

    # --- data

    def open(self, path: Path, split: str, tokenizer: Tokenizer, max_length: int) -> Examples:
        """The examples of a split, tokenised once and cached. Raises `UserError` if no row is usable."""

        def rows() -> Iterator[Row | Issue | ReaderReport]:
            data = self.read(path, split)
            report: ReaderReport = {"course": False, "other_splits": data.other_splits}
            if self.definition.draws_dev and split != "test":
                report["drawn"] = "every tenth training row, sorted by label, is a dev row, for any --seed"
            yield report
            yield from data.rows_and_issues()

        reader = f"own {self.definition.reading} {split}"
        cache = token_cache.load(path, rows(), reader, tokenizer, sha256=readers.digest(path))
        return Examples(cache, tokenizer, max_length)

    def read(self, path: Path, split: str = "") -> DataFile:
        """The rows of a split, or all rows of a file to predict, whose labels may be missing or others.

        Rows with an empty text are skipped, and training rows without a label; rows without a label of other splits are
        predicted, not scored. Labels of test rows may be placeholders. Raises `UserError` for a missing column, an
        invalid row, and if no row is usable.
        """
        names, records = self._records(path)
        label_column = self.definition.label
        has_labels = label_column in names
        needed = [*self.definition.texts]
        if split in ("train", "dev"):
            needed.append(label_column)
        if split and self.definition.id:
            needed.append(self.definition.id)
        for column in needed:
            if column not in names:
                raise UserError(f"{path}: no column {column!r}: it has {format_list(names)}")
        wanted = self._split_in_file(split)
        data = DataFile(path, self.num_texts)
        for line, record in records_of_split(data, names, records, wanted):
            texts = self._texts(path, line, record)
            if not all(texts):
                data.skip(line, f"{self.definition.texts[texts.index('')]}: empty")
                continue
            text = cell(path, line, record, label_column).strip() if has_labels else ""
            label = math.nan
            note = ""
            if text:
                try:
                    label = read_label(path, line, label_column, text, self.parse_label)
                except UserError:
                    if split in ("train", "dev"):
                        raise
                    if not split:  # labels of test rows may be placeholders
                        note = f"{label_column}: {short_repr(text)} is no label of the task; predicted, not scored"
            elif wanted == "train":
                data.skip(line, f"{label_column}: empty")
                continue
            data.keep(line, texts, label, self._id(path, line, record, split), note)
        if self.definition.draws_dev and wanted == "train":
            _keep_drawn(data, dev=split == "dev")
        if not data.rows:
            # a drawn dev row is a training row in the file
            few = ": too few to draw dev rows from; name a dev file" if wanted != split else ""
            raise UserError(f"{path}: no usable row{few}")
        return data

    def read_inputs(self, path: Path) -> DataFile:
        """The rows of a file to predict: a table with the task's columns of texts, or plain texts, one a line."""
        return self.read(path)

    def parse_label(self, text: str) -> float:
        """The index of a class, or a score. Raises `UserError`, saying what is accepted."""
        if self.classes:
            return parse_name(text, self.classes)
        return parse_score(text, *self.scale)

    def _split_in_file(self, split: str) -> str:
        """The split that the file gives to the rows of a split: drawn dev rows are training rows there."""
        return "train" if split == "dev" and self.definition.draws_dev else split

    def _records(self, path: Path) -> tuple[list[str], Iterable[tuple[int, Record]]]:
        """The names of a file's columns, and its rows; plain texts, one a line, are rows of the column of texts."""
        names, records = read_records(path, self.kind)
        column = self.definition.texts[0]
        if self.num_texts == 2 or column in names:
            return names, records
        if is_parquet(path) or is_json(path) or readers.is_table(path):
            return names, records
        return [column], ((line, {column: text}) for line, text in plain_lines(path))

    def _texts(self, path: Path, line: int, record: Record) -> tuple[str, ...]:
        """The texts of a row, some of which may be empty."""
        return tuple(cell(path, line, record, column).strip() for column in self.definition.texts)

    def _id(self, path: Path, line: int, record: Record, split: str) -> str:
        """The id of a row; its line if the task has no column of ids, or in a file to predict, whose ids may repeat."""
        if not split or not self.definition.id:
            return str(line)
        return cell(path, line, record, self.definition.id).strip()


def _keep_drawn(data: DataFile, *, dev: bool) -> None:
    """Keep the training rows, or the dev rows that are drawn from them: every tenth row, sorted by label.

    Rows of one label are in random order, by a seed that is no setting: runs of all seeds have the same dev rows.
    """
    labels = np.array([row.label for row in data.rows])
    order = np.lexsort((numpy_generator(0, "dev rows").permutation(len(labels)), labels))
    # from the middle of every ten, so that the rows have the labels of all in proportion, and low and high scores
    drawn = set(order[_DEV_EVERY // 2 :: _DEV_EVERY].tolist())
    kept = [row for index, row in enumerate(data.rows) if (index in drawn) == dev]
    data.other_splits += len(data.rows) - len(kept)
    data.rows = kept
    if dev:
        # they are listed with the training rows
        data.other_splits += len(data.skipped)
        data.skipped = []
