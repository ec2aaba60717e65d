"""Synonyms from WordNet for the tagged words of texts, both by NLTK; inflection by lemminflect.

A word's synonyms are the other lemmas of the synsets that contain the word in the same spelling: "turkey" is not the
republic, "john" not a toilet. Excluded are lemmas that WordNet marks as slurs, obscenities or disparaging, closed-class
words, names and abbreviations as synonyms of common words, adjectives for another position in the sentence ("alive" of
"live"), words that do not fit the "a" or "an" before them, and a list of words for people and rude words (`keep.txt`).

NLTK and lemminflect take a second to import, so they are imported only to look up words: a run without synonyms does
without them.

Axes: N texts, M spans (replaceable words of all texts, in order), G groups (words with the same candidates).
"""

import atexit
import hashlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import UserError
from minbert.files import cached, data_path, sha256_of

WORDNET = "corpora/wordnet"
TAGGER = "taggers/averaged_perceptron_tagger_eng"
PARTS = {
    **dict.fromkeys(("NN", "NNP", "NNS"), "n"),
    **dict.fromkeys(("JJ", "JJR", "JJS"), "a"),
    **dict.fromkeys(("VB", "VBP", "VBZ", "VBG", "VBD", "VBN"), "v"),
    "RB": "r",
}
"""Penn tags whose words can be replaced -> WordNet's part of speech; without plural names and compared adverbs."""
_BASE = {"NN", "NNP", "JJ", "RB", "VB", "VBP"}  # tags of uninflected forms
_UNIVERSAL = {"n": "NOUN", "a": "ADJ", "v": "VERB"}
_REPLACEABLE = re.compile(r"[A-Za-z]{2,}(?:-[A-Za-z]+)*")
_RUDE = {"ethnic_slur", "obscenity", "disparagement"}
_INSIDE_A_PHRASE = {"of", "in", "at", "on", "to", "for", "by", "and"}
PARTS_OF_METHOD = {1: "navr", 2: "na", 3: "a"}
"""Method of replacement (CBCL, section 4.4) -> the parts of speech it replaces."""
_VERSION = 9  # of the results of `tag`, part of the cache key
_PART_NUMBERS = "navr"  # the index of a part is its number in `Tagged.kinds`
# Penn Treebank tokens, as far as a tagger needs them: clitics split off, hyphenated words whole, each sign one token.
TOKEN = re.compile(r"[^\W\d_]+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|t|ll|re|ve)\b|\w+(?:-\w+)*|[^\w\s]", re.IGNORECASE)
_ARTICLE = re.compile(r"\b(an?)\s+$", re.IGNORECASE)
# a word after "an" begins with a vowel, or is one like "hour"; not "unit", "useful", "European" or "one-way"
_AFTER_AN = re.compile(r"heir|hono|hour|honest|(?!eu|on(ce|e)\b|uni(?![dmn])|us[aeu]|ut[eio])[aeiou]", re.IGNORECASE)

# WordNet has only nouns, verbs, adjectives and adverbs. In it, "a" is an angstrom, "in" is indium, "I" is iodine, "be"
# is beryllium, "as" is arsenic, "it" is information technology and "one" is a digit. Auxiliaries, number words,
# quantifiers and light verbs ("have gone", "going to") have entries, but for other uses of the word. CBCL (section 4.4)
# replaces "each word"; it cannot mean these words.
_CLOSED = """
a an the this that these those such same other another own each every either neither both all any some no none
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one ones oneself who whom whose which what whatever whoever whichever
someone somebody something anyone anybody anything everyone everybody everything nobody nothing somewhere anywhere
everywhere nowhere there here then now thus so hence where when why how wherever whenever however therefore
and or but nor yet if unless because since although though while whereas whether than as lest
about above across after against along alongside amid among around at atop before behind below beneath beside besides
between beyond by concerning despite down during except for from in inside into like minus near next of off on onto out
outside over past per plus regarding round throughout through till to toward towards under underneath unlike until up
upon via with within without away back forth apart aside ahead
am is are was were be been being have has had having do does did doing done can could may might must shall should will
would ought need dare used let lets got get gets getting gotten go goes going gone went
able unable worth front
not never ever also too very just only even still again already almost quite rather more most less least much many few
fewer several enough lot lots else instead maybe perhaps yes no ok okay oh ah please well
better best worse worst further farther
zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million millions
billion billions trillion dozen dozens half quarter once twice first second third fourth fifth sixth seventh eighth
ninth tenth last
ii iii iv vi vii viii ix xi xii xiii xiv xv xvi
don doesn didn isn aren wasn weren ain won wouldn shouldn couldn hasn haven hadn mustn needn mightn shan ll ve re nt
dont doesnt didnt isnt arent wasnt cant wont im ive
mr mrs ms dr st vs etc
"""
CLOSED = frozenset(_CLOSED.split())
"""English closed-class words in lower case, which no method replaces."""

