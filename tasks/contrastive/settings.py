"""Settings of the first stage. Importing this module loads no torch."""

from dataclasses import dataclass
from typing import Any

from minbert.errors import UserError
from minbert.training.cli import flag, spelled
from minbert.training.options import CommonSettings

POOLERS = ("pooler", "cls", "mean", "max", "avg-first-last", "avg-static-last", "avg-last-two")
PROJECTIONS = ("none", "training", "kept")
TRIPLETS, PAIRS, TEXTS = "triplets", "pairs", "texts"
DATA = {
    "nt-xent": TRIPLETS, "triplet": TRIPLETS, "margin": TRIPLETS, "softmax": PAIRS, "joint": PAIRS,
    "views": TEXTS, "simcse": TEXTS,
}  # fmt: skip
"""Objective -> the data it trains on."""
IN_BATCH = ("nt-xent", "joint", "views", "simcse")
"""Objectives whose negatives are the other rows of the batch."""

OVER_TRIPLETS = ("accuracy", "loss")
"""Values of `--metric` that are numbers of the training triplets, not of the dev pairs."""

_BY_OBJECTIVE = {
    "temperature": (*IN_BATCH, "triplet", "margin"),  # the latter are judged by a frozen NT-Xent loss
    "directions": ("nt-xent",),
    "hard_negatives": ("nt-xent",),
    "hard_weight": ("nt-xent",),
    "mask_false_negatives": ("nt-xent",),
    "loss_margin": ("triplet", "margin"),
    "distance": ("triplet",),
    "alpha": ("joint",),
    "eda_weight": ("simcse",),
}
_NO_MODEL = ("length", "rarity")
_OF_THE_CURRICULUM = ("technique", "margin", "power", "pacing", "start", "scorer", "scorer_pooler")


def slug(name: str) -> str:
    """A dev set's name as numbers and files of a run have it."""
    return name.lower().replace("-", "_")


