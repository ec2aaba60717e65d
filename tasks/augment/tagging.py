"""The replaceable words of a set of texts and their synonyms, computed once and cached on disk as arrays.

Axes: N texts, M places (replaceable words of all texts, in order), G groups (distinct words with their candidates).
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from minbert.errors import UserError
from minbert.files import default_folder, write_atomic
from tasks.augment.wordnet import PARTS, TAGGER, Tagger, WordNet, fingerprint, tagger

KINDS = {1: "navr", 2: "na", 3: "a"}
"""Method -> the parts of speech it replaces."""
_VERSION = 2
_ORDER = "navr"
_OTHER = len(_ORDER)
# Penn Treebank tokens, as far as a tagger needs them: clitics split off, hyphenated words whole, each sign one token.
_TOKEN = re.compile(r"[^\W\d_]+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|t|ll|re|ve)\b|\w+(?:-\w+)*|[^\w\s]", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*")
_ARTICLE = re.compile(r"(?<![\w'’.-])an?\s+$", re.IGNORECASE)


@dataclass(frozen=True)
class Tagged:
    """The replaceable words of N texts. The places of text i are `ends[i]` to `ends[i + 1]`.

    A place is (start of an article right before the word, or -1; start; end; group); the first three are character
    offsets in the text.
    """

    tagging: str  # "perceptron" or "wordnet counts"
    ends: np.ndarray = field(repr=False)  # int64 [N + 1]
    places: np.ndarray = field(repr=False)  # int32 [M, 4]
    kinds: np.ndarray = field(repr=False)  # uint8 [M]: 0 noun, 1 adjective, 2 verb, 3 adverb
    seen: np.ndarray = field(repr=False)  # int64 [5]: number of nouns, adjectives, verbs, adverbs, other words
    words: tuple[str, ...] = field(repr=False)  # [G], lower case
    candidates: tuple[tuple[str, ...], ...] = field(repr=False)  # [G]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def only(self, kinds: str) -> "Tagged":
        """The same texts with only the places of the given kinds, letters of `navr`."""
        keep = np.isin(self.kinds, [_ORDER.index(kind) for kind in kinds])
        ends = np.concatenate([[0], np.cumsum(keep)])[self.ends]
        return replace(self, ends=ends, places=self.places[keep], kinds=self.kinds[keep])

    def of(self, text: int) -> list[list[int]]:
        """The places of one text, in order."""
        return self.places[self.ends[text] : self.ends[text + 1]].tolist()

    def coverage(self, method: int) -> float:
        """Share of the target words of a method (1, 2, 3) that have a synonym; 0 if there are no target words.

        Target words are all words (method 1: the paper's "each word"), nouns and adjectives (2), or adjectives (3).
        """
        kinds = [_ORDER.index(kind) for kind in KINDS[method]]
        meant = int(self.seen.sum() if method == 1 else self.seen[kinds].sum())
        return float(np.isin(self.kinds, kinds).sum() / max(meant, 1))


def tag(texts: Sequence[str], wordnet: WordNet) -> Tagged:
    """The replaceable words of each text, from the cache if possible; otherwise computed and cached.

    Uses the tagger in WordNet's data folder; if it is missing, WordNet's sense counts decide the part of speech. The
    cache key covers the texts, WordNet and the tagger. Raises `UserError` if NLTK cannot read its files, or if the
    cache cannot be written.
    """
    digest = hashlib.sha256(f"{_VERSION} {wordnet.fingerprint} {len(texts)}".encode())
    digest.update(fingerprint(wordnet.folder, TAGGER).encode())
    for text in texts:
        digest.update(text.encode("utf-8") + b"\0")
    path = default_folder() / "synonyms" / f"tags-{digest.hexdigest()[:32]}.npz"
    if not path.is_file():
        _write(path, _find(texts, wordnet))
    return _read(path)


def _find(texts: Sequence[str], wordnet: WordNet) -> Tagged:
    tags_of = tagger(wordnet.folder)
    groups: dict[tuple[str, tuple[str, ...]], int] = {}

    def places(text: str) -> tuple[list[tuple[int, int, int, int, int]], np.ndarray]:
        """(article, start, end, group, kind) of each replaceable word, and the number of words of each kind: [5]."""
        found, kinds = [], []
        for article, start, end, name in _words(text, wordnet, tags_of):
            word, kind = text[start:end], _ORDER.index(PARTS[name]) if name in PARTS else _OTHER
            kinds.append(kind)
            if candidates := wordnet.candidates(word, name):
                group = groups.setdefault((word.lower(), candidates), len(groups))
                found.append((article, start, end, group, kind))
        return found, np.bincount(np.array(kinds, dtype=np.int64), minlength=_OTHER + 1)

    known = {text: places(text) for text in dict.fromkeys(texts)}  # NLI premises are repeated
    every = np.array([place for text in texts for place in known[text][0]], dtype=np.int32).reshape(-1, 5)
    ends = np.cumsum([0, *(len(known[text][0]) for text in texts)])
    seen = sum((known[text][1] for text in texts), np.zeros(_OTHER + 1, dtype=np.int64))
    how = "perceptron" if tags_of else "wordnet counts"
    words, candidates = tuple(word for word, _ in groups), tuple(found for _, found in groups)
    return Tagged(how, ends, every[:, :4], every[:, 4].astype(np.uint8), seen, words, candidates)


def _words(text: str, wordnet: WordNet, tags_of: Tagger | None) -> Iterator[tuple[int, int, int, str]]:
    """(start of an article right before it, or -1; start; end; Penn tag) of each word."""
    tokens = list(_TOKEN.finditer(text))
    lower = text.lower()
    spoken = lower if text.isupper() and len(lower) == len(text) else text  # tagged as names otherwise
    heard = [spoken[token.start() : token.end()] for token in tokens]
    tags = [name for _, name in tags_of(heard)] if tags_of else [wordnet.guess(word) for word in heard]
    for token, word, name in zip(tokens, heard, tags, strict=True):
        if _WORD.fullmatch(word):
            article = _ARTICLE.search(text, max(0, token.start() - 8), token.start())
            tag = "NN" if name == "NNP" and word.islower() else name
            yield article.start() if article else -1, token.start(), token.end(), tag


def _write(path: Path, tagged: Tagged) -> None:
    """Write the cache atomically; processes that write it at the same time write the same content."""
    strings = json.dumps([tagged.tagging, tagged.words, tagged.candidates]).encode()
    file = io.BytesIO()
    arrays = {name: getattr(tagged, name) for name in ("ends", "places", "kinds", "seen")}
    np.savez(file, strings=np.frombuffer(strings, dtype=np.uint8), **arrays)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, file.getvalue())
    except OSError as error:
        raise UserError(f"{path}: the cache cannot be written: {error.strerror or error}") from error


def _read(path: Path) -> Tagged:
    with np.load(path, allow_pickle=False) as stored:
        tagging, words, candidates = json.loads(stored["strings"].tobytes())
        arrays = {name: stored[name] for name in ("ends", "places", "kinds", "seen")}
        return Tagged(tagging, words=tuple(words), candidates=tuple(map(tuple, candidates)), **arrays)
