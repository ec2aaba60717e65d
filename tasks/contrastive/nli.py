"""Objectives over labelled NLI pairs: SBERT's classification of two vectors, and of pairs that are read together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from minbert.errors import UserError
from minbert.files import data_folder, data_path, expand_user, require_file
from minbert.token_cache import Issue, Row
from minbert.train.settings import flag
from tasks.contrastive.objective import Inputs, Numbers, Objective, TextKeys, objective_flag
from tasks.readers import kind_of, open_as, senteval, text_key
from tasks.readers.labels import NLI_CLASSES, POLARITIES

if TYPE_CHECKING:
    from torch import Tensor

    from minbert.tokenizer import Tokenizer
    from minbert.train.loop import StepContext
    from minbert.train.plan import PlannedBatch
    from tasks.contrastive.data import TrainingRows
    from tasks.contrastive.model import ContrastiveModel
    from tasks.contrastive.settings import ContrastiveSettings
    from tasks.examples import Examples


_ORIGINALS = ("snli_1.0/snli_1.0_train.jsonl", "multinli_1.0/multinli_1.0_train.jsonl")


class Classification(Objective):
    """The classes of NLI pairs, from the vectors of both texts."""

    row_noun: ClassVar[str] = "pairs"
    nli_pairs: str = flag(
        "",
        "in place of nli/nli-pairs.tsv, else SNLI's and MultiNLI's originals: files of labelled NLI pairs, by commas",
        metavar="FILES",
        path=True,
    )

    @property
    def classes(self) -> int:
        """The number of NLI classes."""
        return len(NLI_CLASSES)

    def find(self, data: str) -> tuple[list[Path], list[Path]]:
        """The files of labelled pairs, and that of the phrases, if there are any."""
        from tasks.contrastive.data import training_files

        paths = training_files(self.nli_pairs, data, "nli-pairs.tsv", *_ORIGINALS)
        if not self.nli_pairs and paths[0].name != "nli-pairs.tsv":
            originals = (paths[0].parent.parent / name for name in _ORIGINALS)
            paths = [path for path in originals if path.is_file()]
        for path in paths:
            kind_of(path, ("nli",))
        return paths, []

    def read(self, settings: ContrastiveSettings, tokenizer: Tokenizer, length: int) -> TrainingRows:
        """Labelled pairs, then the phrases."""
        from tasks.contrastive.data import TrainingRows, cache_rows
        from tasks.examples import Pair

        pairs, phrases = self.find(settings.files.data)
        evaluated = _sst_files(settings.files.data) if phrases else []
        paths = [*pairs, *phrases]
        names = [f"{path.name}:" if len(paths) > 1 else "" for path in paths]  # prefixes of the ids

        def rows() -> Iterator[Row | Issue]:
            opened = [open_as(path, "nli").rows_and_issues() for path in pairs]
            for path in phrases:
                single = open_as(path, "single", classes=len(POLARITIES))
                opened.append(list(_as_pairs(single.rows_and_issues(), evaluated)))
            for file_rows, name in zip(opened, names, strict=True):
                for row in file_rows:
                    if isinstance(row, Issue):
                        yield replace(row, reason=f"{name} {row.reason}".strip())
                    else:
                        yield replace(row, id=f"{name}{row.id}")

        rule = ["nli", *names, *(["phrases"] if phrases else [])]
        cache, files = cache_rows(paths, rows(), rule, tokenizer, further=evaluated)
        entry = {name: value for name, value in cache.manifest_entry().items() if name not in ("file", "sha256")}
        return TrainingRows(Pair(cache, tokenizer.cls, tokenizer.sep, length), entry | {"files": files})

    def encoded(self, examples: Examples) -> TextKeys:
        """Both texts of a pair."""
        return ((0, 0), (1, 0))

    def loss(self, model: ContrastiveModel, vectors: Tensor, examples: Examples, batch: PlannedBatch) -> Numbers:
        """Cross entropy and accuracy."""
        import torch

        from minbert.ragged import to_device

        labels = to_device(torch.from_numpy(examples.labels[batch.rows].astype(np.int64)), vectors.device)
        logits = self.logits(model, vectors, labels)
        accuracy = (logits.detach().argmax(1) == labels).float().mean()
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "accuracy": accuracy}

    def logits(self, model: ContrastiveModel, vectors: Tensor, labels: Tensor) -> Tensor:
        """The classifier over [u; v; |u - v|]: [B, classes]."""
        from tasks.contrastive import losses

        return model.classify(losses.softmax_features(*vectors.chunk(2)))

    def chance(self, batch_size: int, columns: int) -> float | None:
        """See `Objective.chance`."""
        return math.log(self.classes)


class Softmax(Classification):
    """Classification of NLI pairs over [u; v; |u - v|] (SBERT, section 3)."""

    objective: Literal["softmax"] = objective_flag("softmax")


class CrossEncoder(Classification):
    """Classification of NLI pairs that are read together, as [CLS] a [SEP] b [SEP] (BERT, section 4.1).

    It prepares an encoder for tasks that read pairs so (supplementary training; Phang et al., 2018). With `--phrases`
    some rows are single texts, [CLS] a [SEP], of two further classes; a row's softmax is over the classes of its kind.
    """

    form: ClassVar[str] = "cross"
    objective: Literal["cross"] = objective_flag("cross")
    phrases: str = flag(
        "",
        "also classify single texts labelled 0 or 1: sst = the phrases of SST's training sentences in SentEval's "
        "layout, negative or positive; or a file",
        metavar="sst|FILE",
        path=True,
    )

    @property
    def classes(self) -> int:
        """The number of NLI classes, plus that of the phrases' classes."""
        return len(NLI_CLASSES) + (len(POLARITIES) if self.phrases else 0)

    def check(self, settings: ContrastiveSettings) -> None:
        """See `Objective.check`."""
        if settings.training.chooses:
            raise UserError(
                f"--objective {self.objective} trains no sentence embeddings, so --sts-dev cannot select a checkpoint: "
                "use --keep last, without --patience"
            )

    def find(self, data: str) -> tuple[list[Path], list[Path]]:
        """As `Classification.find`, with `--phrases`."""
        pairs, _ = super().find(data)
        if not self.phrases:
            return pairs, []
        path = expand_user(self.phrases)
        if self.phrases == "sst":
            (name,) = senteval.CLASSIFICATION["SST2"][1]["train"]
            path = senteval.root(data_folder(data)) / name
        kind_of(require_file(path), ("single",))
        return pairs, [path]

    def encoded(self, examples: Examples) -> TextKeys:
        """One sequence for each row."""
        return ((0, 0),)

    def inputs(self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext) -> Inputs:
        """Token ids and token types of each pair in one sequence, or of a single text: B lists each."""
        from tasks.examples import Pair

        assert isinstance(examples, Pair)
        single = examples.labels[batch.rows] >= len(NLI_CLASSES)
        texts = [
            examples.alone(row, 0) if alone else examples.joined(row)
            for row, alone in zip(batch.rows, single, strict=True)
        ]
        return Inputs([ids for ids, _ in texts], [types for _, types in texts])

    def logits(self, model: ContrastiveModel, vectors: Tensor, labels: Tensor) -> Tensor:
        """The classifier over the rows' vectors, with -inf for the classes of the other kind of rows: [B, classes]."""
        import torch

        logits = model.classify(vectors)
        of_pairs = torch.arange(logits.shape[1], device=labels.device) < len(NLI_CLASSES)
        return logits.masked_fill(of_pairs != (labels < len(NLI_CLASSES))[:, None], -math.inf)

    def chance(self, batch_size: int, columns: int) -> float | None:
        """None with phrases: it depends on how many rows of a batch are phrases."""
        return None if self.phrases else super().chance(batch_size, columns)