Tagger = Callable[[Sequence[str]], list[tuple[str, str]]]
"""Tokens of a sentence -> (token, Penn tag)."""


def find_nltk_data(data: str = "") -> Path:
    """The NLTK data folder that has WordNet and the tagger: of `$NLTK_DATA`, or `nltk_data` in the data folder.

    The data folder is the argument `data`, else `$DATA_DIR`, else `data/`. Raises `UserError` if none has both.
    """
    default = data_path(data) / "nltk_data"
    folders = [Path(name) for name in os.environ.get("NLTK_DATA", "").split(os.pathsep) if name]
    folders.append(default)
    for folder in folders:
        if files(folder, WORDNET) and files(folder, TAGGER):
            return folder.resolve()
    raise UserError(
        f"WordNet and NLTK's tagger are not in {' or '.join(map(str, folders))}; "
        f"`python data/get_data.py wordnet --data {default.parent}` fetches both; "
        "training needs neither with --synonyms none"
    )


def files(folder: Path, resource: str) -> list[Path]:
    """The files of an NLTK resource, unpacked or as one zip file; empty if it is missing."""
    unpacked = sorted(path for path in (folder / resource).glob("*") if path.is_file())
    if unpacked:
        return unpacked
    packed = folder / f"{resource}.zip"
    return [packed] if packed.is_file() else []


def fingerprint(folder: Path, resource: str) -> str:
    """Hex SHA-256 over the names and contents of a resource's files."""
    digest = hashlib.sha256()
    for path in files(folder, resource):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def tagger(folder: Path) -> Tagger:
    """NLTK's English perceptron tagger."""
    from nltk.tag.perceptron import PerceptronTagger

    return PerceptronTagger(loc=_find(folder, TAGGER)).tag


class WordNet:
    """Synonyms from WordNet in an NLTK data folder, for words with their Penn tags.

    `senses="first"` keeps a word's usual meaning: the synonyms are those of WordNet's first sense, the most frequent
    one, without phrases. So "large" is "big", not "enceinte", and "man", whose first sense has no other word, is no
    "serviceman". `all` uses every sense and every phrase, which is another reading of the paper's "replaced with a
    synonym from WordNet". `keep` are words, in lower case, that are neither replaced nor synonyms.
    """

    def __init__(self, folder: Path, senses: str = "first", keep: frozenset[str] = frozenset()) -> None:
        self.folder = folder
        self.senses = senses
        self.keep = keep
        # texts repeat their words
        self.candidates = cache(self._candidates)
        self._senses = cache(self._read_senses)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies everything that the synonyms depend on; used in cache keys."""
        kept = " ".join(sorted(self.keep))
        return f"{fingerprint(self.folder, WORDNET)} {self.senses} lemminflect {version('lemminflect')} without {kept}"

    @cached_property
    def _corpus(self) -> Any:
        from nltk.corpus.reader.wordnet import WordNetCorpusReader

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "multilingual functions are not available": only English is read
            return WordNetCorpusReader(_find(self.folder, WORDNET), None)

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        """Sense key -> count in the sense-tagged corpus. NLTK's own function opens the file for each lemma."""
        counts = {}
        with self._corpus.open("cntlist.rev") as lines:
            for line in lines:
                key, _, count = line.split()
                counts[key] = int(count)
        return counts

    def synonyms(self, lemma: str, part: str) -> list[str]:
        """The synonyms of a lemma as a part of speech (n, a, v, r), those of its first sense first."""
        if lemma.lower() in self.keep:
            return []
        senses = self._senses(lemma, part)
        synonyms: list[str] = []
        if self.senses == "all":
            for _, lemmas in senses:
                synonyms += lemmas
        elif senses:
            _, lemmas = senses[0]
            synonyms = [other for other in lemmas if " " not in other]
        return [other for other in dict.fromkeys(synonyms) if self.keep.isdisjoint(other.lower().split(" "))]

    def lemma(self, word: str, tag: str) -> str | None:
        """The most frequent lemma of a word with its Penn tag; None if WordNet has none."""
        from lemminflect import getInflection, getLemma

        part = PARTS[tag]
        if tag in _BASE:
            stems = [word]
        else:
            stems = [stem for stem in getLemma(word, _UNIVERSAL[part]) if word in getInflection(stem, tag)]
            if tag == "NNS":
                stems.append(word)  # glasses, pants
        # a word may be a form of several lemmas: "saw" is one of "see" and one of "saw"
        lemmas = [stem for stem in stems if self._senses(stem, part)]
        return max(lemmas, key=lambda lemma: self._uses(lemma, part), default=None)

    def _candidates(self, word: str, tag: str) -> tuple[str, ...]:
        """The synonyms of a word with this Penn tag, inflected like the word but not in its letter case; often empty.

        Empty for closed-class words, numbers and mixed case. Synonyms are dropped if the dictionary does not have the
        inflected form. A name (NNP) is looked up as spelled, any other word in lower case.
        """
        lower = word.lower()
        if tag not in PARTS or lower in CLOSED or not _REPLACEABLE.fullmatch(word) or _mixed_case(word):
            return ()
        lemma = self.lemma(word if tag == "NNP" else lower, tag)
        if lemma is None:
            return ()
        forms = []
        for synonym in self.synonyms(lemma, PARTS[tag]):
            if tag == "NN" or (tag == "NNS" and lemma == lower):
                # not inflected: the synonyms have to be singular or plural as the word is
                form = synonym if _is_plural(synonym) == (tag == "NNS") else None
            else:
                form = inflected(synonym, tag)
            if form and form.lower() != lower:
                forms.append(form)
        return tuple(dict.fromkeys(forms))

    def _read_senses(self, lemma: str, part: str) -> list[tuple[int, list[str]]]:
        """(count of the lemma in this sense, synonyms) for each sense, in WordNet's order."""
        name = lemma.replace(" ", "_")
        senses = []
        for synset in self._corpus.synsets(name, part):
            for entry in synset.lemmas():
                if entry.name() == name:  # in the same spelling
                    count = self._counts.get(entry.key(), 0)
                    senses.append((count, _replacements(lemma, synset)))
                    break
        return senses

    def _uses(self, lemma: str, part: str) -> int:
        """Count of a lemma as a part of speech."""
        return sum(count for count, _ in self._senses(lemma, part))


