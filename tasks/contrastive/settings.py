"""Settings of the first stage, and its presets. Importing this module loads no torch."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from minbert.errors import UserError
from minbert.training import settings
from minbert.training.settings import Pooler, Presets, Record, Settings, flag, spelled
from tasks.augment import SynonymSettings

TRIPLETS, PAIRS, TEXTS = "triplets", "pairs", "texts"
DATA = {
    "nt-xent": TRIPLETS,
    "triplet": TRIPLETS,
    "margin": TRIPLETS,
    "softmax": PAIRS,
    "cross": PAIRS,
    "joint": PAIRS,
    "views": TEXTS,
    "simcse": TEXTS,
}
"""Objective -> the data it trains on."""
IN_BATCH = ("nt-xent", "joint", "views", "simcse")
"""Objectives whose negatives are the other rows of the batch."""

BY_COSINE = ("groups", "entailment", "contradiction", "gap")
"""Techniques that order triplets by an encoder's cosines; length and rarity need no encoder."""

_ON = {kind: tuple(name for name, data in DATA.items() if data == kind) for kind in (TRIPLETS, PAIRS, TEXTS)}
_CURRICULUM = ("technique", "margin", "power", "pacing", "start", "scorer", "scorer_pooler", "equal_steps")
_OF_TRIPLETS = ("order", *_CURRICULUM, "triplets", "per_premise", "evaluate_triplets", "evaluate_temperature")
_USED_BY: dict[str, tuple[str, ...]] = {
    "temperature": (*IN_BATCH, "triplet", "margin"),  # the latter are judged by a frozen NT-Xent loss
    **dict.fromkeys(("directions", "hard_negatives", "hard_weight", "mask_false_negatives"), ("nt-xent",)),
    "loss_margin": ("triplet", "margin"),
    "distance": ("triplet",),
    "alpha": ("joint",),
    "eda_weight": ("simcse",),
    **dict.fromkeys(_OF_TRIPLETS, _ON[TRIPLETS]),
    "nli_pairs": _ON[PAIRS],
    **dict.fromkeys(("texts", "keep_duplicates"), _ON[TEXTS]),
}
"""Flag -> the objectives on which it has an effect; a flag that is not here has one on all."""


def slug(name: str) -> str:
    """A dev set's name as numbers and files of a run have it."""
    return name.lower().replace("-", "_")


