"""Synonyms from WordNet, and the perceptron tagger, both read through NLTK; inflection by lemminflect.

A word's synonyms are the other lemmas of the synsets that contain the word in the same spelling: "turkey" is not the
republic, "john" not a toilet. Excluded are lemmas that WordNet marks as slurs, obscenities or disparaging, closed-class
words, and names and abbreviations as synonyms of common words.

NLTK and lemminflect take a second to import, so they are imported only to look up words; finding and hashing the files
needs neither.
"""

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from minbert.errors import UserError, one_of
from tasks.augment.closed_class import CLOSED

WORDNET = "corpora/wordnet"
TAGGER = "taggers/averaged_perceptron_tagger_eng"
SENSES = ("first", "all")
RARE = 0.2
"""Senses with less than this share of a lemma's counts in the sense-tagged corpus are rare."""
PARTS = {
    **dict.fromkeys(("NN", "NNP", "NNS"), "n"),
    **dict.fromkeys(("JJ", "JJR", "JJS"), "a"),
    **dict.fromkeys(("VB", "VBP", "VBZ", "VBG", "VBD", "VBN"), "v"),
    "RB": "r",
}
"""Penn tags whose words can be replaced -> WordNet's part of speech."""
_BASE = {"NN", "NNP", "JJ", "RB", "VB", "VBP"}  # tags of uninflected forms
_GUESSES = ("NN", "JJ", "VB", "RB", "NNS", "VBG", "VBD", "VBZ", "JJR", "JJS")
_UNIVERSAL = {"n": "NOUN", "a": "ADJ", "v": "VERB"}
_WORD = re.compile(r"[A-Za-z]{2,}(?:-[A-Za-z]+)*")
_RUDE = {"ethnic_slur", "obscenity", "disparagement"}
_INSIDE_A_PHRASE = {"of", "in", "at", "on", "to", "for", "by", "and"}


Tagger = Callable[[Sequence[str]], list[tuple[str, str]]]
"""Tokens of a sentence -> (token, Penn tag)."""


def find(data: str = "") -> Path:
    """The NLTK data folder that has WordNet: the first of `$NLTK_DATA`, else `nltk_data` in the data folder.

    The data folder is the argument `data`, else `$DATA_DIR`, else `data/`. Raises `UserError` if none has WordNet.
    """
    own = [Path(name) for name in os.environ.get("NLTK_DATA", "").split(os.pathsep) if name]
    folder = Path(data or os.environ.get("DATA_DIR") or "data")
    for candidate in (*own, folder / "nltk_data"):
        if files(candidate, WORDNET):
            return candidate.resolve()
    raise UserError(
        f"WordNet is in none of its usual places ({', '.join(map(str, (*own, folder / 'nltk_data')))}); "
        f"python data/get_data.py wordnet --data {folder} fetches it for --synonyms"
    )


def files(folder: Path, resource: str) -> list[Path]:
    """The files of an NLTK resource, unpacked or as one zip file; empty if it is missing."""
    packed = folder / f"{resource}.zip"
    unpacked = sorted(path for path in (folder / resource).glob("*") if path.is_file())
    return unpacked or ([packed] if packed.is_file() else [])


