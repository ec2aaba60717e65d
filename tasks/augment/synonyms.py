"""Synonym replacement in training, by one of three methods (CBCL, section 4.4).

Method 1 replaces each noun, adjective, verb and adverb with probability p; the paper says "each word", but closed-class
words have no synonyms. Method 2 does the same for nouns and adjectives only. Both choose once per row. Method 3, the
paper's best, chooses at every step: with probability p a batch is augmented, and then ONE adjective of each sentence is
replaced: of those that have a synonym the first one in even steps, the last one in odd steps.

Letter case is kept. The rest of the text is unchanged, and so are labels and row ids. Every replacement is a pure
function of the seed, the row's id and, with method 3, the step.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd

from minbert.files import expand_user, require_file, sha256_of, write_atomic
from minbert.seeds import digest, numpy_generator
from minbert.token_cache import TokenCache
from minbert.train import distributed
from minbert.train.plan import Plan, PlannedBatch
from minbert.train.run import InputFiles
from minbert.train.settings import FileSettings, TrainingSettings, flag, refuse_flags, require_range
from tasks.augment import wordnet
from tasks.augment.wordnet import Tagged
from tasks.examples import Augmentation, Examples, unchanged
from tasks.readers.table import read_lines

KEEP = Path(__file__).with_name("keep.txt")
"""Words that are neither replaced nor synonyms, one a line, unless `--synonyms-keep` names another list."""
EXAMPLES_SHOWN = 3
"""Replaceable words that a run shows at its start."""
MOST_ADJECTIVES = 3
"""Adjectives per sentence that method 3 replaces in the last epoch with `--synonyms-grow`."""

Ids = dict[tuple[int, int], list[int]]
"""(row, column) of a changed text -> its new token ids."""


@dataclass(frozen=True)
class SynonymSettings:
    """Settings of WordNet synonyms, shared by both stages."""

    synonyms: Literal["none", "1", "2", "3"] = flag(
        "none",
        "WordNet synonyms (CBCL, section 4.4): 1 = any word, 2 = nouns and adjectives, both before training; "
        "3 = one adjective of each sentence in some batches, at every step",
    )
    synonyms_p: float = flag(0.25, "probability: of a word (1, 2) or of a batch (3)")
    synonyms_grow: bool = flag(
        False, "more synonyms from epoch to epoch, up to --synonyms-p (1, 2) or to 3 adjectives (3)"
    )
    synonyms_senses: Literal["first", "all"] = flag(
        "first",
        "first = synonyms of a word's most frequent sense, which mostly keep its meaning; all = of every sense in "
        "WordNet, and phrases, which often do not: they reach twice as many words (with 3, two thirds more)",
    )

    def __post_init__(self) -> None:
        require_range(self, "synonyms_p", 0, 1)

    def check_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Raises `UserError` for a flag that has no effect, as no synonyms are used."""
        if not self.used:
            names = ["synonyms_p", "synonyms_grow", "synonyms_senses", "synonyms_keep"]
            refuse_flags(names, overrides, "belongs to --synonyms 1, 2 or 3")

    @property
    def used(self) -> bool:
        """Whether texts are augmented with synonyms."""
        return self.synonyms != "none"


@dataclass(frozen=True)
class SynonymFileSettings(FileSettings):
    """Paths of the data. The hashes of the files identify a run, not their paths."""

    synonyms_keep: str = flag(
        "",
        "in place of tasks/augment/keep.txt (words for people, rude words): words that are neither replaced by "
        "synonyms nor put in, one a line",
        metavar="FILE",
    )


class SynonymOptions(Protocol):
    """The settings of a command of either stage, as far as synonyms read them."""

    @property
    def synonyms(self) -> SynonymSettings:
        """How words are replaced."""

    @property
    def files(self) -> SynonymFileSettings:
        """Where WordNet and the words to keep are."""

    @property
    def training(self) -> TrainingSettings:
        """The seed and the number of epochs."""


def synonym_files(options: SynonymOptions) -> InputFiles:
    """WordNet, the tagger and the list of words to keep, each with its hash, if synonyms are used; else empty.

    Raises `UserError` if one of them is missing.
    """
    if not options.synonyms.used:
        return {}
    folder = wordnet.find_nltk_data(options.files.data)
    keep = keep_file(options.files)
    return {
        "WordNet": (folder / wordnet.WORDNET, wordnet.fingerprint(folder, wordnet.WORDNET)),
        "tagger": (folder / wordnet.TAGGER, wordnet.fingerprint(folder, wordnet.TAGGER)),
        "words that synonyms keep": (keep, sha256_of(keep)),
    }


def keep_file(files: SynonymFileSettings) -> Path:
    """The list of words to keep. Raises `UserError` if there is no such file."""
    if not files.synonyms_keep:
        return KEEP
    return require_file(expand_user(files.synonyms_keep), "--synonyms-keep")


def words_of(path: Path) -> frozenset[str]:
    """The words of a list, in lower case: those of each line up to a `#`."""
    return frozenset(line.partition("#")[0].strip().lower() for line in read_lines(path)) - {""}


