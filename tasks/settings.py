"""Settings and presets of multitask fine-tuning (stage two). Importing this module does not import torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator

from minbert.errors import UserError
from minbert.files import expand_user
from minbert.train import settings
from minbert.train.settings import Settings, SettingsGroup, flag, names_in, read_presets
from tasks.augment import SynonymSettings

LEADERBOARD = ("sst", "quora", "sts")
"""The tasks of the course's leaderboard; its overall score is the mean of their normalised scores."""
_FULL_MODEL_LR, _LAST_LAYERS_LR = 1e-5, 1e-3


class EncoderSettings(settings.EncoderSettings):
    """The encoder that training starts from."""

    encoder: str = flag(
        "", "a run of either script or an encoder folder, in place of --weights", metavar="DIR", common=True
    )
    sentence_encoder: str = flag(
        "",
        "the encoder that reads the sentences of --pairs joint by themselves, and is not trained: minilm, a folder or "
        "a run (default: a copy of the starting encoder)",
        metavar="NAME|DIR",
    )

    @property
    def source(self) -> str:
        """The source of the encoder's weights: a folder, a run, or a name. Raises `UserError` for a missing folder."""
        if self.encoder and not expand_user(self.encoder).is_dir():
            raise UserError(
                f"--encoder {self.encoder}: no such folder; pretrain_cbcl.py writes one into its run folder"
            )
        return self.encoder or super().source

    @property
    def source_flag(self) -> str:
        """The flag that names the source."""
        return "--encoder" if self.encoder else super().source_flag


class DataSettings(settings.DataSettings):
    """Which data are read, and how."""

    tasks: str = flag(
        ",".join(LEADERBOARD),
        "the tasks to train, in the order of the round: sst, quora (or para), sts, or your own",
        metavar="NAMES",
        common=True,
    )

    @field_validator("tasks")
    @classmethod
    def _by_their_names(cls, tasks: str) -> str:
        """Replace short names, and names in other letter case, by the names of tasks."""
        from tasks.registry import aliases  # here because it imports torch, which would delay `--help`

        names = aliases()
        return ",".join(names.get(name.lower(), name) for name in names_in(tasks))


class ModelSettings(SettingsGroup):
    """How pairs are encoded, how a text becomes one vector, and which parameters are trained."""

    pairs: Literal["cross", "paper", "bi", "joint"] = flag(
        "cross",
        "how a pair is read: cross = [CLS] a [SEP] b [SEP] with types 0/1; paper = [CLS] a [SEP] [CLS] b [SEP]; "
        "bi = two vectors u, v, and the head over [u; v; |u-v|]; joint = the head over the vector of cross and "
        "[|u-v|; u*v; cosine] of --sentence-encoder",
        common=True,
    )
    hidden_dropout_prob: float = flag(0.3, "dropout in the heads", ge=0, le=0.99, common=True)
    fine_tune_mode: Literal["last-linear-layer", "full-model"] = flag("full-model", "what is trained")
    option: Literal["", "pretrain", "finetune"] = flag(
        "", "older form of --fine-tune-mode: pretrain = last-linear-layer, finetune = full-model"
    )

    @model_validator(mode="before")
    @classmethod
    def _option(cls, values: Any) -> Any:
        """Translate `--option`, the older name of `--fine-tune-mode`."""
        modes = {"pretrain": "last-linear-layer", "finetune": "full-model"}
        mode = modes.get(str(values.get("option", "")).strip().lower())
        return values | {"fine_tune_mode": mode} if mode else values


class ScheduleSettings(SettingsGroup):
    """Task sampling and gradient accumulation."""

    sampling: Literal["round-robin", "hybrid", "sequential", "proportional"] = flag(
        "round-robin",
        "order of the tasks: round-robin restarts small sets until the largest is used up; hybrid drops a set that "
        "is used up; sequential trains one task to its last epoch, then the next; proportional takes each task in "
        "proportion to a power of its size",
        common=True,
    )
    power: float = flag(0.5, "the power of proportional sampling", ge=0)
    accumulate: int = flag(1, "gradient accumulation: parts of a batch, to save memory", ge=1)


