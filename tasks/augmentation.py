"""Synonyms in training: what a step's texts are when some of their words have been replaced.

Every replacement is a function of (seed, row or step); labels and ids are those of the data file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from minbert.token_cache import Row, TokenCache
from minbert.tokenizer import Tokenizer
from minbert.training import ranks
from minbert.training.options import CommonSettings
from minbert.training.plan import Step
from tasks.contrastive.synonyms import methods, synonym_table, wordnet
from tasks.contrastive.synonyms.replacement import KINDS, LiveSynonyms
from tasks.contrastive.synonyms.tagging import Tagged, tag
from tasks.examples import Examples

E = TypeVar("E", bound=Examples)
Augmentation = Callable[[E, Step], E]
"""The examples as a step sees them."""
MOST_ADJECTIVES = 3
"""How many adjectives of a sentence method 3 replaces in the last epoch, when it grows."""


def unchanged(examples: E, batch: Step) -> E:
    """No augmentation."""
    return examples


@dataclass
class Synonyms:
    """One of CBCL's three methods (section 4.4) over the training sets of a run.

    Methods 1 and 2 rewrite a whole set, before training or, when they grow, before each epoch, and leave before and
    after in `folder`, to be read. Method 3 rewrites the rows of a batch in the step.
    """

    settings: CommonSettings
    tokenizer: Tokenizer
    tagged: Mapping[str, Tagged]
    folder: Path
    _rewritten: dict[str, tuple[int, dict[tuple[int, int], list[int]]]] = field(default_factory=dict, repr=False)
    _live: dict[str, LiveSynonyms] = field(default_factory=dict, repr=False)

    def __call__(self, examples: E, batch: Step) -> E:
        """The examples with the changed texts of this step."""
        epoch = self._epoch(batch)
        if self.settings.synonyms == "3":
            return examples.changed(self._of_batch(examples.cache, batch, epoch))
        if self._rewritten.get(batch.task, (0, {}))[0] != epoch:
            self._rewritten[batch.task] = epoch, self._rewrite(examples.cache, batch.task, epoch)
        return examples.changed(self._rewritten[batch.task][1])

    def _epoch(self, batch: Step) -> int:
        """Which of the task's epochs, from 1, decides how much is replaced: the last one unless it grows."""
        epochs = self.settings.epochs
        return batch.epoch % epochs + 1 if self.settings.synonyms_grow else epochs  # sequential plans count tasks on

    def _of_batch(self, cache: TokenCache, batch: Step, epoch: int) -> dict[tuple[int, int], list[int]]:
        how = self.settings
        if batch.task not in self._live:
            self._live[batch.task] = LiveSynonyms(self.tagged[batch.task], how.synonyms_p, how.seed, name=batch.task)
        live = self._live[batch.task]
        if not live.chosen(batch.number):
            return {}
        places = [(int(row), column) for row in batch.rows for column in range(cache.columns)]
        before = [cache.text(*place) for place in places]
        numbers = [row * cache.columns + column for row, column in places]
        count = methods.growing_count(epoch, how.epochs, MOST_ADJECTIVES) if how.synonyms_grow else 1
        return self._tokenised(places, before, live.texts(batch.number, numbers, before, count, batch.turn))

    def _rewrite(self, cache: TokenCache, name: str, epoch: int) -> dict[tuple[int, int], list[int]]:
        how = self.settings
        p = methods.growing(epoch, how.epochs, how.synonyms_p)
        rows = _rows(cache)
        new = list(methods.precompute(rows, self.tagged[name], method=int(how.synonyms), p=p, seed=how.seed))
        if ranks.rank() == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            suffix = f"-epoch-{epoch}" if how.synonyms_grow else ""
            methods.write_augmented(self.folder / f"{name}{suffix}.tsv", rows, new)
        places = [(row, column) for row in range(len(cache)) for column in range(cache.columns)]
        before, after = ([text for row in texts for text in row.texts] for texts in (rows, new))
        return self._tokenised(places, before, after)

    def _tokenised(
        self, places: list[tuple[int, int]], before: list[str], after: list[str]
    ) -> dict[tuple[int, int], list[int]]:
        """The ids of those texts that have changed."""
        changed = [(place, new) for place, old, new in zip(places, before, after, strict=True) if new != old]
        ids = self.tokenizer.encode([new for _, new in changed])
        return {place: row for (place, _), row in zip(changed, ids, strict=True)}

    def account(self) -> dict[str, Any]:
        """For the manifest: who tagged, and how many words of each set can be replaced."""
        sets = {name: {"texts": len(one), "replaceable words": len(one.places)} for name, one in self.tagged.items()}
        return {"tagging": sorted({one.tagging for one in self.tagged.values()}), "sets": sets}


def hashes(settings: CommonSettings, stage: str) -> dict[str, str]:
    """Hashes of what `--synonyms` reads in a stage, `pretrain` or `finetune`; none without it.

    Raises `UserError` where WordNet is not there.
    """
    if not _asked(settings, stage):
        return {}
    folder = wordnet.find(settings.data)
    resources = (("WordNet", wordnet.WORDNET), ("tagger", wordnet.TAGGER))
    return {name: wordnet.fingerprint(folder, resource) for name, resource in resources}


def synonyms_of(
    settings: CommonSettings, stage: str, sets: Mapping[str, Examples], tokenizer: Tokenizer, run: Path
) -> tuple[Augmentation[Any], dict[str, Any]]:
    """What `--synonyms` and its companions ask for in a stage, `pretrain` or `finetune`, and the account of it.

    Raises `UserError` where WordNet is not there.
    """
    if not _asked(settings, stage):
        return unchanged, {}
    folder = wordnet.find(settings.data)
    table = synonym_table.load(folder, multiword=settings.synonyms_phrases)
    kinds = KINDS[int(settings.synonyms)]
    tagged = {
        name: tag([text for row in _rows(one.cache) for text in row.texts], table, folder).only(kinds)
        for name, one in sets.items()
    }
    made = Synonyms(settings, tokenizer, tagged, run / "synonyms")
    return made, {"synonyms": made.account()}


def _asked(settings: CommonSettings, stage: str) -> bool:
    return settings.synonyms != "none" and settings.synonyms_stage in (stage, "both")


def _rows(cache: TokenCache) -> list[Row]:
    return [
        Row(cache.row_id(row), tuple(cache.text(row, column) for column in range(cache.columns)))
        for row in range(len(cache))
    ]
