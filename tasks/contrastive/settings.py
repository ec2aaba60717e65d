"""Settings of the first stage. Importing this module loads no torch."""

from dataclasses import dataclass
from typing import Any

from minbert.errors import UserError
from minbert.training.cli import flag
from minbert.training.options import CommonSettings

POOLERS = ("pooler", "cls", "mean", "max", "avg-first-last", "avg-static-last", "avg-last-two")


@dataclass(frozen=True)
class ContrastiveSettings(CommonSettings):
    """Everything `pretrain_cbcl.py` can be told."""

    run_dir: str = flag("runs/cbcl", "where the run lives", group="run", place=True)
    lr: float | None = flag(2e-5, "learning rate", group="training", least=0)
    max_length: int = flag(
        64, "longest sentence in tokens (0: as many as the encoder has positions)", group="encoder", least=0
    )
    pooler: str = flag("pooler", "how hidden states become one vector", group="encoder", choices=POOLERS)

    triplets: str = flag("", "in place of nli/nli_for_simcse.csv or nli/nli-triplets.csv", group="data", place=True)
    sts_dev: str = flag("", "in place of course/sts-dev.csv, which chooses the best epoch", group="data", place=True)

    temperature: float = flag(0.05, "temperature of NT-Xent", group="contrastive", least=1e-4)
    order: str = flag(
        "curriculum",
        "curriculum = easy triplets first, by the starting encoder; none = all from the first epoch",
        group="contrastive",
        choices=("curriculum", "none"),
    )
    margin: float = flag(0.2, "margin between easy and semi-hard triplets", group="contrastive", least=0)
    power: float = flag(
        0.5, "pacing: (epoch/epochs)^power of the triplets are eligible (0.5 root, 1 linear, 2 quadratic)",
        group="contrastive", least=0,
    )  # fmt: skip

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """A sentence for every given flag that has no effect."""
        if self.order == "curriculum":
            return []
        return [f"--{name} has no effect with --order none" for name in ("margin", "power") if name in given]

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise UserError("--batch-size 1: a contrastive batch needs a second triplet for its in-batch negatives")
