"""The multitask model: a shared encoder with one head per task, and its training objective.

Axes: B rows of a batch, L length of a padded row, D hidden, C outputs of a head.
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert import weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError, format_list
from minbert.fast import accelerate
from minbert.fast.graphs import GraphedVectors
from minbert.files import expand_user, load_safetensors, sha256_of
from minbert.optimizer import decay_groups
from minbert.ragged import Ragged, to_device
from minbert.seeds import torch_seed
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from minbert.train.run import InputFiles
from tasks.examples import Augmentation, Examples, unchanged
from tasks.manifests import fine_tuned, kept_weights
from tasks.settings import MultitaskSettings, TrainingSettings
from tasks.task import Task


class MultitaskModel(nn.Module):
    """An encoder shared by all tasks, and one head per task (CBCL, section 4.2).

    For pairs of the form `joint`, the sentences are also read by an encoder that is not trained: `sentence_encoder`, by
    default a copy of `encoder`. `pooler` is one of `minbert.pooling.NAMES`.
    """

    def __init__(
        self,
        encoder: BertModel,
        tasks: Sequence[Task],
        dropout: float,
        *,
        pooler: str = "pooler",
        frozen: bool = False,
        sentence_encoder: BertModel | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.vectors = GraphedVectors(encoder, pooler)
        self.sentence_encoder = None
        self.sentence_vectors = None
        if any(task.pairs == "joint" for task in tasks):
            self.sentence_encoder = (sentence_encoder or deepcopy(encoder)).requires_grad_(False)
            self.sentence_vectors = GraphedVectors(self.sentence_encoder, "mean")
        self.tasks = {task.name: task for task in tasks}
        self.heads = nn.ModuleDict()
        for task in tasks:
            width = task.feature_width(encoder.config.hidden_size)
            self.heads[task.name] = task.head(width, dropout)
        self.frozen = frozen
        encoder.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> "MultitaskModel":
        """Set training mode; a frozen encoder stays in evaluation mode, as does the sentence encoder."""
        super().train(mode)
        self.encoder.train(mode and not self.frozen)
        self.vectors.active = mode
        if self.sentence_vectors is not None:
            self.sentence_vectors.model.eval()
            self.sentence_vectors.active = mode
        return self

    def features(self, task: str, ragged: Ragged, passes: int = 1) -> Tensor:
        """The input of a task's head for a batch: [B, D], for pairs of the form `bi` [B, 3D], `joint` [B, 3D + 1].

        With several `passes` through the encoder, each with its own dropout, the rows of the passes are concatenated.
        """
        spec = self.tasks[task]
        sentences = None
        if spec.pairs == "joint":
            # B sequences of pairs, then the 2B sentences of both sides
            ragged, sentences = ragged.split(len(ragged) // 3)
        # a frozen encoder keeps no activations for a backward pass
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            vectors_by_pass = self.vectors(ragged.repeated(passes)).chunk(passes)
            features = torch.cat([spec.features(vectors) for vectors in vectors_by_pass])
        if sentences is None:
            return features
        # the sentence encoder has no dropout, so one pass serves all
        comparison = self.compare_sentences(sentences).repeat(passes, 1)
        return torch.cat([features, comparison], dim=1)

    @torch.no_grad()
    def compare_sentences(self, ragged: Ragged) -> Tensor:
        """[|u - v|; u * v; 5 cos(u, v)] of 2B sentences, first all u, then all v: [B, 2D + 1].

        The mean vectors of the sentence encoder are scaled to length sqrt(D), so that all components are of order 1;
        the cosine is on the scale of the similarity scores, 0 to 5.
        """
        assert self.sentence_vectors is not None
        u, v = F.normalize(self.sentence_vectors(ragged), dim=1).chunk(2)
        width = u.shape[1]
        cosine = 5 * (u * v).sum(1, keepdim=True)
        return torch.cat([math.sqrt(width) * (u - v).abs(), width * u * v, cosine], dim=1)

    def forward(self, task: str, ragged: Ragged) -> Tensor:
        """Outputs of a task's head for a batch: [B], or [B, C]."""
        out: Tensor = self.heads[task](self.features(task, ragged))
        return out

    def predict_sentiment(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of the five classes, [B, 5], for padded sentences [B, L]."""
        return self("sst", Ragged.from_padded(input_ids, attention_mask))

    def predict_paraphrase(self, ids_1: Tensor, mask_1: Tensor, ids_2: Tensor, mask_2: Tensor) -> Tensor:
        """Logits (not probabilities) of being a paraphrase, [B], for two padded batches [B, L]."""
        return self("quora", self._joined("quora", ids_1, mask_1, ids_2, mask_2))

    def predict_similarity(self, ids_1: Tensor, mask_1: Tensor, ids_2: Tensor, mask_2: Tensor) -> Tensor:
        """Similarity from 0 to 5, [B], for two padded batches [B, L]."""
        return self("sts", self._joined("sts", ids_1, mask_1, ids_2, mask_2))

    def _joined(self, task: str, ids_1: Tensor, mask_1: Tensor, ids_2: Tensor, mask_2: Tensor) -> Ragged:
        """Two padded batches of [CLS] text [SEP], in the pair form that the task was trained with."""
        form = self.tasks[task].pairs
        first = _lists(ids_1, mask_1)
        second = _lists(ids_2, mask_2)
        if form == "bi":
            return Ragged.from_lists(first + second).to(ids_1.device)
        start = 0 if form == "paper" else 1  # a cross-encoder pair has one [CLS]
        ids = []
        types = []
        for a, b in zip(first, second, strict=True):
            rest = b[start:]
            ids.append(a + rest)
            types.append([0] * len(a) + [start] * len(rest))  # the paper's form has token type 0 throughout
        if form == "joint":
            for sentence in first + second:
                ids.append(sentence)
                types.append([0] * len(sentence))
        return Ragged.from_lists(ids, types).to(ids_1.device)


def _lists(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """The real tokens of each row of a padded batch."""
    return [row[keep.bool()].tolist() for row, keep in zip(ids, mask, strict=True)]


def load_sentence_encoder(
    settings: MultitaskSettings, encoder: BertModel, tokenizer: Tokenizer
) -> tuple[BertModel | None, InputFiles]:
    """The encoder of `--sentence-encoder` and the SHA-256 of its weights, for the run's identity; None if unused.

    Raises `UserError` if there are no such weights, or if their sizes or their vocabulary are not those of `encoder`,
    which reads the same token ids.
    """
    source = settings.encoder.sentence_encoder
    if not source:
        return None, {}
    folder = weights.resolve(source, "--sentence-encoder")
    # dropout and initialisation may differ
    ignored: dict[str, Any] = {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.0,
    }
    same_sizes = replace(BertConfig.read(folder), **ignored) == replace(encoder.config, **ignored)
    if not same_sizes or Tokenizer.load(folder).fingerprint != tokenizer.fingerprint:
        raise UserError(f"--sentence-encoder {source}: its sizes or vocabulary are not those of the trained encoder")
    return accelerate(BertModel.from_pretrained(folder)), {"sentence encoder": (folder, weights.sha256(folder))}


def build(
    settings: MultitaskSettings,
    encoder: BertModel,
    pooler: str,
    tasks: Sequence[Task],
    sentence_encoder: BertModel | None = None,
) -> MultitaskModel:
    """The model with new heads, initialised from the run's seed, on the encoder's device.

    `pooler` is how a text becomes one vector, `sentence_encoder` the encoder that reads the sentences of `joint` pairs
    by themselves, if it is not a copy. Raises `UserError` if pairs need two token types and the weights have one.
    """
    needs_two_types = any(task.num_texts == 2 and task.pairs in ("cross", "joint") for task in tasks)
    if needs_two_types and encoder.config.type_vocab_size < 2:
        raise UserError("--pairs: these weights embed one token type, and cross and joint need two: use paper or bi")
    # by a seed of their own: the heads do not depend on what was drawn before
    torch.manual_seed(torch_seed(settings.training.seed, "heads"))
    options = settings.model
    model = MultitaskModel(
        encoder,
        tasks,
        options.hidden_dropout_prob,
        pooler=pooler,
        frozen=options.freezes_encoder,
        sentence_encoder=sentence_encoder,
    )
    return model.to(encoder.device)


def take_heads(model: MultitaskModel, settings: MultitaskSettings) -> tuple[dict[str, Any] | None, InputFiles]:
    """Copy into a model the heads of its tasks that the run of `--from` has kept, and the sentence encoder of `joint`.

    Returns that run, the step that it has kept and the tasks whose heads go on, for the manifest, and the file of the
    weights. Raises `UserError` if a head of that name has other labels or another scale.
    """
    if not settings.encoder.from_run:
        return None, {}
    run = expand_user(settings.encoder.from_run)
    _, scores = fine_tuned(run)
    recorded = scores["tasks"]
    file = kept_weights(run, scores)
    tensors = load_safetensors(file)
    # a run of single texts alone has none; this one then reads pairs with a copy of its encoder
    sentence_encoder = _tensors_below("sentence_encoder.", tensors)
    if model.sentence_encoder is not None and sentence_encoder and not settings.encoder.sentence_encoder:
        model.sentence_encoder.load_state_dict(sentence_encoder)
    kept = []
    for name, task in model.tasks.items():
        if name not in recorded:
            continue
        report = recorded[name]
        before = report.get("scale", list(task.scale))
        if report["per_class"]:
            before = [row["label"] for row in report["per_class"]]
        now = list(task.classes or task.scale)
        if before != now:
            raise UserError(
                f"--from {run}: its head of {name} has {format_list(before)}, the task has {format_list(now)}"
            )
        model.heads[name].load_state_dict(_tensors_below(f"heads.{name}.", tensors))
        kept.append(name)
    new = [name for name in model.tasks if name not in kept]
    sentence = f"the heads of {', '.join(kept) or 'no task'} go on"
    if new:
        sentence += f"; new: {', '.join(new)}"
    distributed.say(sentence)
    return {"folder": str(run), "step": scores["step"], "heads": kept}, {"heads": (file, sha256_of(file))}


def _tensors_below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a module, without the name of the module."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def parameter_groups(model: MultitaskModel, training: TrainingSettings) -> list[dict[str, Any]]:
    """Parameter groups of the optimizer: encoder and heads, each with and without weight decay."""
    trained = [p for p in model.encoder.parameters() if p.requires_grad]
    groups = decay_groups(trained, training.weight_decay)
    for group in decay_groups(model.heads.parameters(), training.weight_decay):
        groups.append({**group, "peak_lr": training.head_lr or training.lr})
    return groups


@dataclass
class MultitaskTrainStep:
    """The mean loss of one task's batch, with gradients accumulated over `accumulate` parts of it.

    With `r_drop`, each row passes the model twice, and the loss is the mean of both passes' losses plus `r_drop` times
    the divergence of their outputs (R-Drop; Liang et al., 2021, section 2.1, whose loss is the sum over both passes:
    `r_drop` is half of its alpha).
    """

    examples: Mapping[str, Examples]
    accumulate: int = 1
    augment: Augmentation = unchanged
    r_drop: float = 0.0

    def backward(self, model: nn.Module, batch: PlannedBatch, context: StepContext) -> dict[str, Tensor]:
        """Compute gradients of the mean loss over the step's rows: each part's sum is divided by the count of all."""
        assert isinstance(model, MultitaskModel)
        model.vectors.active = self.accumulate == 1  # further parts would add gradients
        task = model.tasks[batch.task]
        examples = self.augment(self.examples[batch.task], batch)
        passes = 2 if self.r_drop else 1
        total = torch.zeros((), device=context.device)
        for part, rows in enumerate(np.array_split(distributed.own_rows(batch.rows), self.accumulate)):
            if not len(rows):
                continue
            ragged = task.encode(examples, rows).to(context.device)
            labels = to_device(torch.from_numpy(examples.labels[rows]), context.device)
            with context.autocast():
                context.seed_dropout("encoder", part)
                features = model.features(batch.task, ragged, passes)
                context.seed_dropout("head", part)
                outputs = model.heads[batch.task](features)
            loss = task.loss(outputs, labels.repeat(passes)) / passes
            if self.r_drop:
                loss = loss + self.r_drop * task.divergence(*outputs.chunk(2))
            # of all ranks and parts, so that their gradients are summed
            loss = loss / len(batch.rows)
            context.scaled(task.weight * loss).backward()
            total += loss.detach()  # on the device, without a sync
        return {"loss": distributed.sum_over_ranks(total)}
