"""The settings that all commands of stage one have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from minbert.errors import UserError
from minbert.train import settings
from minbert.train.settings import RUN_HELP, DataSettings, Settings, flag, require_range
from tasks.augment.synonyms import SynonymFileSettings, SynonymSettings
from tasks.presets import CBCL_RUN

NO_PAIRS = "none"
"""The value of `--sts-dev` without scored pairs."""
TASK = "nli"
"""The name of stage one's only task in plans, metrics and random counters; another one would change every order."""


@dataclass(frozen=True)
class EncoderSettings(settings.EncoderSettings):
    """The encoder that training starts from, and how its vectors are read."""

    max_length: int = flag(32, "longest sentence in tokens (0: as many as the encoder has positions)")


@dataclass(frozen=True)
class ContrastiveEncoderSettings(EncoderSettings):
    """The encoder that training starts from, and SimCSE's layer over [CLS]."""

    projection: Literal["none", "training", "kept"] = flag(
        "none",
        "a new layer tanh(W x + b) over [CLS]: training = in training only (unsupervised SimCSE); kept = also in "
        "evaluations, before training with its random weights, and saved as the pooler (supervised SimCSE)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection != "none" and self.pooler != "cls":
            raise UserError(f"--projection {self.projection} is over [CLS]: it needs --pooler cls")


@dataclass(frozen=True)
class TrainingSettings(settings.TrainingSettings):
    """Training, evaluation and the selection of the final weights."""

    metric: ClassVar[str] = "spearman"

    correct_bias: bool = flag(True, "Adam's bias correction; without it the first updates are larger (ConSERT's code)")
    chunk: int = flag(
        0,
        "encode a batch in chunks of N sentences, in two passes: the same gradient with less memory, but for other "
        "dropout masks (the extra pass of an adversarial view, if any, is not divided)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(self, "chunk", 0)


@dataclass(frozen=True)
class InBatchTrainingSettings(TrainingSettings):
    """Training with in-batch negatives."""

    unique_batches: bool = flag(
        True,
        "no anchor or positive is also a text of another row of a batch, where it would be contrasted with itself or "
        "with its own positive: the second row moves to another batch",
    )

    def require_negatives(self) -> None:
        """Raises `UserError` if a batch has no second row, whose texts are the in-batch negatives of the first."""
        if self.batch_size < 2:
            raise UserError("--batch-size 1: a contrastive batch needs a second row for its in-batch negatives")


@dataclass(frozen=True)
class FileSettings(SynonymFileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    sts_dev: str = flag(
        "course",
        "scored pairs for evaluation and selection: stsb = STS-B's own dev set in SentEval's layout; course = "
        "course/sts-dev.csv; zh = the mean over the available Chinese dev sets; none = no pairs, with --keep last; or "
        "a file",
        metavar="NAME|FILE",
    )


@dataclass(frozen=True)
class RunSettings(settings.RunSettings):
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag(CBCL_RUN, RUN_HELP, metavar="DIR")


class StageOneSettings(Settings):
    """The groups that every command has. A command adds its own, and lists all of them in the order of its help."""

    encoder: EncoderSettings
    data: DataSettings
    synonyms: SynonymSettings
    training: TrainingSettings
    files: FileSettings
    run: RunSettings

    def __post_init__(self) -> None:
        if self.files.sts_dev == NO_PAIRS and self.training.selects_by_dev:
            raise UserError(
                "--sts-dev none and --keep best or --patience exclude each other: without pairs use --keep last and "
                "--patience 0"
            )

    def check_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for a flag that has no effect."""
        self.synonyms.check_overrides(overrides)
