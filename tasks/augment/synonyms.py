"""Synonym augmentation in training (CBCL, section 4.4).

Every replacement is a pure function of (seed, row or step). Labels and row ids do not change.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minbert.files import write_atomic
from minbert.token_cache import TokenCache
from minbert.tokenizer import Tokenizer
from minbert.training import ranks
from minbert.training.plan import Step
from minbert.training.settings import TrainingSettings
from tasks.augment import replacement, wordnet
from tasks.augment.settings import SynonymSettings
from tasks.augment.tagging import KINDS, Tagged, tag
from tasks.augment.wordnet import WordNet
from tasks.examples import Augmentation, E, Examples, unchanged

MOST_ADJECTIVES = 3
"""Adjectives per sentence that method 3 replaces in the last epoch with `--synonyms-grow`."""

Ids = dict[tuple[int, int], list[int]]
"""(row, column) of a changed text -> its new token ids."""


def growing(epoch: int, epochs: int, most: float) -> float:
    """Growing augmentation: the probability in `epoch` (1..epochs), most * epoch / epochs.

    SelfCCL (section 6) names it as future work; the form follows its linear pacing function (section 4.3.2). Raises
    `ValueError` for an epoch outside 1..epochs.
    """
    if not 1 <= epoch <= epochs:
        raise ValueError(f"epoch {epoch} is not between 1 and {epochs}")
    return most * (epoch / epochs)


@dataclass
class Synonyms:
    """Augmentation of the training sets of a run by one of the three methods.

    Methods 1 and 2 rewrite a whole set before training, or before each epoch with `--synonyms-grow`, and write the
    texts before and after to `folder` for inspection. Method 3 rewrites the rows of a batch in the step.
    """

    settings: SynonymSettings
    training: TrainingSettings
    tokenizer: Tokenizer
    tagged: Mapping[str, Tagged]
    folder: Path
    _rewritten: dict[str, tuple[int, Ids]] = field(default_factory=dict, repr=False)

    def __call__(self, examples: E, batch: Step) -> E:
        """The examples with the texts changed for this step."""
        epoch = self._epoch(batch)
        if self.settings.synonyms == "3":
            return examples.changed(self._of_batch(examples.cache, batch, epoch))
        if self._rewritten.get(batch.task, (0, {}))[0] != epoch:
            self._rewritten[batch.task] = epoch, self._rewrite(examples.cache, batch.task, epoch)
        return examples.changed(self._rewritten[batch.task][1])

    def _epoch(self, batch: Step) -> int:
        """The epoch, from 1, that sets the rate of replacement: the current one if it grows, else the last."""
        epochs = self.training.epochs
        # Modulo, because sequential plans number epochs over all tasks.
        return batch.epoch % epochs + 1 if self.settings.synonyms_grow else epochs

    def _of_batch(self, cache: TokenCache, batch: Step, epoch: int) -> Ids:
        how, seed, tagged, new = self.settings, self.training.seed, self.tagged[batch.task], {}
        if not replacement.chosen(batch.number, p=how.synonyms_p, seed=seed, name=batch.task):
            return {}
        count = max(1, MOST_ADJECTIVES * epoch // self.training.epochs) if how.synonyms_grow else 1
        places = [(int(row), column) for row in batch.rows for column in range(cache.columns)]
        for row, column in places:
            text, number = cache.text(row, column), row * cache.columns + column
            changes = replacement.live(
                tagged, number, text, batch=batch.number, turn=batch.turn, seed=seed, name=batch.task, count=count
            )
            if changes:
                new[row, column] = replacement.splice(text, changes)
        return self._tokenised(new)

    def _rewrite(self, cache: TokenCache, name: str, epoch: int) -> Ids:
        how, training, tagged = self.settings, self.training, self.tagged[name]
        p, new, lines = growing(epoch, training.epochs, how.synonyms_p), {}, []
        for number, text in enumerate(_texts(cache)):
            row, column = divmod(number, cache.columns)
            name_of_row = cache.row_id(row)
            changes = replacement.drawn(tagged, number, text, p=p, seed=training.seed, row=name_of_row, column=column)
            after = replacement.splice(text, changes)
            lines.append((name_of_row, column, text, after))
            if changes:
                new[row, column] = after
        if ranks.rank() == 0:
            suffix = f"-epoch-{epoch}" if how.synonyms_grow else ""
            self._write(self.folder / f"{name}{suffix}.tsv", lines)
        return self._tokenised(new)

    def _write(self, path: Path, lines: list[tuple[str, int, str, str]]) -> None:
        """Write a TSV table with one line per text, changed or not."""
        file = io.StringIO()
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([("id", "column", "before", "after"), *lines])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, file.getvalue())

    def _tokenised(self, texts: Mapping[tuple[int, int], str]) -> Ids:
        return dict(zip(texts, self.tokenizer.encode(list(texts.values())), strict=True))


def hashes(settings: SynonymSettings, stage: str, data: str) -> dict[str, str]:
    """Hashes of the resources that `--synonyms` uses in a stage, `pretrain` or `finetune`; empty if it is not used.

    Raises `UserError` if WordNet is missing.
    """
    if not settings.used_in(stage):
        return {}
    folder = wordnet.find(data)
    resources = (("WordNet", wordnet.WORDNET), ("tagger", wordnet.TAGGER))
    return {name: wordnet.fingerprint(folder, resource) for name, resource in resources}


def augmentation(
    settings: SynonymSettings,
    training: TrainingSettings,
    stage: str,
    sets: Mapping[str, Examples],
    tokenizer: Tokenizer,
    *,
    data: str,
    run: Path,
) -> tuple[Augmentation[Any], dict[str, Any]]:
    """The augmentation that `settings` ask for in a stage, `pretrain` or `finetune`, and its entry for the manifest.

    The entry holds the tagging method, and for each set the share of words that have a synonym. Raises `UserError` if
    WordNet is missing.
    """
    if not settings.used_in(stage):
        return unchanged, {}
    words, method = WordNet(wordnet.find(data), settings.synonyms_senses), int(settings.synonyms)
    every = {name: tag(list(_texts(one.cache)), words) for name, one in sets.items()}
    tagged = {name: one.only(KINDS[method]) for name, one in every.items()}
    account = {
        "tagging": sorted({one.tagging for one in tagged.values()}),
        "sets": {
            name: {"texts": len(one), "replaceable words": len(one.places), "coverage": round(one.coverage(method), 4)}
            for name, one in tagged.items()
        },
    }
    return Synonyms(settings, training, tokenizer, tagged, run / "synonyms"), {"synonyms": account}


def _texts(cache: TokenCache) -> Iterator[str]:
    """All texts, row by row; within a row, column by column."""
    return (cache.text(row, column) for row in range(len(cache)) for column in range(cache.columns))