def fingerprint(folder: Path, resource: str) -> str:
    """Hex SHA-256 over the names and contents of a resource's files; that of no bytes if it is missing."""
    digest = hashlib.sha256()
    for path in files(folder, resource):
        with open(path, "rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Turn any exception that NLTK raises on a damaged file into a `UserError`: the remedy is to fetch it again."""
    try:
        yield
    except Exception as error:
        raise UserError(
            f"{folder}: NLTK cannot read it ({error.__class__.__name__}: {error}); fetch it again "
            f"(python data/get_data.py wordnet --data {folder.parent})"
        ) from error


def tagger(folder: Path) -> Tagger | None:
    """NLTK's English perceptron tagger, or None if its files are not in the folder. `UserError` if it is damaged."""
    if not files(folder, TAGGER):
        return None
    from nltk.tag.perceptron import PerceptronTagger

    with readable(folder):
        return PerceptronTagger(loc=_nltk_data(folder).find(f"{TAGGER}/", paths=[str(folder)])).tag


class WordNet:
    """Synonyms from WordNet in an NLTK data folder, for words with their Penn tags.

    `senses="first"` keeps a word's usual meaning: senses with less than a fifth of its counts are excluded ("large" is
    "big", not "enceinte"), and so are synonyms of several words. `all` uses every sense and every phrase, which is
    another reading of the paper's "replaced with a synonym from WordNet".
    """

    def __init__(self, folder: Path, senses: str = "first") -> None:
        self.folder, self.senses = folder, one_of(senses, SENSES, "senses")
        self.candidates, self._senses = cache(self._candidates), cache(self._read_senses)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies everything that the synonyms depend on; used in cache keys."""
        return f"{fingerprint(self.folder, WORDNET)} {self.senses} lemminflect {version('lemminflect')}"

    @cached_property
    def _corpus(self) -> Any:
        data = _nltk_data(self.folder)
        from nltk.corpus.reader.wordnet import WordNetCorpusReader

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "multilingual functions are not available": only English is read
            return WordNetCorpusReader(data.find(WORDNET, paths=[str(self.folder)]), None)

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        """Sense key -> count in the sense-tagged corpus. NLTK's own function opens the file for each lemma."""
        with self._corpus.open("cntlist.rev") as lines:
            return {key: int(count) for key, _, count in map(str.split, lines)}

    def synonyms(self, lemma: str, part: str) -> list[str]:
        """The synonyms of a lemma as a part of speech (n, a, v, r), those of its most frequent sense first."""
        senses = sorted(self._senses(lemma, part), key=lambda sense: -sense[0])
        total = sum(count for count, _ in senses)
        if self.senses == "first":
            senses = [sense for sense in senses if sense[0] >= RARE * total]
        found = dict.fromkeys(other for _, others in senses for other in others)
        return [one for one in found if self.senses == "all" or " " not in one]

    def lemma(self, word: str, tag: str) -> str | None:
        """The most frequent lemma of a word with its Penn tag; None if WordNet has none."""
        from lemminflect import getInflection, getLemma

        part, stems = PARTS[tag], [word]
        if tag not in _BASE:
            stems = [stem for stem in getLemma(word, _UNIVERSAL[part]) if word in getInflection(stem, tag)]
            stems += [word] if tag == "NNS" else []  # glasses, pants
        uses = {stem: self._uses(stem, part) for stem in stems}
        return max((stem for stem in stems if uses[stem] >= 0), key=lambda stem: uses[stem], default=None)

    def _candidates(self, word: str, tag: str) -> tuple[str, ...]:
        """The synonyms of a word with this Penn tag, inflected like the word but not in its letter case; often empty.

        Empty for closed-class words, numbers and mixed case. Synonyms are dropped if the dictionary does not have the
        inflected form. A name (NNP) is looked up as spelled, any other word in lower case.
        """
        lower = word.lower()
        if tag not in PARTS or lower in CLOSED or not _WORD.fullmatch(word) or _mixed_case(word):
            return ()
        lemma = self.lemma(word if tag == "NNP" else lower, tag)
        if lemma is None:
            return ()
        synonyms = self.synonyms(lemma, PARTS[tag])
        if tag == "NNS" and lemma == lower:
            found = [one for one in synonyms if _is_plural(one)]
        else:
            found = [form for one in synonyms if (form := inflected(one, tag))]
        return tuple(dict.fromkeys(one for one in found if one.lower() != lower))

    def guess(self, word: str) -> str:
        """A Penn tag without a tagger: the one whose lemma and part of speech have the highest count in WordNet."""
        lower = word.lower()
        if lower in CLOSED or not _WORD.fullmatch(word):
            return "-"
        lemmas = {tag: lemma for tag in _GUESSES if (lemma := self.lemma(lower, tag))}
        return max(lemmas, key=lambda tag: self._uses(lemmas[tag], PARTS[tag]), default="-")

    def _read_senses(self, lemma: str, part: str) -> list[tuple[int, list[str]]]:
        """(count of the lemma in this sense, synonyms) for each sense, in WordNet's order."""
        name, found = lemma.replace(" ", "_"), []
        with readable(self.folder):
            for synset in self._corpus.synsets(name, part):
                own = [one for one in synset.lemmas() if one.name() == name]
                found += [(self._counts.get(one.key().lower(), 0), _others(lemma, synset)) for one in own[:1]]
        return found

    def _uses(self, lemma: str, part: str) -> int:
        """Count of a lemma as a part of speech; -1 if WordNet does not have it."""
        senses = self._senses(lemma, part)
        return sum(count for count, _ in senses) if senses else -1


def _others(lemma: str, synset: Any) -> list[str]:
    """The lemmas of a synset that can replace `lemma`: no slurs, names for common words, signs or digits."""
    lemmas = [] if _is_rude(synset) else [_spelled(one) for one in synset.lemmas() if not _is_rude(one)]
    return [one for one in lemmas if lemma in lemmas and _can_replace(lemma, one)]


def inflected(lemma: str, tag: str) -> str | None:
    """The inflected form of a lemma for a Penn tag, or None if the dictionary does not have it.

    In a lemma of several words the last word (nouns) or the first (verbs) is inflected. None for adjectives of several
    words and for plurals of lemmas with a preposition.
    """
    if tag in _BASE:
        return lemma
    from lemminflect import getInflection

    words = lemma.split(" ")
    if len(words) > 1 and (PARTS[tag] == "a" or (tag == "NNS" and _INSIDE_A_PHRASE & set(words))):
        return None
    place = -1 if tag == "NNS" else 0
    forms = getInflection(words[place], tag, inflect_oov=False)
    if not forms:
        return None
    words[place] = forms[0]
    return " ".join(words)


def _mixed_case(word: str) -> bool:
    """Whether a word is neither lower case, upper case nor capitalised: iPhone, eBay."""
    return not (word.islower() or word.isupper() or word[1:].islower())


def _can_replace(lemma: str, other: str) -> bool:
    spelled = len(other) > 2 and all(_WORD.fullmatch(word) for word in other.split(" "))  # no "yr", no "C"
    named = other != other.lower() and lemma == lemma.lower()
    return spelled and not named and other.lower() != lemma.lower() and other.lower() not in CLOSED


def _is_plural(word: str) -> bool:
    from lemminflect import getLemma

    return any(stem != word for stem in getLemma(word, "NOUN"))


def _is_rude(synset_or_lemma: Any) -> bool:
    return any(domain.name().split(".")[0] in _RUDE for domain in synset_or_lemma.usage_domains())


def _spelled(lemma: Any) -> str:
    return str(lemma.name()).replace("_", " ")


def _nltk_data(folder: Path) -> Any:
    """NLTK's `data` module, with the folder added to its search path, outside which it reads nothing."""
    import nltk.data

    if str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))
    return nltk.data
