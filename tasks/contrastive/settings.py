"""Settings that the commands of stage one share."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from minbert.errors import UserError
from minbert.train import settings
from minbert.train.settings import flag, require_range
from tasks.augment.synonyms import SynonymSettings

__all__ = ["DataSettings", "EncoderSettings", "FileSettings", "RunSettings", "SynonymSettings", "TrainingSettings"]

DataSettings = settings.DataSettings


@dataclass(frozen=True)
class EncoderSettings(settings.EncoderSettings):
    """The encoder that training starts from, and how its vectors are read."""

    max_length: int = flag(32, "longest sentence in tokens (0: as many as the encoder has positions)")
    projection: Literal["none", "training", "kept"] = flag(
        "none",
        "a new layer tanh(W x + b) over [CLS]: training = in training only (unsupervised SimCSE); kept = evaluated"
        " with the encoder and saved as its pooler (supervised SimCSE)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection != "none" and self.pooler != "cls":
            raise UserError(f"--projection {self.projection} is over [CLS]: it needs --pooler cls")


@dataclass(frozen=True)
class TrainingSettings(settings.TrainingSettings):
    """Training, evaluation and the selection of the final weights."""

    metric: ClassVar[str] = "spearman"

    chunk: int = flag(
        0,
        "encode a batch in chunks of N sentences, in two passes: the same gradient with less memory (the extra pass of "
        "an adversarial view is not divided)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(self, "chunk", 0)


@dataclass(frozen=True)
class FileSettings(settings.FileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    sts_dev: str = flag(
        "course",
        "scored pairs for evaluation and selection: stsb = STS-B's own dev set in SentEval's layout; course = "
        "course/sts-dev.csv; zh = the mean over the available Chinese dev sets; or a file",
        metavar="NAME|FILE",
    )


@dataclass(frozen=True)
class RunSettings(settings.RunSettings):
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag("runs/cbcl", "folder of the run: new, or empty, except with --resume", metavar="DIR")


def require_negatives(training: TrainingSettings) -> None:
    """Raises `UserError` if a batch has no second row, whose texts are the in-batch negatives of the first."""
    if training.batch_size < 2:
        raise UserError("--batch-size 1: a contrastive batch needs a second row for its in-batch negatives")
