"""Settings of multitask fine-tuning (stage two)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from minbert.errors import UserError
from minbert.files import expand_user, read_optional_json
from minbert.train import settings
from minbert.train.settings import Parsed, Settings, flag, names_in, refuse_flags, require_range
from tasks.augment.synonyms import SynonymFileSettings, SynonymSettings
from tasks.manifests import fine_tuned
from tasks.presets import CBCL_RUN, PRESETS

LEADERBOARD = ("sst", "quora", "sts")
"""The tasks of the course's leaderboard; its overall score is the mean of their normalised scores."""
_HEADS_ONLY_LR = 1e-3


@dataclass(frozen=True)
class EncoderSettings(settings.EncoderSettings):
    """The encoder that training starts from."""

    encoder: str = flag(
        "",
        f"a run of stage one or an encoder folder, in place of --weights (default: {CBCL_RUN} if it is there "
        "and the preset names no weights)",
        metavar="DIR",
    )
    from_run: str = flag(
        "",
        "go on with the encoder and the heads of a finished run of this command, as a new run",
        metavar="RUN",
        aliases=["--from"],
    )
    sentence_encoder: str = flag(
        "",
        "the encoder that reads the sentences of --pairs joint by themselves, and is not trained: minilm, a folder or "
        "a run (default: a copy of the starting encoder)",
        metavar="NAME|DIR",
    )

    def starting_point(self) -> tuple[str, str]:
        """The flag that names the encoder that training starts from, and its value."""
        if self.from_run:
            return "--from", self.from_run
        if self.encoder:
            return "--encoder", self.encoder
        return "--weights", self.weights


@dataclass(frozen=True)
class DataSettings(settings.DataSettings):
    """Which data are read, and how."""

    tasks: str = flag(
        ",".join(LEADERBOARD),
        "the tasks to train, in the order of the round: sst, quora (or para), sts, or TOML files of your own",
        metavar="NAMES",
    )


@dataclass(frozen=True)
class ModelSettings:
    """How pairs are encoded, how a text becomes one vector, and which parameters are trained."""

    pairs: Literal["cross", "paper", "bi", "joint"] = flag(
        "cross",
        "how a pair is read: cross = [CLS] a [SEP] b [SEP] with types 0/1; paper = [CLS] a [SEP] [CLS] b [SEP]; "
        "bi = two vectors u, v, and the head over [u; v; |u-v|]; joint = the head over the vector of cross and "
        "[|u-v|; u*v; cosine] of --sentence-encoder",
    )
    hidden_dropout_prob: float = flag(0.3, "dropout in the heads")
    fine_tune_mode: Literal["last-linear-layer", "full-model"] = flag("full-model", "what is trained")
    option: Literal["", "pretrain", "finetune"] = flag(
        "",
        "older form of --fine-tune-mode: pretrain = last-linear-layer, finetune = full-model",
        metavar="{pretrain,finetune}",
    )

    def __post_init__(self) -> None:
        require_range(self, "hidden_dropout_prob", 0, 0.99)

    @property
    def freezes_encoder(self) -> bool:
        """Whether the heads alone are trained."""
        if self.option:
            return self.option == "pretrain"
        return self.fine_tune_mode == "last-linear-layer"


@dataclass(frozen=True)
class ScheduleSettings:
    """Task sampling and gradient accumulation."""

    sampling: Literal["round-robin", "hybrid", "sequential", "proportional"] = flag(
        "round-robin",
        "order of the tasks: round-robin restarts small sets until the largest is used up; hybrid drops a set that "
        "is used up; sequential trains one task to its last epoch, then the next; proportional takes each task in "
        "proportion to a power of its size",
    )
    power: float = flag(0.5, "the power of proportional sampling")
    accumulate: int = flag(1, "gradient accumulation: parts of a batch, to save memory")

    def __post_init__(self) -> None:
        require_range(self, "power", 0)
        require_range(self, "accumulate", 1)


