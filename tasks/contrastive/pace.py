"""The steps of a run of stage one: from settings, through scores, to a plan."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from minbert import token_cache, weights
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
            counts = {name: int((self.groups == group).sum()) for group, name in enumerate(curriculum.GROUPS)}
            described["curriculum"] = counts | {"mix_per_epoch": self.mix.round(4).tolist()}
        return described

    @cached_property
    def mix(self) -> np.ndarray:
        """Share of each group in each epoch: [epochs, 3]."""
        assert self.groups is not None
        return curriculum.mix(self.plan, self.groups)


def hashes(settings: ContrastiveSettings) -> dict[str, str]:
    """The hash of the weights of `--scorer`, where it decides the order. `UserError` where they cannot be had."""
    if not (settings.curriculum.scorer and settings.by_cosine):
        return {}
    return {"scorer": weights.sha256(weights.resolve(settings.curriculum.scorer, "--scorer"))}


def paced(settings: ContrastiveSettings, encoder: Encoder, examples: Examples, weights_sha256: str) -> Paced:
    """Score what has to be scored, put it in order, and cut it into steps."""
    training, how = settings.training, settings.curriculum
    make = partial(
        curriculum.plan,
        epochs=training.epochs,
        batch_size=training.batch_size,
        seed=training.seed,
        within=how.within,
    )
    limit = 0 if settings.objective.data_kind == TEXTS else settings.data.limit  # of texts it has been drawn already
    chosen = plan.drawn(len(examples), limit, settings.training.seed)
    if settings.objective.data_kind != TRIPLETS or settings.curriculum.order == "none":
        return Paced(start.shortened(make(chosen, power=0.0), settings.training), len(chosen))
    cosines, groups = None, None
    if settings.by_cosine:
        assert isinstance(examples, Triplet)
        cosines = scoring.similarities(*_scorer(settings, encoder, weights_sha256, examples), chosen)
        groups = np.full(len(examples), -1)
        groups[chosen] = curriculum.difficulty(cosines.positive, cosines.negative, settings.curriculum.margin)
    made = make(
        chosen[_order(settings, examples, cosines, chosen)],
        power=how.power,
        pacing=how.pacing,
        start=how.start,
        equal_steps=how.equal_steps,
    )
    return Paced(start.shortened(made, settings.training), len(chosen), cosines, groups)


def _order(
    settings: ContrastiveSettings, examples: Examples, cosines: Similarities | None, chosen: np.ndarray
) -> np.ndarray:
    """The `chosen` rows in training order, by their places among them: [n]. Rarity is that among all texts."""
    if settings.curriculum.order == "random":
        return curriculum.arrange(np.zeros(len(chosen)), settings.training.seed, "random")
    cache = examples.cache
    scores: dict[str, Any] = {}
    if cosines is not None:
        scores = {"positive": cosines.positive, "negative": cosines.negative}
    elif settings.curriculum.technique == "length":
        scores = {"lengths": cache.token_counts().sum(1)[chosen]}
    else:
        texts = ([cache.text(row, column) for column in range(cache.columns)] for row in range(len(cache)))
        scores = {"rarity": curriculum.rarity(texts)[chosen]}
    values = curriculum.hardness(settings.curriculum.technique, margin=settings.curriculum.margin, **scores)
    return curriculum.arrange(values, settings.training.seed, settings.curriculum.order)


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
