"""One rank of several: a step of every loss, its gradients summed over the ranks, scores and vectors, in a file.

WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python -m tests.tasks.contrastive.ranks FOLDER ROWS OUT
"""

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from minbert import token_cache
from minbert.bert import BertModel
from minbert.encoder import Encoder
from minbert.files import sha256_of
from minbert.optimizer import AdamW, decay_groups
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from pretrain_cbcl import LossSettings, TripletTrainStep
from tasks.augment.punctuation import Punctuation
from tasks.contrastive import consert, evaluation, nli, scoring, simcse
from tasks.contrastive.step import ContrastiveModel, ContrastiveTrainStep
from tasks.examples import Examples, unchanged
from tests.tasks.contrastive.conftest import ANCHORS, NEGATIVES, POSITIVES


@dataclass(frozen=True)
class Variant:
    """A training step to try; `columns` are the texts of a row."""

    step: Callable[..., ContrastiveTrainStep]
    columns: int
    options: Any = None
    chunk: int = 0
    pooler: str = "mean"
    projection: str = "none"
    classifier: tuple[int, int] | None = None


JOINT = consert.LossSettings(objective="joint", views="shuffle,adversarial:0.5")
VIEWS = consert.LossSettings(views="feature-cutoff:0.2,span-cutoff:0.4")
VARIANTS = {
    "nt-xent": Variant(TripletTrainStep, 3, LossSettings(), pooler="cls", projection="training"),
    "nt-xent in chunks": Variant(TripletTrainStep, 3, LossSettings(), chunk=3),
    "triplet": Variant(TripletTrainStep, 3, LossSettings(objective="triplet"), chunk=4),
    "margin": Variant(TripletTrainStep, 3, LossSettings(objective="margin", loss_margin=9.0)),
    "softmax": Variant(nli.SoftmaxTrainStep, 2, classifier=(3, 3)),
    "cross": Variant(nli.CrossTrainStep, 2, chunk=2, classifier=(1, 3)),
    "joint": Variant(consert.JointTrainStep, 2, JOINT, chunk=5, classifier=(3, 3)),
    "views": Variant(consert.ViewsTrainStep, 1, VIEWS),
    "simcse": Variant(simcse.SimcseTrainStep, 1, simcse.LossSettings(eda_weight=0.6, marks_most=2), pooler="cls"),
}


def main(folder: str, rows: int, out: Path) -> None:
    """Write the gradients of every variant, its loss and a hash of the parameters after one update."""
    torch.set_deterministic_debug_mode("error")
    with distributed.group(torch.device("cpu")):
        write(folder, rows, out)


def write(folder: str, rows: int, out: Path) -> None:
    """As `main`, inside the process group."""
    device = torch.device("cpu")
    tokenizer = Tokenizer.load(Path(folder))
    sides = [ANCHORS, POSITIVES, NEGATIVES]
    tensors: dict[str, torch.Tensor] = {}
    for name, variant in VARIANTS.items():
        columns = variant.columns
        lines = [Row(str(i), texts, float(i % 3)) for i, texts in enumerate(zip(*sides[:columns], strict=True))]
        source = out.with_name(f"{out.name}-{columns}-{distributed.rank()}")
        source.write_text(str(columns))
        cache = token_cache.load(source, lines, "rows", tokenizer, sha256=sha256_of(source))
        examples = Examples(cache, tokenizer, 32)
        model = ContrastiveModel(
            BertModel.from_pretrained(folder),
            variant.pooler,
            seed=5,
            projection=variant.projection,
            classifier=variant.classifier,
        ).eval()
        augment: Any = Punctuation(seed=5, most=2) if name == "simcse" else unchanged
        options = [variant.options] if variant.options else []
        step = variant.step(examples, augment, variant.chunk, *options)
        batch = PlannedBatch("nli", np.array([4, 0, 3, 1, 5])[:rows], 1, 0)
        metrics = step.backward(model, batch, StepContext(5, 0, "fp32", device))
        distributed.sum_gradients(model.parameters(), device)
        tensors[f"{name}: loss"] = metrics["loss"].reshape(1)
        for parameter_name, p in model.named_parameters():
            if p.grad is not None:
                tensors[f"{name}: {parameter_name}"] = p.grad.clone()
        AdamW(decay_groups(model.parameters(), 0.01), lr=1e-3).step()
        state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        tensors[f"{name}: hash"] = torch.tensor([*hashlib.sha256(state).digest()])
    other = torch.tensor([distributed.rank()])
    tensors["differing rank"] = torch.tensor([distributed.differing_rank([other], device)])
    tensors["scores"] = first_ranks_scores(out.parent / "no-run")
    encoder = Encoder(BertModel.from_pretrained(folder), tokenizer, "mean", precision="fp32")
    sentences = [[tokenizer.cls, *ids, tokenizer.sep] for ids in tokenizer.encode(ANCHORS)]
    tensors["vectors"] = torch.from_numpy(evaluation.encode_over_ranks(encoder, sentences))
    save_file(tensors, out)


def first_ranks_scores(folder: Path) -> torch.Tensor:
    """The scores that order three triplets, for which each rank would give others."""
    rank = distributed.rank()
    own = {"a": np.arange(3.0) + rank, "b": np.arange(3.0) * rank}
    scores = scoring.scores_of_run(folder, ("a", "b"), 3, torch.device("cpu"), lambda: own)
    return torch.from_numpy(np.stack([scores["a"], scores["b"]]))


if __name__ == "__main__":
    distributed._BUCKET = 1000  # so that the gradients are exchanged in several
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3] + os.environ["RANK"]))
