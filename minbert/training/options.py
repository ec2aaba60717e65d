"""The flags that both scripts share. Importing this module loads no torch."""

from dataclasses import dataclass
from typing import Any

from minbert.training.cli import flag


@dataclass(frozen=True)
class CommonSettings:
    """Where the encoder starts, how it is trained, and where the run lives."""

    weights: str = flag("bert-base-uncased", "starting weights: minilm, a folder, or a hub name", group="encoder")
    max_length: int = flag(
        128, "longest input in tokens (0: as many as the encoder has positions)", group="encoder", least=0
    )
    encoder_dropout: float | None = flag(
        None, "dropout inside the encoder (default: as its config says)", group="encoder", least=0, most=0.99
    )
    columns: str = flag(
        "", "what is what in a table of your own, such as sentence1=premise,sentence2=hypothesis,label=gold",
        group="data",
    )  # fmt: skip
    data: str = flag("", "folder with the data (default: $DATA_DIR, else data/)", group="data", place=True)

    limit: int = flag(0, "train on so many rows of each training set, drawn by seed (0: all)", group="data", least=0)

    epochs: int = flag(10, "passes over the largest training set", group="training", least=1)
    batch_size: int = flag(32, "examples in one update", group="training", least=1)
    max_steps: int = flag(
        0,
        "end after so many steps as if they were the whole run: --lr-schedule and --warmup span them, while --epochs "
        "still paces a curriculum (0: all epochs)",
        group="training",
        least=0,
    )
    lr: float | None = flag(None, "learning rate", group="training", least=0)
    lr_schedule: str = flag(
        "constant", "learning-rate schedule", group="training", choices=("constant", "linear", "cosine")
    )
    warmup: float = flag(0.0, "share of the steps in which the rate rises", group="training", least=0, most=1)
    weight_decay: float = flag(0.0, "decoupled decay of matrices and embeddings", group="training", least=0)
    clip: float = flag(1.0, "largest gradient norm (0: no clipping)", group="training", least=0)
    evaluate_every: int = flag(0, "steps between evaluations (0: each epoch's end)", group="training", least=0)
    patience: int = flag(0, "stop after so many evaluations without gain (0: never)", group="training", least=0)
    keep: str = flag(
        "best",
        "the encoder that a run leaves: that of its best evaluation, or of its last step",
        group="evaluation",
        choices=("best", "last"),
    )
    seed: int = flag(11711, "seed of everything random", group="training")
    precision: str = flag(
        "auto", "number format of the matrix products", group="training", choices=("auto", "fp32", "bf16")
    )

    synonyms: str = flag(
        "none",
        "WordNet synonyms (CBCL, section 4.4): 1 = any word, 2 = nouns and adjectives, both before training; "
        "3 = one adjective of each sentence in some batches, live",
        group="augmentation", choices=("none", "1", "2", "3"),
    )  # fmt: skip
    synonyms_stage: str = flag(
        "both", "the stage that is augmented, for flags that are given to both scripts alike",
        group="augmentation", choices=("pretrain", "finetune", "both"),
    )  # fmt: skip
    synonyms_p: float = flag(
        0.25, "probability: of a word (1, 2) or of a batch (3)", group="augmentation", least=0, most=1
    )
    synonyms_grow: bool = flag(
        False,
        "more synonyms from epoch to epoch, up to --synonyms-p (1, 2) or to 3 adjectives (3)",
        group="augmentation",
    )
    synonyms_senses: str = flag(
        "first",
        "first = synonyms from the usual senses of a word, which keep its meaning; all = from every sense in WordNet, "
        "and phrases: they reach two thirds more words",
        group="augmentation",
        choices=("first", "all"),
    )

    run_dir: str = flag("runs/run", "where the run lives", group="run", place=True)
    resume: bool = flag(
        False, "go on from the newest checkpoint, or start where there is none", group="run", place=True
    )
    save_every: int = flag(
        0, "checkpoint every so many steps, beside the one after each evaluation", group="run", least=0, place=True
    )
    keep_checkpoints: bool = flag(
        False,
        "keep the optimizer's state and both checkpoints when the run is finished; else the model alone is kept",
        group="run",
        place=True,
    )
    log_every: int = flag(
        50,
        "steps between two rows of metrics.jsonl; without a terminal a line is printed with each, and each minute",
        group="run",
        least=1,
        place=True,
    )
    use_gpu: bool = flag(False, "demand a CUDA device (one is used anyway where there is one)", group="run", place=True)

    def idle(self) -> list[str]:
        """A sentence for settings with which nothing is learnt."""
        return ["--lr 0: nothing is learnt, the weights stay as they are"] if self.rate == 0 else []

    def without_synonyms(self, given: dict[str, Any], stage: str) -> dict[str, str]:
        """Flags about synonyms that have no effect in a stage, and what disables them."""
        names = [name for name in given if name.startswith("synonyms_")]
        if self.synonyms == "none":
            return dict.fromkeys(names, "--synonyms none")
        if self.synonyms_stage not in (stage, "both"):
            others = [name for name in names if name != "synonyms_stage"]
            return dict.fromkeys(["synonyms", *others], f"--synonyms-stage {self.synonyms_stage}")
        return {}

    @property
    def source(self) -> str:
        """Where the encoder's weights come from: a folder, that of a run's encoder for a run, or a name."""
        from minbert.weights import of_run  # late, as it imports torch

        return of_run(self.weights)

    @property
    def rate(self) -> float:
        """The learning rate."""
        assert self.lr is not None
        return self.lr
