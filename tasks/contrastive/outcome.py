"""What a run of stage one says of its encoder: before, during and after training, in numbers and pictures."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minbert.encode import Encoder
from minbert.files import write_json
from minbert.training.rundir import RunDir
from tasks.contrastive import pictures, scoring, validation
from tasks.contrastive.data import Data
from tasks.contrastive.objectives import chance
from tasks.contrastive.pace import Paced
from tasks.contrastive.scoring import Similarities
from tasks.contrastive.settings import TRIPLETS, ContrastiveSettings
from tasks.examples import Triplet


def last_epoch_loss(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Mean training loss over the steps of the last epoch, by which CBCL chose its settings (section 5.2).

    `rows` are those of `metrics.jsonl`: each has the mean over the steps since the row before it.
    """
    train = [row for row in rows if row["kind"] == "train" and "nli/loss" in row]
    starts = [0, *(row["step"] for row in train)]
    last = [(row["nli/loss"], row["step"] - start) for row, start in zip(train, starts, strict=False)
            if row["epoch"] == train[-1]["epoch"]]  # fmt: skip
    return sum(loss * steps for loss, steps in last) / sum(steps for _, steps in last) if last else None


@dataclass(frozen=True)
class Look:
    """The numbers of one evaluation, and the cosines of the triplets that it is made on, where there are any."""

    numbers: dict[str, float | None]
    cosines: Similarities | None


@dataclass
class Evaluation:
    """How an encoder is judged: STS dev pairs, and the first `--evaluate-triplets` triplets of the training file."""

    settings: ContrastiveSettings
    encoder: Encoder
    data: Data
    evaluate: Callable[[], tuple[float, dict[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        how = self.settings
        self.evaluate = validation.evaluation(
            self.encoder, self.data.sts, self._triplets, batch_size=how.batch_size, temperature=how.temperature,
            metric=how.metric, limit=how.evaluate_triplets,
        )  # fmt: skip

    @property
    def _triplets(self) -> Triplet | None:
        train = self.data.train
        return train if isinstance(train, Triplet) and self.settings.data_kind == TRIPLETS else None

    def look(self) -> Look:
        """The encoder as it is now."""
        triplets, limit = self._triplets, self.settings.evaluate_triplets
        cosines = None
        if triplets is not None and triplets.cache.columns == 3:
            cosines = scoring.cosines(self.encoder, triplets, np.arange(min(len(triplets), limit or len(triplets))))
        return Look(self.evaluate()[1], cosines)

    def write(self, run: RunDir, paced: Paced, before: Look, after: Look, step: int) -> None:
        """`scores.json`, and pictures as SVG and PNG in `pictures/`: loss and STS dev over steps, cosines, groups."""
        scores = {name: {"before": before.numbers[name], "after": value} for name, value in after.numbers.items()}
        into, rows = run.path / "pictures", run.metrics()
        write_json(run.path / "scores.json", scores | {"step": step, "last_epoch_loss": last_epoch_loss(rows)})
        pictures.losses(into / "loss", rows, chance(self.settings, paced.rows, self.data.train.cache.columns))
        pictures.spearman(into / "sts-dev", rows, before.numbers["sts_dev_spearman"])
        if before.cosines and after.cosines:
            pictures.cosines(
                into / "cosines", *((one.positive, one.negative) for one in (before.cosines, after.cosines))
            )
        if paced.cosines is not None:
            pictures.gaps(into / "groups", paced.cosines.positive, paced.cosines.negative, self.settings.margin)
            pictures.mix(into / "mix", paced.mix)
