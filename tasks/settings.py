"""Settings and presets of the second stage. Importing this module loads no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.errors import UserError, one_of
from minbert.training.cli import Presets, flag, spelled
from minbert.training.options import CommonSettings

SAMPLING = ("round-robin", "hybrid", "sequential", "proportional")
PAIRS = ("cross", "paper", "bi")
LEADERBOARD = ("sst", "quora", "sts")
"""The tasks that the course's leaderboard takes predictions for; its overall score is the mean of their parts."""
_SUFFIXES = ("train", "dev", "test", "dev_out", "test_out")  # of the flags that name a task's files


@dataclass(frozen=True)
class MultitaskSettings(CommonSettings):
    """Everything `multitask_train.py` can be told."""

    encoder: str = flag("", "a run of pretrain_cbcl.py or an encoder folder, in place of --weights", group="encoder")
    run_dir: str = flag("runs/multitask", "where the run lives", group="run", place=True)
    lr: float | None = flag(
        None, "learning rate (default: 1e-5 for the full model, 1e-3 for the last layers)", group="training", least=0
    )

    tasks: str = flag(
        ",".join(LEADERBOARD), "the tasks to train, in the order of the round; para is quora", group="data"
    )
    sst_train: str = flag("", "in place of ids-sst-train.csv", group="data", place=True)
    sst_dev: str = flag("", "in place of ids-sst-dev.csv", group="data", place=True)
    sst_test: str = flag("", "in place of ids-sst-test-student.csv", group="data", place=True)
    para_train: str = flag("", "in place of quora-train.csv", group="data", place=True)
    para_dev: str = flag("", "in place of quora-dev.csv", group="data", place=True)
    para_test: str = flag("", "in place of quora-test-student.csv", group="data", place=True)
    sts_train: str = flag("", "in place of sts-train.csv", group="data", place=True)
    sts_dev: str = flag("", "in place of sts-dev.csv", group="data", place=True)
    sts_test: str = flag("", "in place of sts-test-student.csv", group="data", place=True)

    pairs: str = flag(
        "cross",
        "how a pair is read: cross = [CLS] a [SEP] b [SEP] with types 0/1; paper = [CLS] a [SEP] [CLS] b [SEP]; "
        "bi = two vectors u, v, and the head over [u; v; |u-v|]",
        group="model",
        choices=PAIRS,
    )
    hidden_dropout_prob: float = flag(0.3, "dropout in the heads", group="model", least=0, most=0.99)
    fine_tune_mode: str = flag(
        "full-model", "what is trained", group="model", choices=("last-linear-layer", "full-model")
    )
    option: str = flag("", "the older name of --fine-tune-mode", group="model", choices=("", "pretrain", "finetune"))

    sampling: str = flag(
        "round-robin",
        "which task comes when: round-robin restarts small sets until the largest is through; hybrid drops a set that "
        "is through; sequential trains one task to its last epoch, then the next; proportional takes each task in "
        "proportion to a power of its size",
        group="schedule",
        choices=SAMPLING,
    )
    power: float = flag(0.5, "the power of proportional sampling", group="schedule", least=0)
    accumulate: int = flag(1, "parts an update's examples are computed in, to save memory", group="schedule", least=1)
    sst_dev_out: str = flag("", "in place of RUN/predictions/sst-dev-output.csv", group="output", place=True)
    sst_test_out: str = flag("", "in place of RUN/predictions/sst-test-output.csv", group="output", place=True)
    para_dev_out: str = flag("", "in place of RUN/predictions/para-dev-output.csv", group="output", place=True)
    para_test_out: str = flag("", "in place of RUN/predictions/para-test-output.csv", group="output", place=True)
    sts_dev_out: str = flag("", "in place of RUN/predictions/sts-dev-output.csv", group="output", place=True)
    sts_test_out: str = flag("", "in place of RUN/predictions/sts-test-output.csv", group="output", place=True)

    def __post_init__(self) -> None:
        if self.patience and self.sampling == "sequential":
            raise UserError("--patience and --sampling sequential exclude each other: later tasks might never begin")
        if self.batch_size < self.accumulate:
            raise UserError(f"--accumulate {self.accumulate} is more than --batch-size {self.batch_size}")
        if self.option and (self.option == "finetune") != (self.fine_tune_mode == "full-model"):
            object.__setattr__(
                self, "fine_tune_mode", "full-model" if self.option == "finetune" else "last-linear-layer"
            )
        if self.chosen != list(LEADERBOARD):  # else torch, which the tasks' words load, can wait
            from tasks.registry import shorts

            words = shorts()
            names = [words.get(name, name) for name in self.chosen]
            object.__setattr__(self, "tasks", self.tasks if names == self.chosen else ",".join(names))

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """A sentence for every given flag that has no effect; `UserError` for flags that exclude each other."""
        if "encoder" in given and "weights" in given:
            raise UserError("--encoder and --weights exclude each other: both say where the encoder starts")
        if "option" in given and "fine_tune_mode" in given:
            raise UserError("--option and --fine-tune-mode exclude each other: the first is the older name")
        sentences = self._of_absent_tasks(given)
        without = self.without_synonyms(given, "finetune")
        sentences += [f"{spelled(name, given[name])} has no effect with {why}" for name, why in without.items()]
        if "sampling" in given and len(self.chosen) == 1:
            sentences.append(f"--sampling {self.sampling} has no effect on a single task")
        if "pairs" in given and not self._has_pairs:
            sentences.append(f"--pairs {self.pairs} has no effect: no task of --tasks {self.tasks} has pairs")
        if "power" in given and self.sampling != "proportional":
            sentences.append(f"--power {self.power} has no effect with --sampling {self.sampling}")
        elif "power" in given and len(self.chosen) == 1:
            sentences.append(f"--power {self.power} has no effect on a single task")
        if "encoder_dropout" in given and self.fine_tune_mode == "last-linear-layer":
            sentences.append("--encoder-dropout has no effect with --fine-tune-mode last-linear-layer")
        return sentences + self.idle()

    def _of_absent_tasks(self, given: dict[str, Any]) -> list[str]:
        outputs = [value for name, value in given.items() if name.endswith("_out")]
        doubled = [path for path in outputs if outputs.count(path) > 1]
        if doubled:
            raise UserError(f"two of the --*_out flags name the same file, {doubled[0]}")
        from tasks.registry import shorts  # late, as it imports torch, for which `--help` does not wait

        absent = [short for short, name in shorts().items() if name not in self.chosen]
        flags = {f"{short}_{suffix}" for short in absent for suffix in _SUFFIXES}
        return [f"--{name} has no effect: --tasks {self.tasks} lacks its task" for name in given if name in flags]

    @property
    def _has_pairs(self) -> bool:
        """Whether a chosen task reads pairs; a task that is not known may do so, and is refused elsewhere."""
        from tasks.registry import TASKS

        return any(name not in TASKS or TASKS[name]().columns == 2 for name in self.chosen)

    def columns_of(self, task: str) -> str:
        """What `--columns` says of a task's files: all of it, or what follows `sst:`, `para:` or `sts:`."""
        from tasks.registry import shorts

        parts = dict(part.strip().partition(":")[::2] for part in self.columns.split(";") if ":" in part)
        known = shorts()
        unsaid = [part for part in self.columns.split(";") if parts and ":" not in part]
        if unsaid:
            raise UserError(f"--columns: {unsaid[0].strip()!r} does not say of which task it is, such as sst:...")
        parts = {one_of(short, known, "--columns"): said for short, said in parts.items()}
        if self.columns and not parts and len(self.chosen) > 1:
            raise UserError(f"--columns {self.columns}: say of which task, such as sst:{self.columns}")
        return next((said for short, said in parts.items() if known[short] == task), "") if parts else self.columns

    @property
    def selection(self) -> dict[str, Any]:
        """For the manifest: which model is kept, by what, and whether dev sets have a part in it."""
        by_dev_pairs = self.keep == "best" or self.patience > 0
        return {"keep": self.keep, "metric": "dev norm", "patience": self.patience, "by_dev_pairs": by_dev_pairs}

    @property
    def chosen(self) -> list[str]:
        """The names in `--tasks`."""
        return [name.strip() for name in self.tasks.split(",") if name.strip()]

    @property
    def source(self) -> str:
        """Where the encoder's weights come from: a folder or a name."""
        if not self.encoder:
            return super().source
        if not Path(self.encoder).expanduser().is_dir():
            raise UserError(
                f"--encoder {self.encoder}: no such folder; pretrain_cbcl.py writes one into its run folder"
            )
        from minbert.weights import of_run  # late, as it imports torch

        return of_run(self.encoder)

    @property
    def rate(self) -> float:
        """The learning rate, by what is trained unless it is given."""
        if self.lr is not None:
            return self.lr
        return 1e-5 if self.fine_tune_mode == "full-model" else 1e-3


PRESETS: Presets = {
    "default": ("cross-encoder pairs, round robin with restarts", {}),
    "paper": (
        "CBCL: its pair input, its head dropout of 0.5, lr 1e-5, 10 epochs, no clipping",
        {"pairs": "paper", "hidden_dropout_prob": 0.5, "lr": 1e-5, "epochs": 10, "batch_size": 32, "clip": 0.0},
    ),
    "sample": (
        "for data/sample and the packaged weights: done in a minute",
        {"weights": "minilm", "epochs": 6, "batch_size": 16, "lr": 2e-4, "lr_schedule": "linear", "warmup": 0.1},
    ),
    "minilm": (
        "the best of a few settings tried on the dev sets for --weights minilm",
        {
            "weights": "minilm",
            "sampling": "proportional",
            "power": 0.5,
            "epochs": 3,
            "evaluate_every": 500,
            "lr": 5e-5,
            "lr_schedule": "linear",
            "warmup": 0.1,
            "hidden_dropout_prob": 0.1,
            "max_length": 0,
        },
    ),
}
