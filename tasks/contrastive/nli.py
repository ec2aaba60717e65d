"""Classification of labelled NLI pairs: SBERT's over two vectors, and of pairs that are read together, with phrases.

python -m tasks.contrastive.nli --preset sbert-nli
python -m tasks.contrastive.nli --preset intermediate --run-dir runs/intermediate
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from minbert.errors import UserError
from minbert.files import data_folder, data_path, expand_user, require_file
from minbert.ragged import to_device
from minbert.token_cache import Issue, ReaderReport, Row
from minbert.train import cli, distributed, plan, start
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from minbert.train.settings import DataSettings, Settings, flag, parse
from minbert.train.start import InitialEncoder, OpenRun
from tasks.augment.synonyms import SynonymSettings, synonym_augmentation, synonym_files, write_replacements
from tasks.contrastive import losses
from tasks.contrastive.curriculum import shuffled_plan
from tasks.contrastive.data import (
    FileSettings,
    TrainingRows,
    cache_rows,
    find_dev_pairs,
    require_dev_pairs,
    training_files,
    with_dev_pairs,
)
from tasks.contrastive.step import (
    ContrastiveModel,
    ContrastiveTrainStep,
    EncoderSettings,
    Inputs,
    Metrics,
    RunSettings,
    TrainingSettings,
    fit_and_save,
)
from tasks.examples import Examples
from tasks.presets import PRESETS
from tasks.readers import kind_of, open_as, senteval, text_key
from tasks.readers.kinds import NLI_CLASSES, POLARITIES

_ORIGINALS = ("snli_1.0/snli_1.0_train.jsonl", "multinli_1.0/multinli_1.0_train.jsonl")


@dataclass(frozen=True)
class LossSettings:
    """What is classified."""

    objective: Literal["softmax", "cross"] = flag(
        "softmax",
        "softmax = the classes of NLI over [u; v; |u - v|] (SBERT, section 3); cross = of pairs that are read together",
    )


@dataclass(frozen=True)
class NliFileSettings(FileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    nli_pairs: str = flag(
        "",
        "in place of nli/nli-pairs.tsv, else SNLI's and MultiNLI's originals: files of labelled NLI pairs, by commas",
        metavar="FILES",
    )


@dataclass(frozen=True)
class PhraseFileSettings(NliFileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    phrases: str = flag(
        "",
        "with --objective cross also classify single texts labelled 0 or 1: sst = the phrases of SST's training "
        "sentences in SentEval's layout, negative or positive; or a file",
        metavar="sst|FILE",
    )


@dataclass(frozen=True)
class NliSettings(Settings):
    """All settings of this command."""

    encoder: EncoderSettings
    data: DataSettings
    loss: LossSettings
    synonyms: SynonymSettings
    training: TrainingSettings
    files: PhraseFileSettings
    run: RunSettings

    def __post_init__(self) -> None:
        if self.encoder.projection != "none":
            raise UserError("--projection belongs to contrastive losses: this command has none")
        if self.loss.objective == "softmax":
            if self.files.phrases:
                raise UserError("--phrases needs --objective cross: a single text has no second vector")
        elif self.training.selects_by_dev:
            raise UserError(
                "--objective cross trains no sentence embeddings, so --sts-dev cannot select a checkpoint: use --keep "
                "last, without --patience"
            )
        require_dev_pairs(self)


@dataclass(frozen=True)
class SoftmaxTrainStep(ContrastiveTrainStep):
    """Cross entropy over the classes of NLI, from [u; v; |u - v|] (SBERT, section 3)."""

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """Cross entropy and accuracy."""
        u, v = vectors.chunk(2)
        return classification(model.classify(losses.softmax_features(u, v)), self.labels(batch, vectors.device))

    def labels(self, batch: PlannedBatch, device: torch.device) -> Tensor:
        """The classes of the batch: int64 [B]."""
        return to_device(torch.from_numpy(self.examples.labels[batch.rows].astype(np.int64)), device)


@dataclass(frozen=True)
class CrossTrainStep(SoftmaxTrainStep):
    """Cross entropy over the classes of pairs that are read together, as [CLS] a [SEP] b [SEP] (BERT, section 4.1).

    It prepares an encoder for tasks that read pairs so (supplementary training; Phang et al., 2018). With `--phrases`
    some rows are single texts, [CLS] a [SEP], of two further classes; a row's softmax is over the classes of its kind.
    """

    @property
    def columns(self) -> list[int]:
        """One sequence for each row."""
        return [0]

    def inputs(self, model: ContrastiveModel, examples: Examples, batch: PlannedBatch, context: StepContext) -> Inputs:
        """Token ids and token types of each pair in one sequence, or of a single text: B lists each."""
        sentences = []
        types = []
        for row in batch.rows:
            is_phrase = examples.labels[row] >= len(NLI_CLASSES)
            if is_phrase:
                ids, token_types = examples.alone(row, 0)
            else:
                ids, token_types = examples.joined(row)
            sentences.append(ids)
            types.append(token_types)
        return Inputs(sentences, types)

    def loss(self, model: ContrastiveModel, vectors: Tensor, batch: PlannedBatch) -> Metrics:
        """Cross entropy and accuracy, with logits of -inf for the classes of the other kind of rows."""
        labels = self.labels(batch, vectors.device)
        logits = model.classify(vectors)
        class_of_pairs = torch.arange(logits.shape[1], device=labels.device) < len(NLI_CLASSES)
        is_pair = labels < len(NLI_CLASSES)
        return classification(logits.masked_fill(class_of_pairs != is_pair[:, None], -math.inf), labels)


def classification(logits: Tensor, labels: Tensor) -> Metrics:
    """Cross entropy and accuracy of logits [B, classes] and labels [B]."""
    accuracy = (logits.detach().argmax(1) == labels).float().mean()
    return {"loss": F.cross_entropy(logits, labels), "accuracy": accuracy}


def find_pairs(files: NliFileSettings) -> list[Path]:
    """The files of labelled pairs. Raises `UserError` if one is missing or has another header."""
    paths = training_files(files.nli_pairs, files.data, "nli-pairs.tsv", *_ORIGINALS)
    # of the originals one is enough
    if not files.nli_pairs and paths[0].name != "nli-pairs.tsv":
        originals = (paths[0].parent.parent / name for name in _ORIGINALS)
        paths = [path for path in originals if path.is_file()]
    for path in paths:
        kind_of(path, ("nli",))
    return paths


def find_phrases(files: PhraseFileSettings) -> list[Path]:
    """The file of `--phrases`, if it is given. Raises `UserError` if it is missing or has another header."""
    if not files.phrases:
        return []
    path = expand_user(files.phrases)
    if files.phrases == "sst":
        (name,) = senteval.CLASSIFICATION["SST2"][1]["train"]
        path = senteval.root(data_folder(files.data)) / name
    kind_of(require_file(path), ("single",))
    return [path]


def read_pairs(pairs: list[Path], phrases: list[Path], data: str, encoder: InitialEncoder) -> TrainingRows:
    """Labelled pairs, then phrases as pairs without a second text; `data` is the data folder as `--data` gives it."""
    evaluated = _sst_files(data) if phrases else []
    paths = [*pairs, *phrases]
    prefixes = [f"{path.name}:" if len(paths) > 1 else "" for path in paths]

    def rows() -> Iterator[Row | Issue | ReaderReport]:
        files = [open_as(path, "nli", "train") for path in pairs]
        opened = [data.rows_and_issues() for data in files]
        for path in phrases:
            texts = open_as(path, "single", "train", classes=len(POLARITIES))
            files.append(texts)
            opened.append(list(_as_pairs(texts.rows_and_issues(), evaluated)))
        yield {"other_splits": sum(data.other_splits for data in files)}
        for file_rows, prefix in zip(opened, prefixes, strict=True):
            for row in file_rows:
                if isinstance(row, Issue):
                    yield replace(row, reason=f"{prefix} {row.reason}".strip())
                else:
                    yield replace(row, id=f"{prefix}{row.id}")

    rule = ["nli", *prefixes]
    if phrases:
        rule.append("phrases")
    tokenizer = encoder.tokenizer
    cache, files = cache_rows(paths, rows(), rule, tokenizer, further=evaluated)
    entry = {**cache.manifest_entry(), "files": files}
    # the first file's, in place of which `files` names all
    del entry["file"], entry["sha256"]
    return TrainingRows(Examples(cache, tokenizer.cls, tokenizer.sep, encoder.max_length), entry)


def _sst_files(data: str) -> list[Path]:
    """The course's dev and test files of SST; phrases that equal one of their sentences are skipped.

    Warns for each file that does not exist.
    """
    folder = data_path(data)
    paths = []
    for name in ("ids-sst-dev.csv", "ids-sst-test-student.csv"):
        existing = [path for path in (folder / "course" / name, folder / name) if path.is_file()]
        if existing:
            paths.append(existing[0])
        else:
            distributed.note(f"--phrases: {folder} has no {name}, so phrases that equal its sentences are not skipped")
    return paths


def _as_pairs(rows: list[Row | Issue], evaluated: list[Path]) -> Iterator[Row | Issue]:
    """Single texts as pairs without a second text, their classes after those of NLI.

    Skips those that equal, by `readers.text_key`, a sentence of the files in `evaluated`.
    """
    file_of_text = {}
    for path in evaluated:
        for sentence in open_as(path, "single", "test").rows:
            file_of_text[text_key(sentence.texts[0])] = path.name
    for row in rows:
        if isinstance(row, Issue):
            yield row
        elif file_of_text and (name := file_of_text.get(text_key(row.texts[0]))):
            yield Issue(row.line, f"equals a sentence of {name}")
        else:
            yield replace(row, texts=(*row.texts, ""), label=len(NLI_CLASSES) + row.label)


def main() -> None:
    """Read the settings, open the run, then train."""
    about = (__doc__ or "").splitlines()[0]
    program = "-m tasks.contrastive.nli"
    parsed = parse(NliSettings, PRESETS, sys.argv[1:], program=program, description=about, default="sbert-nli")
    with start.open_run(parsed) as run:
        train(run)


def train(run: OpenRun[NliSettings]) -> None:
    """Read the pairs, train on them and save the encoder."""
    options = run.settings
    training = options.training
    cross = options.loss.objective == "cross"

    # read the pairs
    pairs = find_pairs(options.files)
    phrases = find_phrases(options.files)
    find_dev_pairs(options.files)
    resources = synonym_files(options)
    initial = start.load_initial_encoder(options.encoder, run.device)
    rows_read = read_pairs(pairs, phrases, options.files.data, initial)
    form = "cross" if cross else "bi"
    data = with_dev_pairs(rows_read, options, initial, noun="pairs", form=form)
    rows = plan.random_subset(len(data.train), options.data.limit, training.seed)
    steps = shuffled_plan(rows, training)

    # train on them
    classes = len(NLI_CLASSES) + (len(POLARITIES) if phrases else 0)
    vectors_read = 1 if cross else 3
    model = ContrastiveModel(initial.model, initial.pooler, seed=training.seed, classifier=(vectors_read, classes))
    augment = synonym_augmentation(options, {"nli": data.train}, initial.tokenizer, steps, run.folder.path)
    inputs = {**data.inputs, **resources}
    start.begin_run(run, initial, inputs, data=data.entry, plan=plan.describe(steps), training_rows={"nli": len(rows)})
    write_replacements(augment)
    train_step = CrossTrainStep if cross else SoftmaxTrainStep
    # a cross-encoder has trained no vectors of sentences: stage two reads them by the weights it started from
    next_flags = ["--preset", "best", "--sentence-encoder", options.encoder.weights] if cross else []
    fit_and_save(
        run,
        initial,
        model.to(run.device),
        train_step(data.train, augment, training.chunk),
        steps,
        data,
        rows=rows,
        noun="pairs",
        loss=options.loss.objective,
        chance=None if phrases else math.log(classes),  # with phrases it depends on how many a batch has
        next_flags=next_flags,
        trains_sentences=not cross,
    )


if __name__ == "__main__":
    cli.run(main)