class TrainingSettings(settings.TrainingSettings):
    """Training, evaluation and model selection."""

    metric: ClassVar[str] = "dev norm"

    lr: float = flag(_FULL_MODEL_LR, "learning rate (with --fine-tune-mode last-linear-layer 1e-3)", ge=0, common=True)
    head_lr: float = flag(0.0, "learning rate of the heads, under the same schedule; 0: that of the encoder", ge=0)
    r_drop: float = flag(
        0.0,
        "R-Drop: two passes a step, and X times the divergence of their outputs beside the mean of their losses; the "
        "paper takes the sum, so X is half of its alpha (0: one pass)",
        ge=0,
    )


class FileSettings(settings.FileSettings):
    """Paths of data and prediction files. A run is identified by the data's hashes, not by these paths."""

    sst_train: str = flag("", "in place of ids-sst-train.csv", metavar="FILE")
    sst_dev: str = flag("", "in place of ids-sst-dev.csv", metavar="FILE")
    sst_test: str = flag("", "in place of ids-sst-test-student.csv", metavar="FILE")
    para_train: str = flag("", "in place of quora-train.csv", metavar="FILE")
    para_dev: str = flag("", "in place of quora-dev.csv", metavar="FILE")
    para_test: str = flag("", "in place of quora-test-student.csv", metavar="FILE")
    sts_train: str = flag("", "in place of sts-train.csv", metavar="FILE")
    sts_dev: str = flag("", "in place of sts-dev.csv", metavar="FILE")
    sts_test: str = flag("", "in place of sts-test-student.csv", metavar="FILE")
    sst_dev_out: str = flag("", "in place of RUN/predictions/sst-dev-output.csv", metavar="FILE")
    sst_test_out: str = flag("", "in place of RUN/predictions/sst-test-output.csv", metavar="FILE")
    para_dev_out: str = flag("", "in place of RUN/predictions/para-dev-output.csv", metavar="FILE")
    para_test_out: str = flag("", "in place of RUN/predictions/para-test-output.csv", metavar="FILE")
    sts_dev_out: str = flag("", "in place of RUN/predictions/sts-dev-output.csv", metavar="FILE")
    sts_test_out: str = flag("", "in place of RUN/predictions/sts-test-output.csv", metavar="FILE")


class RunSettings(settings.RunSettings):
    """The run folder, logging and resuming."""

    run_dir: str = flag(
        "runs/multitask", "folder of the run: new, or empty, except with --resume", metavar="DIR", common=True
    )


class MultitaskSettings(Settings):
    """All settings of `multitask_train.py`."""

    encoder: EncoderSettings
    data: DataSettings
    model: ModelSettings
    synonyms: SynonymSettings
    schedule: ScheduleSettings
    training: TrainingSettings
    files: FileSettings
    run: RunSettings

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        """Check combinations of settings (`UserError`), and set the default learning rate of `last-linear-layer`."""
        if self.training.patience and self.schedule.sampling == "sequential":
            raise UserError("--patience and --sampling sequential exclude each other: later tasks might never begin")
        if self.encoder.sentence_encoder and self.model.pairs != "joint":
            raise UserError("--sentence-encoder belongs to --pairs joint: no other form of pairs reads its vectors")
        if self.training.batch_size < self.schedule.accumulate:
            raise UserError(
                f"--accumulate {self.schedule.accumulate} is more than --batch-size {self.training.batch_size}"
            )
        if self.model.fine_tune_mode == "full-model" or "lr" in self.training.model_fields_set:
            return self
        return self.model_copy(update={"training": self.training.model_copy(update={"lr": _LAST_LAYERS_LR})})

    def check(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for flags that exclude each other."""
        if "encoder" in overrides and "weights" in overrides:
            raise UserError("--encoder and --weights exclude each other: both say where the encoder starts")
        if "option" in overrides and "fine_tune_mode" in overrides:
            raise UserError("--option and --fine-tune-mode exclude each other: the first is the older name")


PRESETS = read_presets(Path(__file__).with_name("presets.toml"))
