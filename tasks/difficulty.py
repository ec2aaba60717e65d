"""How hard triplets are for the similarity head of a finished run (CBCL, section 7, future work)."""

from pathlib import Path

import numpy as np

from minbert.errors import UserError
from minbert.files import sha256_of
from minbert.train.run import InputFiles
from minbert.train.settings import names_in
from tasks import predict
from tasks.contrastive.curriculum import TASK_LOSS
from tasks.examples import Examples
from tasks.manifests import fine_tuned, kept_weights


def similarity_losses(run: Path, triplets: Examples) -> dict[str, np.ndarray]:
    """`TASK_LOSS` of N triplets, the squared errors of the head: float64 [N].

    (5 - s(anchor, positive))^2 + s(anchor, negative)^2, where s is the similarity from 0 to 5 that the head predicts:
    on this scale a positive should be equivalent to the anchor and a hard negative unrelated.
    """
    predictor = predict.load(run)
    rows = range(len(triplets))
    text = triplets.cache.text
    similar = predictor.predict("sts", [(text(row, 0), text(row, 1)) for row in rows])
    unrelated = predictor.predict("sts", [(text(row, 0), text(row, 2)) for row in rows])
    return {TASK_LOSS: (5 - similar) ** 2 + unrelated**2}


def input_files(run: Path) -> InputFiles:
    """The encoder and heads that the run has kept, with their hash.

    Raises `UserError` if `run` is not a finished run of multitask_train.py with the task sts.
    """
    manifest, scores = fine_tuned(run)
    trained = manifest["all_settings"]["tasks"]
    if "sts" not in names_in(trained.lower()):
        raise UserError(f"--difficulty-run {run}: the run has no head for sts: it was trained on {trained}")
    path = kept_weights(run, scores)
    return {"similarity head": (path, sha256_of(path))}