class EncoderSettings(settings.EncoderSettings):
    """The encoder that training starts from, and how its vectors are read."""

    max_length: int = flag(32, "longest sentence in tokens (0: as many as the encoder has positions)", ge=0)
    pooler: Pooler = flag("pooler", "how hidden states become one vector")
    projection: Literal["none", "training", "kept"] = flag(
        "none",
        "a new layer tanh(W x + b) over [CLS]: training = in training only (unsupervised SimCSE); kept = evaluated"
        " with the encoder and saved as its pooler (supervised SimCSE)",
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


class DataSettings(settings.DataSettings):
    """Which data are read."""

    texts: str = flag(
        "",
        "unlabelled texts for --objective views and simcse: sts, sts-train, chinese, or files of one sentence a "
        "line, comma-separated",
    )
    keep_duplicates: bool = flag(False, "keep duplicates among the unlabelled texts")
    per_premise: Literal["first", "zip", "cross"] = flag(
        "first",
        "triplets of one premise of NLI pairs: its first entailment with its first contradiction, the i-th with "
        "the i-th, or all with all",
    )


class LossSettings(Record):
    """The loss, and the parts that a batch is computed in."""

    objective: Literal["nt-xent", "triplet", "margin", "softmax", "cross", "joint", "views", "simcse"] = flag(
        "nt-xent",
        "nt-xent = NT-Xent with hard negatives; triplet and margin = losses over distances; softmax = "
        "classification of NLI pairs (SBERT); cross = the same, of pairs read together; views = two views of a text "
        "(ConSERT); joint = softmax and views; simcse = a text twice under dropout, and with punctuation (EdaCSE)",
    )
    temperature: float = flag(0.05, "temperature of NT-Xent", ge=1e-4)
    directions: Literal["one", "both"] = flag(
        "one", "one = from the anchor to its positive; both = also from the positive to its anchor"
    )
    hard_negatives: bool = flag(True, "hard negatives among the candidates")
    hard_weight: float = flag(0.0, "added to the logit of a row's own hard negative (SimCSE)")
    mask_false_negatives: bool = flag(True, "leave candidates with the text or the premise of the row out of the loss")
    loss_margin: float = flag(1.0, "margin of the triplet and the margin loss", ge=1e-6)
    distance: Literal["euclidean", "cosine"] = flag("euclidean", "distance of the triplet loss")
    alpha: float = flag(0.15, "weight of the views' loss, which is added to that of the classification (joint)", ge=0)
    eda_weight: float = flag(
        0.0, "weight of NT-Xent between a text and itself with punctuation inserted (simcse; EdaCSE's lambda)", ge=0
    )
    chunk: int = flag(
        0,
        "encode a batch in chunks of N sentences, in two passes: the same gradient with less memory (the "
        "extra pass of an adversarial view is not divided)",
        ge=0,
    )
    accumulate: int = flag(1, "gradient accumulation: parts of a batch; not with in-batch negatives", ge=1)

    @property
    def data_kind(self) -> str:
        """`triplets`, `pairs` or `texts`."""
        return DATA[self.objective]


class CurriculumSettings(Record):
    """The curriculum: order and pacing of the triplets."""

    order: Literal["curriculum", "anti", "random", "none"] = flag(
        "curriculum",
        "curriculum = easy first; anti = hard first; random = random order, same pacing; none = all from the start",
    )
    technique: Literal["groups", "entailment", "contradiction", "gap", "length", "rarity"] = flag(
        "groups",
        "what makes a triplet hard: groups by margin; cosine of the entailment; of the contradiction; their gap; "
        "length; rarity of words",
    )
    margin: float = flag(0.2, "margin between easy and semi-hard triplets", ge=0)
    power: float = flag(0.5, "pacing: (t/T)^power of the triplets are eligible (0.5 root, 1 linear, 2 quadratic)", ge=0)
    pacing: Literal["epoch", "step"] = flag("epoch", "unit of t in the pacing")
    start: float = flag(0.0, "fraction of the triplets that is eligible from the start", ge=0, le=1)
    within: Literal["shuffled", "sorted"] = flag("shuffled", "order of the eligible triplets")
    equal_steps: bool = flag(False, "as many updates as without a curriculum: the eligible triplets are cycled")
    scorer: str = flag("", "encoder that scores the triplets (default: the one that is trained)")
    scorer_pooler: Literal["", Pooler] = flag("", "pooler of the scorer (default: --pooler, or that of its folder)")


class AugmentationSettings(Record):
    """How texts are changed: views around the embedding layer, and punctuation."""

    views: str = flag(
        "",
        "two views at the embedding layer, such as feature-cutoff:0.2,shuffle, from none, shuffle, token-cutoff, "
        "span-cutoff (rate 0.15 by default), feature-cutoff, dropout (0.2), and adversarial (1, with --objective joint "
        "only); with triplets, the first is for anchors and the second for all other texts",
    )
    protect_special: bool = flag(True, "views leave [CLS] and [SEP] as they are")
    marks: Literal["english", "chinese", "without-exclamation", "chinese-without-exclamation", "extra"] = flag(
        "english", "the punctuation that is inserted"
    )
    marks_most: int = flag(
        0, "insert 1 to N marks into positives (nt-xent) or the third text (simcse); 0 inserts none", ge=0
    )


class EvaluationSettings(Record):
    """Evaluation during training."""

    metric: Literal["spearman", "accuracy", "loss", "alignment", "uniformity"] = flag(
        "spearman",
        "metric that selects the best encoder: STS dev Spearman; accuracy or loss over triplets; alignment, how "
        "near the vectors of similar STS dev pairs are; uniformity, how evenly all STS dev vectors are spread",
    )
    evaluate_triplets: int = flag(2000, "triplets of the training file in the loss of an evaluation (0: all)", ge=0)
    evaluate_temperature: float | None = flag(
        None,
        "temperature of the loss of an evaluation, to compare runs of different temperatures (default: --temperature)",
        ge=1e-4,
    )

    @property
    def over_triplets(self) -> bool:
        """Whether the metric is a number of the training triplets, not of the dev pairs."""
        return self.metric in ("accuracy", "loss")


class FileSettings(settings.FileSettings):
    """Paths of the data. A run is identified by the data's hashes, not by these paths."""

    triplets: str = flag(
        "",
        "in place of nli/nli_for_simcse.csv or nli/nli-triplets.csv: files of triplets, or of labelled NLI pairs "
        "(SNLI, MultiNLI, nli-pairs.tsv), comma-separated",
    )
    nli_pairs: str = flag(
        "",
        "in place of nli/nli-pairs.tsv, else SNLI's and MultiNLI's originals, for --objective softmax, cross and "
        "joint: labelled NLI pairs, comma-separated files",
    )
    phrases: str = flag(
        "",
        "also classify single texts labelled 0 or 1, with --objective cross: sst = the phrases of SST's training "
        "sentences in SentEval's layout, negative or positive; or a file",
    )
    sts_dev: str = flag(
        "course",
        "scored pairs for evaluation and selection: stsb = STS-B's own dev set in SentEval's layout; course = "
        "course/sts-dev.csv; zh = the mean over the available Chinese dev sets (ATEC, BQ, LCQMC, PAWS-X, STS-B); or a "
        "file",
    )


class RunSettings(settings.RunSettings):
    """The run folder, logging and resuming."""

    run_dir: str = flag("runs/cbcl", "folder of the run: new, or empty, except with --resume")


class ContrastiveSettings(Settings):
    """All settings of `pretrain_cbcl.py`."""

    encoder: EncoderSettings = EncoderSettings()
    data: DataSettings = DataSettings()
    loss: LossSettings = LossSettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    synonyms: SynonymSettings = SynonymSettings()
    training: settings.TrainingSettings = settings.TrainingSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    files: FileSettings = FileSettings()
    run: RunSettings = RunSettings()

    @property
    def chooses(self) -> bool:
        """Whether the pairs of `--sts-dev` choose the encoder that is kept, or when training stops."""
        return (self.training.keep == "best" or self.training.patience > 0) and not self.evaluation.over_triplets

    @property
    def selection(self) -> dict[str, Any]:
        """For the manifest: which encoder is kept, by what, and whether dev pairs have a part in it."""
        return {
            "keep": self.training.keep,
            "metric": self.evaluation.metric,
            "patience": self.training.patience,
            "dev_set": self.files.sts_dev,
            "by_dev_pairs": self.chooses,
        }

    @property
    def by_cosine(self) -> bool:
        """Whether triplets are put in order by an encoder's cosines."""
        ordered = self.curriculum.order in ("curriculum", "anti") and self.curriculum.technique in BY_COSINE
        return ordered and self.loss.data_kind == TRIPLETS

    @property
    def parts_of(self) -> int:
        """Sentences in one part of a batch; 0 for one part."""
        how = self.loss
        if how.chunk or how.accumulate == 1:
            return how.chunk
        texts = 1 if how.objective == "cross" else 3 if how.data_kind == TRIPLETS else 2
        return -(-self.training.batch_size * texts // how.accumulate)

    def ignored(self, given: dict[str, Any]) -> list[str]:
        """A sentence for every given flag that has no effect."""
        reasons = dict(self._idle_flags()) | self.synonyms.without_effect(given, "pretrain")
        said = [
            f"{spelled(name, given[name])} has no effect with {why}" for name, why in reasons.items() if name in given
        ]
        return said + self.training.idle()

    def _idle_flags(self) -> Iterator[tuple[str, str]]:
        """Flags without effect, each with the setting that disables it."""
        how, order, technique = self.loss, self.curriculum.order, self.curriculum.technique
        idle: dict[str, tuple[str, ...]] = {}
        if order == "none":
            idle["--order none"] = _CURRICULUM
        elif order == "random":
            idle["--order random"] = ("technique", "margin", "scorer", "scorer_pooler")
        elif technique in ("length", "rarity"):
            idle[f"--technique {technique}"] = ("margin", "scorer", "scorer_pooler")
        elif technique != "groups":
            idle[f"--technique {technique}"] = ("margin",)
        if not how.hard_negatives:
            idle["--no-hard-negatives"] = ("hard_weight",)
        if how.objective in ("triplet", "margin") and self.evaluation.evaluate_temperature is not None:
            idle["--evaluate-temperature"] = ("temperature",)
        if not self.augmentation.views:
            idle["no --views"] = ("protect_special",)
        if not self.augmentation.marks_most:
            idle["no --marks-most"] = ("marks",)
        yield from ((name, why) for why, names in idle.items() for name in names)
        yield from ((name, f"--objective {how.objective}") for name, on in _USED_BY.items() if how.objective not in on)

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        """Raises `UserError` for settings that exclude each other, or that one needs of another."""
        for why in self._refusals():
            raise UserError(why)
        if self.augmentation.views:
            from tasks.contrastive.views import parse  # late: it imports torch

            parse(self.augmentation.views, flag="--views")
        return self

    def _refusals(self) -> Iterator[str]:
        how, views, encoder, scorer = self.loss, self.augmentation, self.encoder, self.curriculum
        objective = f"--objective {how.objective}"
        if how.objective in IN_BATCH and self.training.batch_size < 2:
            yield "--batch-size 1: a contrastive batch needs a second row for its in-batch negatives"
        if how.objective in IN_BATCH and how.accumulate > 1:
            yield (
                f"--accumulate {how.accumulate}: parts would have fewer in-batch negatives; --chunk N saves memory "
                f"with the gradient of the whole batch"
            )
        if how.accumulate > 1 and how.chunk:
            yield "--accumulate and --chunk exclude each other: both cut a batch into parts"
        if how.objective in ("views", "joint") and not views.views:
            yield f"{objective} needs two --views, such as feature-cutoff:0.2,shuffle"
        if how.objective != "joint" and "adversarial" in views.views:
            yield "--views: an adversarial view needs the supervision of --objective joint"
        if how.objective not in ("nt-xent", "simcse") and views.marks_most:
            yield "--marks-most: punctuation is inserted with --objective nt-xent or simcse alone"
        if how.objective == "simcse" and bool(how.eda_weight) != bool(views.marks_most):
            yield "--eda-weight and --marks-most require each other: a weight, and the punctuation that it weighs"
        if how.objective == "cross" and self.chooses:
            yield f"{objective} trains no sentence embeddings, so --sts-dev cannot select a checkpoint: use --keep last"
        if self.files.phrases and how.objective != "cross":
            yield f"--phrases needs --objective cross: {objective} trains on no single texts"
        if views.marks_most and self.synonyms.used_in("pretrain"):
            yield "--synonyms and --marks-most exclude each other: both rewrite a text"
        if how.data_kind == TEXTS and not self.data.texts.strip(", "):
            yield f"{objective} needs --texts: sts, sts-train, chinese or a file"
        if encoder.projection != "none" and encoder.pooler != "cls":
            yield f"--projection {encoder.projection} is over [CLS]: it needs --pooler cls, not {encoder.pooler}"
        if encoder.projection == "kept" and scorer.scorer_pooler == "pooler" and not scorer.scorer:
            yield "--scorer-pooler pooler: with --projection kept the pooler starts from random weights"
        if self.evaluation.over_triplets and how.data_kind != TRIPLETS:
            yield f"--metric {self.evaluation.metric} needs triplets; {objective} has none"


def _read_presets() -> Presets:
    """The tables of `presets.toml`; a table with a `base` changes some settings of an earlier one."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, table in tomllib.loads(Path(__file__).with_name("presets.toml").read_text(encoding="utf-8")).items():
        about, base = table.pop("about"), table.pop("base", "")
        found[name] = about, (found[base][1] if base else {}) | table
    return found


PRESETS = _read_presets()