def _sst_files(data: str) -> list[Path]:
    """The course's dev and test files of SST; phrases that equal one of their sentences are skipped.

    Warns for each file that does not exist.
    """
    from minbert.train import distributed

    folder, paths = data_path(data), []
    for name in ("ids-sst-dev.csv", "ids-sst-test-student.csv"):
        if path := next(filter(Path.is_file, (folder / "course" / name, folder / name)), None):
            paths.append(path)
        else:
            distributed.note(f"--phrases: {folder} has no {name}, so phrases that equal its sentences are not skipped")
    return paths


def _as_pairs(rows: list[Row | Issue], evaluated: list[Path]) -> Iterator[Row | Issue]:
    """Single texts as pairs without a second text, their classes after those of NLI.

    Skips those that equal, by `readers.text_key`, a sentence of the files in `evaluated`.
    """
    evaluated_texts = {
        text_key(row.texts[0]): path.name for path in evaluated for row in open_as(path, "single", "test").rows
    }
    for row in rows:
        if isinstance(row, Issue):
            yield row
        elif evaluated_texts and (name := evaluated_texts.get(text_key(row.texts[0]))):
            yield Issue(row.line, f"equals a sentence of {name}")
        else:
            yield replace(row, texts=(*row.texts, ""), label=len(NLI_CLASSES) + row.label)
