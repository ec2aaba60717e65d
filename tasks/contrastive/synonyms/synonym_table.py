"""The table of synonyms: every word of WordNet, read once through NLTK, kept as JSON; afterwards NLTK is not needed.

A word's synonyms are the other lemmas of the synsets that hold the word in its own spelling, so "turkey" is no
republic and "john" no toilet. Left out: lemmas that WordNet marks as slurs, obscenities or disparaging; names and
abbreviations as synonyms of common words; and, unless `all_senses`, the synonyms from senses that make up less than a
fifth of the word's counted uses ("large" is "big", not "enceinte"): the paper names no choice among senses, and without
one most replacements mean something else. Two lemmas apart in case alone are one word.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from minbert.errors import UserError
from minbert.files import read_json, write_atomic
from minbert.token_cache import default_folder
from tasks.contrastive.synonyms import inflection, wordnet
from tasks.contrastive.synonyms.closed_class import CLOSED
from tasks.contrastive.synonyms.inflection import PARTS

RARE = 0.2
"""Senses below this share of a word's counted uses are rare."""
_VERSION = 1
_WORD = re.compile(r"[A-Za-z]{2,}(?:-[A-Za-z]+)*")


class Entry(NamedTuple):
    """A word in one part of speech: how often it was counted, its synonyms, and those of its rare senses alone."""

    uses: int
    common: Sequence[str]
    rare: Sequence[str] = ()


@dataclass(frozen=True)
class SynonymTable:
    """Synonyms by part of speech (n, v, a, r) and lemma, and WordNet's irregular forms by part and form."""

    words: Mapping[str, Mapping[str, Sequence[Any]]] = field(
        repr=False
    )  # the values are made into `Entry` when asked for
    irregular: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict, repr=False)
    multiword: bool = False
    all_senses: bool = False
    source: str = ""

    @classmethod
    def of(cls, synonyms: Mapping[tuple[str, str], Sequence[str]], *, multiword: bool = False) -> Self:
        """A small table from (lemma, part of speech) -> synonyms, without irregular forms."""
        words: dict[str, dict[str, Entry]] = {part: {} for part in wordnet.PARTS}
        for (lemma, part), others in synonyms.items():
            words[part][lemma] = Entry(1, tuple(others))
        return cls(words, multiword=multiword, source=repr(sorted(synonyms.items())))

    @property
    def fingerprint(self) -> str:
        """What the answers of this table depend on, as text: part of the key of whatever is made with it."""
        return f"{_VERSION} {self.source} {self.multiword} {self.all_senses}"

    @cached_property
    def _forms(self) -> dict[str, dict[str, list[str]]]:
        """The irregular forms the other way round: part of speech -> lemma -> forms."""
        forms: dict[str, dict[str, list[str]]] = {}
        for part, lemmas in self.irregular.items():
            of = forms.setdefault(part, {})
            for form, names in lemmas.items():
                for name in names:
                    of.setdefault(name, []).append(form)
        return forms

    def synonyms(self, lemma: str, part: str) -> tuple[str, ...]:
        """The synonyms of a lemma under this table's options; never the lemma itself."""
        stored = self.words.get(part, {}).get(lemma)
        if stored is None:
            return ()
        entry = Entry(*stored)
        found = (*entry.common, *entry.rare) if self.all_senses else entry.common
        return tuple(one for one in found if one.lower() != lemma.lower() and (self.multiword or " " not in one))

    def lemma(self, word: str, tag: str) -> str | None:
        """The lemma of a word under its Penn tag, the most counted of several that are possible; None without any."""
        part = PARTS[tag]
        known = self.words.get(part, {})
        found = [stem for stem in inflection.stems(word, tag, self.irregular.get(part, {})) if stem in known]
        return max(found, key=lambda stem: known[stem][0], default=None)

    def candidates(self, word: str, tag: str) -> tuple[str, ...]:
        """What may stand in place of a word with this Penn tag, in the word's own form and lower case; often nothing.

        Nothing for words of the closed classes, numbers, mixed case, and words whose form cannot be carried over.
        A name (NNP) is looked up as it is spelled; any other word in lower case.
        """
        lower = word.lower()
        if tag not in PARTS or lower in CLOSED or not _WORD.fullmatch(word) or inflection.shape(word) == "mixed":
            return ()
        lemma = self.lemma(word if tag == "NNP" else lower, tag)
        found = self._plural_only(lower, lemma) if tag == "NNS" else None
        if found is None:
            found = self._inflected(lemma, tag) if lemma else []
        return tuple(dict.fromkeys(one for one in found if one.lower() != lower))

    def _inflected(self, lemma: str, tag: str) -> list[str]:
        part = PARTS[tag]
        forms = self._forms.get(part, {})
        return [form for one in self.synonyms(lemma, part) if (form := inflection.inflect(one, tag, forms))]

    def _plural_only(self, word: str, singular: str | None) -> list[str] | None:
        """For a plural that is a lemma of its own and counted more than its singular (glasses, pants): its synonyms.

        Only those that look like plurals, since the number of the others is not known. None for other words.
        """
        nouns = self.words.get("n", {})
        if word not in nouns or (singular and nouns[singular][0] > nouns[word][0]):
            return None
        return [one for one in self.synonyms(word, "n") if re.search(r"[^sui]s$", one)]

    def guess(self, word: str) -> str:
        """A Penn tag without a tagger: the part of speech, and form, under which the word's lemma was counted most."""
        lower, nouns_first = word.lower(), ("NN", "JJ", "VB", "RB", "NNS", "VBG", "VBD", "VBZ", "JJR", "JJS")
        if lower in CLOSED:
            return "-"
        found = {tag: lemma for tag in nouns_first if (lemma := self.lemma(lower, tag))}
        return max(found, key=lambda tag: self.words[PARTS[tag]][found[tag]][0], default="-")


