"""The settings that both scripts share. This module does not import torch."""

from typing import Literal

from minbert.training.settings import Record, flag


class EncoderSettings(Record):
    """The initial encoder."""

    weights: str = flag("bert-base-uncased", "starting weights: minilm, a folder, a run, or a hub name")
    max_length: int = flag(128, "longest input in tokens (0: as many as the encoder has positions)", ge=0)
    encoder_dropout: float | None = flag(
        None, "dropout inside the encoder (default: the rates of its config)", ge=0, le=0.99
    )

    @property
    def source(self) -> str:
        """The source of the initial weights: a folder, a run's `encoder/` folder, or a name."""
        from minbert.weights import of_run  # imported here, as it imports torch

        return of_run(self.weights)


class DataSettings(Record):
    """Which columns and how many rows of the data are read."""

    columns: str = flag(
        "", "column names of your own data file, such as sentence1=premise,sentence2=hypothesis,label=gold"
    )
    limit: int = flag(0, "train on N rows of each training set, drawn by seed (0: all)", ge=0)


class TrainingSettings(Record):
    """Training, evaluation and the selection of the final weights."""

    epochs: int = flag(10, "passes over the largest training set", ge=1)
    batch_size: int = flag(32, "examples in one update", ge=1)
    max_steps: int = flag(
        0,
        "stop after N steps, as if they were the whole run: --lr-schedule and --warmup span them, while --epochs "
        "still paces a curriculum (0: all epochs)",
        ge=0,
    )
    lr: float = flag(2e-5, "learning rate", ge=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = flag("constant", "learning-rate schedule")
    warmup: float = flag(0.0, "fraction of the steps with linear warm-up", ge=0, le=1)
    weight_decay: float = flag(0.0, "decoupled weight decay of matrices and embeddings", ge=0)
    clip: float = flag(1.0, "largest gradient norm (0: no clipping)", ge=0)
    evaluate_every: int = flag(0, "steps between evaluations (0: each epoch's end)", ge=0)
    patience: int = flag(0, "early stopping patience, in evaluations (0: never stop early)", ge=0)
    keep: Literal["best", "last"] = flag(
        "best", "the encoder to keep: that of the best evaluation, or of the last step"
    )
    seed: int = flag(11711, "seed of everything random")
    precision: Literal["auto", "fp32", "bf16"] = flag("auto", "number format of the matrix products")

    def idle(self) -> list[str]:
        """Warnings for settings with which nothing is trained."""
        return ["--lr 0: nothing is trained, the weights stay as they are"] if self.lr == 0 else []


class FileSettings(Record):
    """Paths of the data. They are not part of a run's identity; the hashes of the files are."""

    data: str = flag("", "folder with the data (default: $DATA_DIR, else data/)")


class RunSettings(Record):
    """The run's folder, its checkpoints and its log."""

    run_dir: str = flag("runs/run", "folder of the run")
    resume: bool = flag(False, "resume from the newest checkpoint, or start if there is none")
    save_every: int = flag(0, "save a checkpoint every N steps, beside the one after each evaluation", ge=0)
    keep_checkpoints: bool = flag(
        False,
        "keep the optimizer's state and both checkpoints when the run is finished; else the model alone is kept",
    )
    log_every: int = flag(
        50,
        "steps between two rows of metrics.jsonl; without a terminal a line is printed with each, and each minute",
        ge=1,
    )
    use_gpu: bool = flag(False, "require a CUDA device (by default one is used if there is one)")