def _replacements(lemma: str, synset: Any) -> list[str]:
    """The lemmas of a synset that can replace `lemma`: no slurs, names for common words, signs or digits.

    Adjectives that WordNet marks for another position than the lemma's, attributive or predicative, are left out too.
    """
    if _is_rude(synset):
        return []
    positions = {}
    for other in synset.lemmas():
        if not _is_rude(other):
            positions[str(other.name()).replace("_", " ")] = other.syntactic_marker()
    if lemma not in positions:
        return []
    fitting = (None, positions[lemma])
    return [other for other, position in positions.items() if position in fitting and _can_replace(lemma, other)]


def inflected(lemma: str, tag: str) -> str | None:
    """The inflected form of a lemma for a Penn tag, or None if the dictionary does not have it.

    In a lemma of several words the last word (nouns) or the first (verbs) is inflected. None for compared adjectives
    of several words and for plurals of lemmas with a preposition.
    """
    if tag in _BASE:
        return lemma
    from lemminflect import getInflection

    words = lemma.split(" ")
    if len(words) > 1 and (PARTS[tag] == "a" or (tag == "NNS" and _INSIDE_A_PHRASE & set(words))):
        return None
    position = -1 if tag == "NNS" else 0
    forms = getInflection(words[position], tag, inflect_oov=False)
    if not forms:
        return None
    words[position] = forms[0]
    return " ".join(words)


def _mixed_case(word: str) -> bool:
    """Whether a word is neither lower case, upper case nor capitalised: iPhone, eBay."""
    return not (word.isupper() or word[1:].islower())


def _can_replace(lemma: str, other: str) -> bool:
    # no "yr", no "C"
    is_word = len(other) > 2 and all(_REPLACEABLE.fullmatch(word) for word in other.split(" "))
    is_name_of_common_word = other != other.lower() and lemma == lemma.lower()
    is_other_word = other.lower() != lemma.lower() and other.lower() not in CLOSED
    return is_word and is_other_word and not is_name_of_common_word


def _is_plural(word: str) -> bool:
    from lemminflect import getLemma

    return any(stem != word for stem in getLemma(word, "NOUN"))


def _is_rude(synset_or_lemma: Any) -> bool:
    return any(domain.name().split(".")[0] in _RUDE for domain in synset_or_lemma.usage_domains())


def _find(folder: Path, resource: str) -> Any:
    """NLTK's path of a resource in a folder, which is added to its search path: outside it NLTK reads nothing."""
    import nltk.data

    protected = str(_protected_folder(folder))
    if protected not in nltk.data.path:
        nltk.data.path.insert(0, protected)
    return nltk.data.find(f"{resource}/", paths=[protected])