def synonym_augmentation(options: SynonymOptions, sets: Mapping[str, Examples], steps: Plan, run: Path) -> Augmentation:
    """The augmentation of training sets that `--synonyms` asks for; `run` is the folder for what is replaced.

    Raises `UserError` if WordNet or the tagger is missing.
    """
    settings = options.synonyms
    if not settings.used:
        return unchanged
    kinds = wordnet.PARTS_OF_METHOD[int(settings.synonyms)]
    keep = words_of(keep_file(options.files))
    words = wordnet.WordNet(wordnet.find_nltk_data(options.files.data), settings.synonyms_senses, keep)
    tagged = {}
    replacements: dict[str, str] = {}
    for name, examples in sets.items():
        texts = list(examples.cache.texts)
        tagged[name] = wordnet.tag(texts, words).only(kinds)
        replacements |= first_replacements(tagged[name], texts)
    replaceable = sum(len(of_set.spans) for of_set in tagged.values())
    pairs = [f"{word} -> {synonym}" for word, synonym in replacements.items()]
    shown = f"such as {', '.join(pairs[:EXAMPLES_SHOWN])}" if pairs else "so no text changes"
    distributed.say(f"synonyms, method {settings.synonyms}: {replaceable:,} words have one in WordNet, {shown}")
    return Synonyms(settings, options.training, tagged, sets, steps, run / "synonyms")


def first_replacements(tagged: Tagged, texts: Sequence[str]) -> dict[str, str]:
    """Some replaceable words, in the order of the texts, each with its first synonym and the number of all."""
    replacements: dict[str, str] = {}
    for number, text in enumerate(texts):
        for start, end, group in tagged.of(number):
            synonyms = tagged.candidates[group]
            replacements.setdefault(text[start:end].lower(), f"{synonyms[0]} (of {len(synonyms)})")
        if len(replacements) >= EXAMPLES_SHOWN:
            break
    return replacements


@dataclass(frozen=True)
class Change:
    """One replaced span of a text."""

    start: int
    end: int
    new: str


def splice(text: str, changes: Sequence[Change]) -> str:
    """Apply the changes, which must be sorted and must not overlap."""
    pieces = []
    done = 0
    for change in changes:
        pieces += [text[done : change.start], change.new]
        done = change.end
    return "".join([*pieces, text[done:]])


def replace_words(
    tagged: Tagged, number: int, text: str, *, p: float, seed: int, row: str, column: int
) -> list[Change]:
    """Methods 1 and 2: the changes of text `number` of `tagged`, in column `column` of the row with the id `row`.

    A word is replaced if its random number is below p, so a larger p keeps the replacements of a smaller p and adds
    more. The random numbers depend only on (seed, row id, column, index of the span), not on other rows of the file.
    """
    spans = tagged.of(number)
    # one number says whether, the other by which synonym
    numbers = numpy_generator(seed, "synonyms", row, column).random((len(spans), 2)).tolist()
    changes = []
    for span, (chance, pick) in zip(spans, numbers, strict=True):
        if chance < p:
            changes.append(_change(tagged, text, span, pick))
    return changes


def replace_adjectives(
    tagged: Tagged,
    number: int,
    text: str,
    batch: PlannedBatch,
    *,
    seed: int,
    row: str,
    column: int,
    count: int = 1,
) -> list[Change]:
    """Method 3: the changes of text `number` of `tagged` (adjectives only) in a batch that is augmented.

    Replaces the first `count` adjectives in even steps of the task, else the last `count`. The choice depends only on
    the seed, the step, the row's id and the column, not on the rows of the batch, chunks or ranks.
    """
    spans = tagged.of(number)
    chosen = spans[:count] if batch.task_index % 2 == 0 else spans[-count:]
    if not chosen:
        return []
    # 4 of the 32 random bytes for each adjective
    random_bytes = digest(seed, "synonyms live", batch.task, batch.step, row, column)
    changes = []
    for i, span in enumerate(chosen):
        pick = int.from_bytes(random_bytes[4 * i : 4 * i + 4], "little") / 2**32
        changes.append(_change(tagged, text, span, pick))
    return changes


def _change(tagged: Tagged, text: str, span: Sequence[int], pick: float) -> Change:
    """The replacement of one span of the tagged text; `pick` in [0, 1) chooses among the synonyms."""
    start, end, group = span
    options = tagged.candidates[group]
    return Change(start, end, in_case(options[int(pick * len(options))], text[start:end]))


def in_case(word: str, like: str) -> str:
    """`word` in the letter case of `like`: `large`, `Large` or `LARGE`. Its own capitals (`USA`) are kept."""
    if like.isupper():
        return word.upper()
    if like[0].isupper():
        return word[0].upper() + word[1:]
    return word


