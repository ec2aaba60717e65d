"""The steps of a run of stage one: score, sort, pace."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from minbert import token_cache
from minbert.encode import Encoder
from minbert.tokenizer import Tokenizer
from minbert.training import plan, start
from minbert.training.plan import Plan
from tasks.contrastive import curriculum, scoring
from tasks.contrastive.scoring import Similarities
from tasks.contrastive.settings import TEXTS, TRIPLETS, ContrastiveSettings
from tasks.examples import Examples, Triplet


@dataclass(frozen=True)
class Paced:
    """A plan over so many `rows`, and for triplets what it was made by.

    That is the cosines of those trained on, and the group of each row of the file, int64 [N]: 0 easy, 1 semi-hard,
    2 hard, -1 not trained on.
    """

    plan: Plan
    rows: int
    cosines: Similarities | None = None
    groups: np.ndarray | None = None

    def account(self) -> dict[str, Any]:
        """For the manifest: the plan in numbers, how many triplets are in each group, and each epoch's mix of them."""
        described: dict[str, Any] = {"plan": plan.describe(self.plan), "training_rows": {"nli": self.rows}}
        if self.groups is not None:
            described["curriculum"] = self.group_sizes | {"mix_per_epoch": self.mix.round(4).tolist()}
        return described

    @property
    def group_sizes(self) -> dict[str, int]:
        """How many of the triplets that are trained on are easy, semi-hard and hard; empty without groups."""
        groups = self.groups
        return {} if groups is None else {name: int((groups == g).sum()) for g, name in enumerate(curriculum.GROUPS)}

    @cached_property
    def mix(self) -> np.ndarray:
        """Share of each group in each epoch: [epochs, 3]."""
        assert self.groups is not None
        return curriculum.mix(self.plan, self.groups)


@dataclass(frozen=True)
class Scored:
    """The `rows` that are trained on, int64 [n], and how hard each is, where an order asks for it: [n].

    Difficulty is known by the cosines of an encoder, or by `hardness`, from the texts alone.
    """

    rows: np.ndarray
    cosines: Similarities | None = None
    hardness: np.ndarray | None = None


@dataclass(frozen=True)
class Sorted:
    """What is trained on: `rows` in training order, int64 [n], and for scored triplets the group of each row.

    `groups` are those of all N rows of the file, as `Paced` has them.
    """

    rows: np.ndarray
    cosines: Similarities | None = None
    groups: np.ndarray | None = None


def score(settings: ContrastiveSettings, encoder: Encoder, examples: Examples, weights_sha256: str) -> Scored:
    """Draw the rows to train on, and score triplets by the starting encoder, or by `--scorer`, where an order asks."""
    limit = 0 if settings.objective.data_kind == TEXTS else settings.data.limit  # of texts it has been drawn already
    rows = plan.drawn(len(examples), limit, settings.training.seed)
    if settings.by_cosine:
        assert isinstance(examples, Triplet)
        cosines = scoring.similarities(*_scorer(settings, encoder, weights_sha256, examples), rows)
        return Scored(rows, cosines)
    how, cache = settings.curriculum, examples.cache
    if settings.objective.data_kind != TRIPLETS or how.order in ("none", "random"):
        return Scored(rows)
    if how.technique == "length":
        return Scored(rows, hardness=cache.token_counts().sum(1)[rows])
    texts = ([cache.text(row, column) for column in range(cache.columns)] for row in range(len(cache)))
    return Scored(rows, hardness=curriculum.rarity(texts)[rows])  # rarity is that among all texts


def sort(settings: ContrastiveSettings, examples: Examples, scored: Scored) -> Sorted:
    """Triplets in groups by the margin (CBCL, section 4.3), where they have cosines, and in training order."""
    how, seed, rows, cosines = settings.curriculum, settings.training.seed, scored.rows, scored.cosines
    if settings.objective.data_kind != TRIPLETS or how.order == "none":
        return Sorted(rows)
    if how.order == "random":
        return Sorted(rows[curriculum.arrange(np.zeros(len(rows)), seed, "random")])
    groups, hardness = None, scored.hardness
    if cosines is not None:
        found = curriculum.difficulty(cosines.positive, cosines.negative, how.margin)
        groups = np.full(len(examples), -1)
        groups[rows] = found
        hardness = curriculum.hardness(
            how.technique, positive=cosines.positive, negative=cosines.negative, groups=found
        )
    assert hardness is not None
    return Sorted(rows[curriculum.arrange(hardness, seed, how.order)], cosines, groups)


def pace(settings: ContrastiveSettings, ordered: Sorted) -> Paced:
    """The steps: from epoch to epoch more of the order is eligible (CBCL, equation 2), without a curriculum all."""
    training, how = settings.training, settings.curriculum
    make = partial(
        curriculum.plan,
        ordered.rows,
        epochs=training.epochs,
        batch_size=training.batch_size,
        seed=training.seed,
        within=how.within,
    )
    if settings.objective.data_kind != TRIPLETS or how.order == "none":
        steps = make(power=0.0)
    else:
        steps = make(power=how.power, pacing=how.pacing, start=how.start, equal_steps=how.equal_steps)
    return Paced(start.shortened(steps, training), len(ordered.rows), ordered.cosines, ordered.groups)


def _scorer(
    settings: ContrastiveSettings, encoder: Encoder, weights_sha256: str, examples: Triplet
) -> tuple[Encoder, Triplet, str]:
    """The encoder that scores, the triplets in its vocabulary, and the hash of its weights."""
    how = settings.curriculum
    pooler = how.scorer_pooler or settings.encoder.pooler
    if not how.scorer:
        scorer = Encoder(encoder.model, encoder.tokenizer, pooler, precision=encoder.precision)
        return scorer, examples, weights_sha256
    scorer, sha256 = scoring.load(
        settings.curriculum.scorer,
        settings.curriculum.scorer_pooler,
        precision=settings.training.precision,
        device=str(encoder.model.device),
    )
    shorter = replace(examples, max_length=min(examples.max_length, scorer.max_length))
    if scorer.tokenizer.fingerprint == encoder.tokenizer.fingerprint:
        return scorer, shorter, sha256
    start.warn(f"--scorer {how.scorer}: another vocabulary, so the triplets are tokenised for it as well")
    return scorer, _retokenised(shorter, scorer.tokenizer), sha256


def _retokenised(examples: Triplet, tokenizer: Tokenizer) -> Triplet:
    """The same triplets in another vocabulary."""
    cache = token_cache.retokenised(examples.cache, tokenizer)
    return Triplet(cache, tokenizer.cls, tokenizer.sep, examples.max_length)