@dataclass(frozen=True)
class TrainingSettings(settings.TrainingSettings):
    """Training, evaluation and model selection."""

    metric: ClassVar[str] = "dev norm"

    lr: float = flag(
        1e-5,
        f"learning rate (with --fine-tune-mode last-linear-layer {_HEADS_ONLY_LR:g}, unless the preset has one)",
    )
    head_lr: float = flag(0.0, "learning rate of the heads, under the same schedule; 0: that of the encoder")
    r_drop: float = flag(
        0.0,
        "R-Drop: two passes a step, and X times the divergence of their outputs beside the mean of their losses; the "
        "paper takes the sum, so X is half of its alpha (0: one pass)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_range(self, "head_lr", 0)
        require_range(self, "r_drop", 0)


@dataclass(frozen=True)
class FileSettings(SynonymFileSettings):
    """Paths of data and prediction files. The hashes of the data identify a run, not their paths."""

    new_task: str = flag(
        "", "write a task's TOML file from the columns of a data file of your own, and exit", metavar="FILE"
    )
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


@dataclass(frozen=True)
class RunSettings(settings.RunSettings):
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag("runs/multitask", settings.RUN_HELP, metavar="DIR")


@dataclass(frozen=True)
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

    def __post_init__(self) -> None:
        if self.training.patience and self.schedule.sampling == "sequential":
            raise UserError("--patience and --sampling sequential exclude each other: later tasks might never begin")
        encoder = self.encoder.encoder
        if encoder and not expand_user(encoder).is_dir():
            raise UserError(f"--encoder {encoder}: no such folder; pretrain_cbcl.py writes one into its run folder")

    def identity(self) -> dict[str, Any]:
        """As of every command, but of a task's TOML file only the name counts: its content is compared by its hash."""
        names = [Path(name).name for name in names_in(self.data.tasks)]
        return super().identity() | {"tasks": ",".join(names)}

    def check_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for flags that exclude each other, or that have no effect."""
        self.synonyms.check_overrides(overrides)
        if self.schedule.sampling != "proportional":
            refuse_flags(["power"], overrides, "belongs to --sampling proportional")
        starts = [overrides.get("from_run"), overrides.get("encoder"), "weights" in overrides]
        if sum(map(bool, starts)) > 1:
            raise UserError("--from, --encoder and --weights exclude each other: each says where the encoder starts")
        if "option" in overrides:
            refuse_flags(["fine_tune_mode"], overrides, "excludes --option, its older form")


def resolve_defaults(parsed: Parsed[MultitaskSettings]) -> Parsed[MultitaskSettings]:
    """The settings with the defaults that depend on others.

    Training starts from the encoder that stage one has left, if it is there, and if neither a flag nor the preset names
    another; `--encoder ""` is such a flag. The heads alone are trained with a higher learning rate. With `--from` pairs
    are read as by the heads of that run, and its tasks are trained, unless `--tasks` names others. Raises `UserError`
    if it is no finished run, and for a sentence encoder that the pairs do not read.
    """
    chosen = {*parsed.overrides, *PRESETS["multitask_train.py"][parsed.preset].values}
    changes: dict[str, Any] = {}
    from_run = parsed.settings.encoder.from_run
    if from_run:
        manifest, _ = fine_tuned(expand_user(from_run))
        recorded = manifest["all_settings"]
        pairs = parsed.overrides.get("pairs", recorded["pairs"])
        if pairs != recorded["pairs"]:
            raise UserError(f"--from {from_run}: its heads read pairs by --pairs {recorded['pairs']}, not {pairs}")
        changes["pairs"] = pairs
        if "tasks" not in chosen:
            changes["tasks"] = recorded["tasks"]
    elif not chosen & {"encoder", "weights"}:
        run = parsed.settings.run
        started = read_optional_json(expand_user(run.run_dir) / "manifest.json") if run.resume else {}
        if started:
            # a resumed run keeps the encoder that it began with, even if stage one has written another since
            changes["encoder"] = started["all_settings"].get("encoder", "")
        elif expand_user(CBCL_RUN).is_dir():
            # an unfinished stage one is an error, and no reason to start from --weights
            changes["encoder"] = CBCL_RUN
    if from_run or changes.get("encoder", parsed.settings.encoder.encoder):
        changes["weights"] = ""  # they are not what training starts from
    if parsed.settings.model.freezes_encoder:
        # the heads alone are trained, at their own rate if they have one
        head_lr = parsed.settings.training.head_lr
        if head_lr:
            changes["lr"] = head_lr
        elif "lr" not in chosen:
            changes["lr"] = _HEADS_ONLY_LR
    settings = parsed.settings.changed(**changes)
    if settings.encoder.sentence_encoder and settings.model.pairs != "joint":
        raise UserError("--sentence-encoder belongs to --pairs joint: no other form of pairs reads its vectors")
    return replace(parsed, settings=settings)