@cache
def _protected_folder(folder: Path) -> Path:
    """The folder, or a copy until the end of this process if other users could have written its files.

    NLTK refuses such files. A clone has them under a umask of 002, and in a container where another user owns it.
    """
    paths = [*files(folder, WORDNET), *files(folder, TAGGER)]
    if not any(map(_others_can_write, (folder, *paths, *(path.parent for path in paths)))):
        return folder
    copy = Path(tempfile.mkdtemp(prefix="minbert-nltk-")).resolve()
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    umask = os.umask(0o077)
    try:
        for path in paths:
            target = copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    finally:
        os.umask(umask)
    return copy


def _others_can_write(path: Path) -> bool:
    """Whether a user other than this one and root owns the file or folder, or has the right to write to it."""
    status = path.stat()
    return status.st_uid not in (os.geteuid(), 0) or bool(status.st_mode & 0o022)


@dataclass(frozen=True, repr=False)
class Tagged:
    """The replaceable words of N texts. The spans of text i are `ends[i]` to `ends[i + 1]`.

    A span is (start, end, group); the first two are character offsets in the text.
    """

    ends: np.ndarray  # int64 [N + 1]
    spans: np.ndarray  # int32 [M, 3]
    kinds: np.ndarray  # uint8 [M]: 0 noun, 1 adjective, 2 verb, 3 adverb
    candidates: tuple[tuple[str, ...], ...]  # [G]

    def only(self, kinds: str) -> "Tagged":
        """The same texts with the spans of some kinds only, letters of `navr`."""
        keep = np.isin(self.kinds, [_PART_NUMBERS.index(kind) for kind in kinds])
        ends = np.concatenate([[0], np.cumsum(keep)])[self.ends]
        return replace(self, ends=ends, spans=self.spans[keep], kinds=self.kinds[keep])

    def of(self, text: int) -> list[list[int]]:
        """The spans of one text, in order."""
        return self.spans[self.ends[text] : self.ends[text + 1]].tolist()


def tag(texts: Sequence[str], wordnet: WordNet) -> Tagged:
    """The replaceable words of each text, from the cache if possible; otherwise computed and cached.

    The cache key covers the texts, WordNet and the tagger. Raises `OSError` if the cache cannot be written.
    """
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8") + b"\0")
    key = (_VERSION, wordnet.fingerprint, fingerprint(wordnet.folder, TAGGER), len(texts), digest.hexdigest())
    arrays, groups = cached("synonyms", key, lambda: _tag(texts, wordnet))
    return Tagged(**arrays, candidates=tuple(map(tuple, groups["candidates"])))


def _tag(texts: Sequence[str], wordnet: WordNet) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of a `Tagged`, and its candidates, for the cache."""
    tags_of = tagger(wordnet.folder)
    groups: dict[tuple[str, ...], int] = {}

    # NLI premises are repeated
    @cache
    def spans_of(text: str) -> list[tuple[int, int, int, int]]:
        """(start, end, group, kind) of each replaceable word."""
        spans = []
        for start, end, name in _words(text, tags_of):
            candidates = wordnet.candidates(text[start:end], name)
            article = _ARTICLE.search(text, 0, start)
            if article:
                candidates = _fit_article(article[1], candidates)
            if candidates:
                group = groups.setdefault(candidates, len(groups))
                spans.append((start, end, group, _PART_NUMBERS.index(PARTS[name])))
        return spans

    spans = []
    ends = [0]
    for text in texts:
        spans += spans_of(text)
        ends.append(len(spans))
    table = np.array(spans, dtype=np.int32).reshape(-1, 4)
    arrays = {"ends": np.array(ends), "spans": table[:, :3], "kinds": table[:, 3].astype(np.uint8)}
    return arrays, {"candidates": list(groups)}


def _fit_article(article: str, candidates: tuple[str, ...]) -> tuple[str, ...]:
    """The candidates that can stand after this indefinite article, "a" or "an"."""
    after_an = article.lower() == "an"
    return tuple(word for word in candidates if bool(_AFTER_AN.match(word)) == after_an)


def _words(text: str, tags_of: Tagger) -> Iterator[tuple[int, int, str]]:
    """(start, end, Penn tag) of each token."""
    tokens = list(TOKEN.finditer(text))
    lower = text.lower()
    # words in capitals would be tagged as names
    tagged_text = lower if text.isupper() and len(lower) == len(text) else text
    words = [tagged_text[token.start() : token.end()] for token in tokens]
    for token, (word, name) in zip(tokens, tags_of(words), strict=True):
        if name == "NNP" and word.islower():
            name = "NN"
        yield token.start(), token.end(), name