def load(folder: Path, *, multiword: bool = False, all_senses: bool = False) -> SynonymTable:
    """The table of the WordNet in an NLTK data folder, from the cache; where it is missing, it is built in seconds."""
    source = wordnet.fingerprint(folder, wordnet.WORDNET)
    path = default_folder() / "synonyms" / f"{_VERSION}-{source[:32]}.json"
    if not path.is_file():
        content = json.dumps(_content(*wordnet.read(folder)), ensure_ascii=False, separators=(",", ":"))
        keep_first(path, content)
    stored = read_json(path)
    return SynonymTable(stored["words"], stored["irregular"], multiword, all_senses, source)


def keep_first(path: Path, content: str | bytes) -> None:
    """Write a cache file whole, unless another process has finished the same one meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            write_atomic(path, content)
    except OSError as error:
        raise UserError(f"{path}: the cache cannot be written: {error.strerror or error}") from error


def _content(
    senses: Iterable[wordnet.Sense], irregular: Mapping[str, Mapping[str, Sequence[str]]]
) -> dict[str, object]:
    """The JSON of a table: part -> lemma -> [count, synonyms, synonyms of rare senses alone], most used sense first."""
    uses: dict[str, dict[str, list[tuple[int, tuple[str, ...]]]]] = {part: {} for part in wordnet.PARTS}
    for sense in senses:
        for lemma, count, rude in zip(sense.lemmas, sense.counts, sense.rude, strict=True):
            if _WORD.fullmatch(lemma):
                others = () if rude else tuple(_others(lemma, sense))
                uses[sense.part].setdefault(lemma, []).append((count, others))
    words = {part: {lemma: _entry(found) for lemma, found in sorted(of.items())} for part, of in uses.items()}
    return {"words": words, "irregular": irregular}


def _others(lemma: str, sense: wordnet.Sense) -> Iterable[str]:
    """The lemmas that can stand for another: no slur, no name or abbreviation for a common word, no sign or digit."""
    for other, rude in zip(sense.lemmas, sense.rude, strict=True):
        spelled = len(other) > 2 and all(_WORD.fullmatch(word) for word in other.split(" "))  # no "yr", no "C"
        named = other != other.lower() and lemma == lemma.lower()
        if spelled and not (rude or named or other.lower() == lemma.lower() or other.lower() in CLOSED):
            yield other


def _entry(uses: Sequence[tuple[int, tuple[str, ...]]]) -> tuple[int, list[str], list[str]]:
    total = sum(count for count, _ in uses)
    ordered = sorted(uses, key=lambda use: -use[0])
    common = [one for count, others in ordered if count >= RARE * total for one in others]
    rare = [one for _, others in ordered for one in others if one not in common]
    return total, list(dict.fromkeys(common)), list(dict.fromkeys(rare))