@dataclass(frozen=True)
class ContrastiveSettings(CommonSettings):
    """Everything `pretrain_cbcl.py` can be told."""

    run_dir: str = flag("runs/cbcl", "where the run lives", group="run", place=True)
    lr: float | None = flag(2e-5, "learning rate", group="training", least=0)
    max_length: int = flag(
        32, "longest sentence in tokens (0: as many as the encoder has positions)", group="encoder", least=0
    )
    pooler: str = flag("pooler", "how hidden states become one vector", group="encoder", choices=POOLERS)
    projection: str = flag(
        "none",
        "a new layer tanh(W x + b) over [CLS]: training = in training only (unsupervised SimCSE); kept = evaluated "
        "with the encoder and saved as its pooler (supervised SimCSE)",
        group="encoder",
        choices=PROJECTIONS,
    )

    triplets: str = flag(
        "", "in place of nli/nli_for_simcse.csv or nli/nli-triplets.csv: files of triplets, or of labelled NLI pairs "
        "(SNLI, MultiNLI, nli-pairs.tsv), several with commas between", group="data", place=True,
    )  # fmt: skip
    nli_pairs: str = flag(
        "", "in place of nli/nli-pairs.tsv, else SNLI's and MultiNLI's originals, for --objective softmax and joint: "
        "labelled NLI pairs, several files with commas between", group="data", place=True,
    )  # fmt: skip
    texts: str = flag(
        "", "unlabelled texts for --objective views and simcse: sts, sts-train, chinese, or files of one sentence a "
        "line, several with commas between", group="data",
    )  # fmt: skip
    keep_duplicates: bool = flag(False, "unlabelled texts as often as they stand in the files", group="data")
    sts_dev: str = flag(
        "course",
        "scored pairs to evaluate on and to choose the best encoder by: stsb = STS-B's own dev set in SentEval's "
        "layout; course = course/sts-dev.csv; zh = the Chinese dev sets that are there, of ATEC, BQ, LCQMC, PAWS-X and "
        "STS-B, by their mean; or a file",
        group="data",
        place=True,
    )
    per_premise: str = flag(
        "first", "triplets of one premise of NLI pairs: its first entailment with its first contradiction, the i-th "
        "with the i-th, or all with all", group="data", choices=("first", "zip", "cross"),
    )  # fmt: skip

    objective: str = flag(
        "nt-xent",
        "nt-xent = NT-Xent with hard negatives; triplet and margin = losses over distances; "
        "softmax = classification of NLI pairs (SBERT); views = two views of a text (ConSERT); joint = softmax and "
        "views; simcse = a text twice under dropout, and with punctuation (EdaCSE)",
        group="objective", choices=tuple(DATA),
    )  # fmt: skip
    temperature: float = flag(0.05, "temperature of NT-Xent", group="objective", least=1e-4)
    directions: str = flag(
        "one", "one = from the anchor to its positive; both = and back", group="objective", choices=("one", "both")
    )
    hard_negatives: bool = flag(True, "hard negatives among the candidates", group="objective")
    hard_weight: float = flag(0.0, "added to the logit of a row's own hard negative (SimCSE)", group="objective")
    mask_false_negatives: bool = flag(
        True, "leave candidates with the text or the premise of the row out of the loss", group="objective"
    )
    loss_margin: float = flag(1.0, "margin of the triplet and the margin loss", group="objective", least=1e-6)
    distance: str = flag(
        "euclidean", "distance of the triplet loss", group="objective", choices=("euclidean", "cosine")
    )
    chunk: int = flag(
        0, "encode a batch in parts of so many sentences, in two passes: the same gradient on less memory (the pass "
        "of its own that an adversarial view takes stays whole)",
        group="objective", least=0,
    )  # fmt: skip
    accumulate: int = flag(1, "parts of an update; not with in-batch negatives", group="objective", least=1)

    alpha: float = flag(0.15, "weight of the views beside the classification (joint)", group="objective", least=0)
    eda_weight: float = flag(
        0.0, "weight of NT-Xent between a text and itself with punctuation inserted (simcse; EdaCSE's lambda)",
        group="objective", least=0,
    )  # fmt: skip

    views: str = flag(
        "", "two views, around the embedding layer, such as feature-cutoff:0.2,shuffle: none, shuffle, "
        "token-cutoff:0.15, span-cutoff:0.15, feature-cutoff:0.2, dropout:0.2 (the rates meant where none is given), "
        "or with --objective joint adversarial:1; of anchors and of all other texts where the data are triplets",
        group="views",
    )  # fmt: skip
    protect_special: bool = flag(True, "views leave [CLS] and [SEP] as they are", group="views")
    marks: str = flag(
        "english", "the punctuation that is inserted", group="views",
        choices=("english", "chinese", "without-exclamation", "chinese-without-exclamation", "extra"),
    )  # fmt: skip
    marks_most: int = flag(
        0, "insert 1 to so many marks into positives (nt-xent) or the third text (simcse); 0 inserts none",
        group="views", least=0,
    )  # fmt: skip

    order: str = flag(
        "curriculum",
        "curriculum = easy first; anti = hard first; random = a random order paced alike; none = all from the start",
        group="curriculum", choices=("curriculum", "anti", "random", "none"),
    )  # fmt: skip
    technique: str = flag(
        "groups",
        "what makes a triplet hard: groups by margin; cosine of the entailment; of the contradiction; their gap; "
        "length; rarity of words",
        group="curriculum", choices=("groups", "entailment", "contradiction", "gap", "length", "rarity"),
    )  # fmt: skip
    margin: float = flag(0.2, "margin between easy and semi-hard triplets", group="curriculum", least=0)
    power: float = flag(
        0.5, "pacing: (t/T)^power of the triplets are eligible (0.5 root, 1 linear, 2 quadratic)",
        group="curriculum", least=0,
    )  # fmt: skip
    pacing: str = flag("epoch", "what t counts", group="curriculum", choices=("epoch", "step"))
    start: float = flag(0.0, "share that is eligible from the beginning", group="curriculum", least=0, most=1)
    within: str = flag(
        "shuffled", "how the eligible triplets follow each other", group="curriculum", choices=("shuffled", "sorted")
    )
    equal_steps: bool = flag(
        False, "as many updates as without a curriculum: the eligible triplets are cycled", group="curriculum"
    )  # fmt: skip
    scorer: str = flag("", "the encoder that scores (default: the one that is trained)", group="curriculum")
    scorer_pooler: str = flag(
        "", "its pooler (default: --pooler, or what the scorer's folder names)", group="curriculum",
        choices=("", *POOLERS),
    )  # fmt: skip

    metric: str = flag(
        "spearman", "what chooses the best encoder: STS dev Spearman; accuracy or frozen loss over triplets; "
        "alignment, how near the vectors of similar STS dev pairs are; uniformity, how evenly all STS dev vectors "
        "are spread",
        group="evaluation", choices=("spearman", "accuracy", "loss", "alignment", "uniformity"),
    )  # fmt: skip
    evaluate_triplets: int = flag(
        2000, "triplets of the training file in the frozen loss of an evaluation (0: all)", group="evaluation", least=0
    )
    evaluate_temperature: float | None = flag(
        None,
        "temperature of the frozen loss, so that runs at several temperatures compare (default: --temperature)",
        group="evaluation",
        least=1e-4,
    )

    @property
    def source(self) -> str:
        """Where the encoder's weights come from: a folder or a name. `UserError` where a preset wants it named."""
        if not self.weights:
            raise UserError("--weights: name the encoder to go on from, such as runs/consert-sup/encoder")
        return super().source

    @property
    def trained_pooler(self) -> str:
        """The pooler that the encoder is evaluated and saved with: a projection that is kept is its `pooler`."""
        return "pooler" if self.projection == "kept" else self.pooler

    @property
    def data_kind(self) -> str:
        """`triplets`, `pairs` or `texts`."""
        return DATA[self.objective]

    @property
    def chooses(self) -> bool:
        """Whether the pairs of `--sts-dev` choose the encoder that is kept, or when training stops."""
        return (self.keep == "best" or self.patience > 0) and self.metric not in OVER_TRIPLETS

    @property
    def selection(self) -> dict[str, Any]:
        """For the manifest: which encoder is kept, by what, and whether dev pairs have a part in it."""
        return {
            "keep": self.keep,
            "metric": self.metric,
            "patience": self.patience,
            "dev_set": self.sts_dev,
            "by_dev_pairs": self.chooses,
        }

    @property
    def by_cosine(self) -> bool:
        """Whether triplets are put in order by an encoder's cosines."""
        return self.data_kind == TRIPLETS and self.order in ("curriculum", "anti") and self.technique not in _NO_MODEL

    @property
    def parts_of(self) -> int:
        """Sentences in one part of a batch; 0 for one part."""
        if self.chunk or self.accumulate == 1:
            return self.chunk
        return -(-self.batch_size * (3 if self.data_kind == TRIPLETS else 2) // self.accumulate)

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """A sentence for every given flag that has no effect."""
        objective = f"--objective {self.objective}"
        reasons = {name: objective for name, used in _BY_OBJECTIVE.items() if self.objective not in used}
        if self.objective in ("triplet", "margin") and self.evaluate_temperature is not None:
            reasons["temperature"] = "--evaluate-temperature"
        if not self.hard_negatives:
            reasons["hard_weight"] = "--no-hard-negatives"
        if self.data_kind != TRIPLETS:
            curriculum = ("order", *_OF_THE_CURRICULUM, "equal_steps")
            judged = ("evaluate_triplets", "evaluate_temperature")
            reasons |= dict.fromkeys((*curriculum, "triplets", "per_premise", *judged), objective)
        elif self.order == "none":
            reasons |= dict.fromkeys((*_OF_THE_CURRICULUM, "equal_steps"), "--order none")
        elif self.order == "random":
            reasons |= dict.fromkeys(("technique", "margin", "scorer", "scorer_pooler"), "--order random")
        elif self.technique != "groups":
            needless = ("scorer", "scorer_pooler") if self.technique in _NO_MODEL else ()
            reasons |= dict.fromkeys(("margin", *needless), f"--technique {self.technique}")
        reasons |= self.without_synonyms(given, "pretrain")
        if self.data_kind != PAIRS:
            reasons["nli_pairs"] = objective
        if self.data_kind != TEXTS:
            reasons |= dict.fromkeys(("texts", "keep_duplicates"), objective)
        else:
            reasons["columns"] = objective
        if not self.views:
            reasons["protect_special"] = "no --views"
        if not self.marks_most:
            reasons["marks"] = "no --marks-most"
        return [
            f"{spelled(name, given[name])} has no effect with {why}" for name, why in reasons.items() if name in given
        ] + self.idle()

    def __post_init__(self) -> None:
        if self.batch_size < 2 and self.objective in IN_BATCH:
            raise UserError("--batch-size 1: a contrastive batch needs a second row for its in-batch negatives")
        if self.accumulate > 1 and self.objective in IN_BATCH:
            raise UserError(
                f"--accumulate {self.accumulate}: parts would have fewer in-batch negatives; --chunk N saves memory "
                f"with the gradient of the whole batch"
            )
        if self.accumulate > 1 and self.chunk:
            raise UserError("--accumulate and --chunk exclude each other: both cut a batch into parts")
        if self.objective in ("views", "joint") and not self.views:
            raise UserError(f"--objective {self.objective} needs two --views, such as feature-cutoff:0.2,shuffle")
        if self.views:
            from tasks.contrastive.views import parse  # late: it imports torch

            parse(self.views)
        if self.marks_most and self.objective not in ("nt-xent", "simcse"):
            raise UserError("--marks-most: punctuation is inserted with --objective nt-xent or simcse alone")
        if self.marks_most and self.synonyms != "none" and self.synonyms_stage != "finetune":
            raise UserError("--synonyms and --marks-most exclude each other: both rewrite a text")
        if bool(self.eda_weight) != bool(self.marks_most) and self.objective == "simcse":
            raise UserError("--eda-weight and --marks-most belong together: one weighs the text that the other makes")
        if self.data_kind == TEXTS and not self.texts.strip(", "):
            raise UserError(f"--objective {self.objective} needs --texts: sts, sts-train, chinese or a file")
        if "adversarial" in self.views and self.objective != "joint":
            raise UserError("--views: an adversarial view needs the supervision of --objective joint")
        if self.projection != "none" and self.pooler != "cls":
            raise UserError(f"--projection {self.projection} is over [CLS]: it needs --pooler cls, not {self.pooler}")
        if self.projection == "kept" and self.scorer_pooler == "pooler" and not self.scorer:
            raise UserError("--scorer-pooler pooler: with --projection kept the pooler starts from random weights")
        if self.metric in OVER_TRIPLETS and self.data_kind != TRIPLETS:
            raise UserError(f"--metric {self.metric} needs triplets; --objective {self.objective} has none")