@dataclass
class Synonyms:
    """Augmentation of the training sets of a run by one of the three methods.

    Methods 1 and 2 rewrite a whole set before training, or before each epoch with `--synonyms-grow` (epoch t of T has
    the probability p * t / T, after SelfCCL's linear pacing function, section 4.3.2), and write the texts before and
    after to `folder` for inspection. Method 3 rewrites the rows of a batch in the step; `write_replacements` writes
    what the whole plan replaces.
    """

    settings: SynonymSettings
    training: TrainingSettings
    tagged: Mapping[str, Tagged]
    sets: Mapping[str, Examples]
    steps: Plan
    folder: Path
    # methods 1 and 2: the new texts of each set, and the epoch that they are of
    _rewritten: dict[str, Ids] = field(default_factory=dict, repr=False)
    _epoch_of_set: dict[str, int] = field(default_factory=dict, repr=False)

    def __call__(self, examples: Examples, batch: PlannedBatch) -> Examples:
        """The examples with the texts changed for this step."""
        if self.settings.synonyms == "3":
            new_texts = {}
            for key, (text, changes) in self.changes_of_batch(examples.cache, batch).items():
                new_texts[key] = splice(text, changes)
            return examples.changed(_tokenised(examples, new_texts))
        name = batch.task
        epoch = self._epoch(batch)
        if self._epoch_of_set.get(name) != epoch:
            self._rewritten[name] = self._rewrite(examples, name, epoch)
            self._epoch_of_set[name] = epoch
        return examples.changed(self._rewritten[name])

    def _epoch(self, batch: PlannedBatch) -> int:
        """The epoch, from 1, that sets the rate of replacement: the current one if it grows, else the last."""
        epochs = self.training.epochs
        if not self.settings.synonyms_grow:
            return epochs
        # modulo, because sequential plans number epochs over all tasks
        return batch.epoch % epochs + 1

    def changes_of_batch(
        self, cache: TokenCache, batch: PlannedBatch
    ) -> dict[tuple[int, int], tuple[str, list[Change]]]:
        """Method 3: the texts of a batch that change, each with its changes; it is augmented with probability p."""
        seed = self.training.seed
        name = batch.task
        if numpy_generator(seed, "synonyms live", name, batch.step).random() >= self.settings.synonyms_p:
            return {}
        count = 1
        if self.settings.synonyms_grow:
            count = max(1, MOST_ADJECTIVES * self._epoch(batch) // self.training.epochs)
        changes_of_texts = {}
        for row in batch.rows.tolist():
            row_id = cache.row_ids[row]
            for column in range(cache.num_texts):
                text = cache.text(row, column)
                number = row * cache.num_texts + column
                changes = replace_adjectives(
                    self.tagged[name], number, text, batch, seed=seed, row=row_id, column=column, count=count
                )
                if changes:
                    changes_of_texts[row, column] = text, changes
        return changes_of_texts

    def _rewrite(self, examples: Examples, name: str, epoch: int) -> Ids:
        """Methods 1 and 2: the new texts of a set. Writes a table with one line per text, changed or not."""
        cache = examples.cache
        seed = self.training.seed
        p = self.settings.synonyms_p * (epoch / self.training.epochs)
        new_texts = {}
        lines = []
        for number, text in enumerate(cache.texts):
            row, column = divmod(number, cache.num_texts)
            row_id = cache.row_ids[row]
            changes = replace_words(self.tagged[name], number, text, p=p, seed=seed, row=row_id, column=column)
            new_text = splice(text, changes)
            lines.append((row_id, column, text, new_text))
            if changes:
                new_texts[row, column] = new_text
        if distributed.rank() == 0:
            suffix = f"-epoch-{epoch}" if self.settings.synonyms_grow else ""
            _write_table(self.folder / f"{name}{suffix}.tsv", ["id", "column", "before", "after"], lines)
        return _tokenised(examples, new_texts)


def _tokenised(examples: Examples, texts: Mapping[tuple[int, int], str]) -> Ids:
    return dict(zip(texts, examples.tokenizer.encode(list(texts.values())), strict=True))


def write_replacements(augment: Augmentation) -> None:
    """Method 3: write a table of each set's replacements over the whole plan, the most frequent first.

    A line has a word, its synonym, how often it is replaced by it, and the text in which this comes first. Nothing
    is written if the tables exist, as in a run that is resumed. To be called once the run has begun: before, its folder
    must stay as it is.
    """
    if not isinstance(augment, Synonyms) or augment.settings.synonyms != "3" or distributed.rank():
        return
    folder = augment.folder
    steps = augment.steps
    if all((folder / f"{name}.tsv").exists() for name in augment.sets):
        return
    distributed.say(f"what synonyms replace in {steps.total:,} steps is written to {folder}")
    counts: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in augment.sets}
    first_texts: dict[tuple[str, str, str], str] = {}
    for number in range(steps.total):
        batch = steps.at(number)
        name = batch.task
        for text, changes in augment.changes_of_batch(augment.sets[name].cache, batch).values():
            for change in changes:
                pair = text[change.start : change.end].lower(), change.new.lower()
                counts[name][pair] += 1
                first_texts.setdefault((name, *pair), text)
    for name, count in counts.items():
        lines = [(*pair, times, first_texts[name, *pair]) for pair, times in count.most_common()]
        _write_table(folder / f"{name}.tsv", ["before", "after", "times", "first text"], lines)


def _write_table(path: Path, columns: list[str], lines: list[Any]) -> None:
    table = pd.DataFrame(lines, columns=columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, table.to_csv(sep="\t", index=False, lineterminator="\n"))
