"""One rank of several: a step of every objective, its gradients summed over the ranks and written to a file.

WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python -m tests.tasks.contrastive.ranks FOLDER ROWS OUT
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tasks.contrastive.model import ContrastiveModel, ContrastiveTrainStep

from minbert import token_cache
from minbert.bert import BertModel
from minbert.optimizer import AdamW, decay_groups
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from tasks.augment.punctuation import Punctuation
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples, Pair, unchanged
from tests.tasks.contrastive.conftest import ANCHORS, NEGATIVES, POSITIVES

VARIANTS: dict[str, dict[str, Any]] = {
    "nt-xent": {"pooler": "cls", "projection": "training"},
    "nt-xent in chunks": {"chunk": 3},
    "triplet": {"chunk": 4},
    "margin": {"loss_margin": 9.0},
    "softmax": {},
    "cross": {"chunk": 2, "keep": "last"},
    "joint": {"views": "shuffle,adversarial:0.5", "chunk": 5},
    "views": {"views": "feature-cutoff:0.2,span-cutoff:0.4", "texts": "sts"},
    "simcse": {"texts": "sts", "eda_weight": 0.6, "marks_most": 2, "pooler": "cls"},
}
"""Settings of each objective that is tried; a name's first word is the objective."""


def main(folder: str, rows: int, out: Path) -> None:
    """Write the gradients of every variant, its loss and a hash of the parameters after one update."""
    torch.set_deterministic_debug_mode("error")
    with distributed.group(torch.device("cpu")):
        write(folder, rows, out)


def write(folder: str, rows: int, out: Path) -> None:
    """As `main`, inside the process group."""
    device = torch.device("cpu")
    distributed._BUCKET = 1000  # so that the gradients are exchanged in several
    tokenizer = Tokenizer.load(Path(folder))
    sides = [ANCHORS, POSITIVES, NEGATIVES]
    found: dict[str, torch.Tensor] = {}
    for name, given in VARIANTS.items():
        objective = name.split()[0]
        settings = ContrastiveSettings.of(**{"objective": objective, "pooler": "mean", "batch_size": 6} | given)
        columns = {"triplets": 3, "pairs": 2, "texts": 1}[settings.objective.row_noun]
        lines = [Row(str(i), texts, float(i % 3)) for i, texts in enumerate(zip(*sides[:columns], strict=True))]
        source = out.with_name(f"{out.name}-{columns}-{distributed.rank()}")
        source.write_text(str(columns))
        cache = token_cache.load(source, lines, "rows", tokenizer)
        examples = (Pair if columns == 2 else Examples)(cache, tokenizer.cls, tokenizer.sep, 32)
        model = ContrastiveModel(settings, BertModel.from_pretrained(folder)).eval()
        augment = [Punctuation(tokenizer, seed=5, most=2)] if given.get("marks_most") else [unchanged]
        step = PlannedBatch("nli", np.array([4, 0, 3, 1, 5])[:rows], 1, 0)
        one = ContrastiveTrainStep(settings.objective, examples, augment[0], settings.training.chunk)
        numbers = one.backward(model, step, StepContext(5, 0, "fp32", device))
        distributed.sum_gradients(model.parameters(), device)
        found[f"{name}: loss"] = numbers["loss"].reshape(1)
        found |= {f"{name}: {key}": p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
        AdamW(decay_groups(model.parameters(), 0.01), lr=1e-3).step()
        state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
        found[f"{name}: hash"] = torch.tensor([*hashlib.sha256(state).digest()])
    save_file(found, out)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3] + os.environ["RANK"]))
