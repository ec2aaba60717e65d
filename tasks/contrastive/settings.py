"""Settings of the first stage, its objectives and its presets. Importing this module loads no torch."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import ClassVar, Literal, Self, cast

from pydantic import create_model, model_validator

from minbert.errors import UserError
from minbert.train import settings
from minbert.train.settings import Settings, flag, read_presets
from tasks.augment import SynonymSettings
from tasks.contrastive.objective import Objective

OBJECTIVES = {
    "nt-xent": "tasks.contrastive.cbcl:NTXent",
    "triplet": "tasks.contrastive.cbcl:TripletLoss",
    "margin": "tasks.contrastive.cbcl:MarginLoss",
    "softmax": "tasks.contrastive.nli:Softmax",
    "cross": "tasks.contrastive.nli:CrossEncoder",
    "joint": "tasks.contrastive.consert:Joint",
    "views": "tasks.contrastive.consert:TwoViews",
    "simcse": "tasks.contrastive.simcse:SimCSE",
}
"""Objectives by name; a file is imported when its objective is chosen."""


def slug(name: str) -> str:
    """A dev set's name in the metrics and the files of a run."""
    return name.lower().replace("-", "_")


class EncoderSettings(settings.EncoderSettings):
    """The encoder that training starts from, and how its vectors are read."""

    max_length: int = flag(
        32, "longest sentence in tokens (0: as many as the encoder has positions)", ge=0, common=True
    )
    projection: Literal["none", "training", "kept"] = flag(
        "none",
        "a new layer tanh(W x + b) over [CLS]: training = in training only (unsupervised SimCSE); kept = evaluated"
        " with the encoder and saved as its pooler (supervised SimCSE)",
    )

    @property
    def trained_pooler(self) -> str:
        """The pooler that the encoder is evaluated and saved with: a projection that is kept is its `pooler`."""
        return "pooler" if self.projection == "kept" else self.pooler

    @model_validator(mode="after")
    def _over_cls(self) -> Self:
        if self.projection != "none" and self.pooler != "cls":
            raise UserError(f"--projection {self.projection} is over [CLS]: it needs --pooler cls")
        return self


class TrainingSettings(settings.TrainingSettings):
    """Training, evaluation and the selection of the final weights."""

    metric: ClassVar[str] = "spearman"

    chunk: int = flag(
        0,
        "encode a batch in chunks of N sentences, in two passes: the same gradient with less memory (the "
        "extra pass of an adversarial view is not divided)",
        ge=0,
    )


class FileSettings(settings.FileSettings):
    """Paths of the data. A run is identified by the data's hashes, not by these paths."""

    sts_dev: str = flag(
        "course",
        "scored pairs for evaluation and selection: stsb = STS-B's own dev set in SentEval's layout; course = "
        "course/sts-dev.csv; zh = the mean over the available Chinese dev sets; or a file",
        metavar="NAME|FILE",
        common=True,
    )


class RunSettings(settings.RunSettings):
    """The run folder, logging and resuming."""

    run_dir: str = flag(
        "runs/cbcl", "folder of the run: new, or empty, except with --resume", metavar="DIR", common=True
    )


class ContrastiveSettings(Settings):
    """All settings of `pretrain_cbcl.py`, with the flags of one objective."""

    choice: ClassVar[str] = "objective"

    objective: Objective
    encoder: EncoderSettings
    data: settings.DataSettings
    synonyms: SynonymSettings
    training: TrainingSettings
    files: FileSettings
    run: RunSettings

    @classmethod
    def kinds(cls) -> Mapping[str, Callable[[], type[Self]]]:
        """The settings with each objective."""
        return {name: partial(cast(Callable[[str], type[Self]], _with_objective), name) for name in OBJECTIVES}

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        """Raises `UserError` for settings that exclude each other, or that one needs of another."""
        if self.objective.in_batch and self.training.batch_size < 2:
            raise UserError("--batch-size 1: a contrastive batch needs a second row for its in-batch negatives")
        self.objective.check(self)
        return self


@cache
def _with_objective(name: str) -> type[ContrastiveSettings]:
    kind = resolve_name(OBJECTIVES[name])
    return create_model("ContrastiveSettings", __base__=ContrastiveSettings, objective=(kind, ...))


PRESETS = read_presets(Path(__file__).with_name("presets.toml"))
