"""Which words of which sentences can be replaced, and by what: found once for a set of texts, kept as arrays on disk.

Axes: N texts, M places (replaceable words of all texts, in order), G groups (distinct word, tag -> candidates).
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from minbert.token_cache import default_folder
from tasks.contrastive.synonyms import wordnet
from tasks.contrastive.synonyms.inflection import PARTS, shape
from tasks.contrastive.synonyms.synonym_table import SynonymTable, keep_first

_VERSION = 1
_KINDS = "navr"
# Penn's tokens as far as a tagger needs them: clitics apart, words with inner hyphens whole, every sign for itself.
_TOKEN = re.compile(r"[^\W\d_]+(?=n['’]t\b)|n['’]t\b|['’](?:s|m|d|t|ll|re|ve)\b|\w+(?:-\w+)*|[^\w\s]", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*")
_ARTICLE = re.compile(r"(?<![\w'’.-])an?\s+$", re.IGNORECASE)


@dataclass(frozen=True)
class Tagged:
    """The replaceable words of N texts. Text i owns the places `ends[i]` to `ends[i + 1]`.

    A place is (start of an article right before it, or -1; start; end; group), in characters of the text.
    """

    tagging: str  # "perceptron" or "wordnet counts"
    ends: np.ndarray = field(repr=False)  # int64 [N + 1]
    places: np.ndarray = field(repr=False)  # int32 [M, 4]
    kinds: np.ndarray = field(repr=False)  # uint8 [M]: 0 noun, 1 adjective, 2 verb, 3 adverb
    words: tuple[str, ...] = field(repr=False)  # [G], lower case
    candidates: tuple[tuple[str, ...], ...] = field(repr=False)  # [G]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def only(self, kinds: str) -> "Tagged":
        """The same texts with the places of some kinds alone, of `n`, `a`, `v`, `r`."""
        keep = np.isin(self.kinds, [_KINDS.index(kind) for kind in kinds])
        ends = np.concatenate([[0], np.cumsum(keep)])[self.ends]
        return Tagged(self.tagging, ends, self.places[keep], self.kinds[keep], self.words, self.candidates)

    def of(self, text: int) -> list[list[int]]:
        """The places of one text, in order."""
        return self.places[self.ends[text] : self.ends[text + 1]].tolist()


def tag(texts: Sequence[str], table: SynonymTable, data: Path | None) -> Tagged:
    """The replaceable words of each text, from the cache, or found now, some thousands of sentences a second.

    `data` is the NLTK data folder with the tagger; without it, or without a tagger in it, WordNet's own counts decide
    the part of speech. The cache is keyed by the texts, the table and the tagger.
    """
    how = wordnet.tagging(data) if data else "wordnet counts"
    tagger = wordnet.fingerprint(data, wordnet.TAGGER) if data else ""
    digest = hashlib.sha256(f"{_VERSION} {table.fingerprint} {how} {tagger} {len(texts)}".encode())
    for text in texts:
        digest.update(text.encode("utf-8") + b"\0")
    path = default_folder() / "synonyms" / f"tags-{digest.hexdigest()[:32]}.npz"
    if not path.is_file():
        keep_first(path, _packed(_find(texts, table, wordnet.tagger(data) if data else None, how)))
    return _open(path)


def _find(texts: Sequence[str], table: SynonymTable, tagger: wordnet.Tagger | None, how: str) -> Tagged:
    groups: dict[tuple[str, str], int] = {}
    words: list[str] = []
    candidates: list[tuple[str, ...]] = []

    def group(word: str, name: str) -> int:
        key = (word if name == "NNP" else word.lower(), name)
        if key not in groups:
            found = table.candidates(word, name)
            groups[key] = len(words) if found else -1
            if found:
                words.append(word.lower())
                candidates.append(found)
        return groups[key]

    seen: dict[str, list[tuple[int, int, int, int, int]]] = {}  # premises come many times
    ends, places = np.zeros(len(texts) + 1, dtype=np.int64), []
    find = partial(_places, table=table, tagger=tagger)
    for number, text in enumerate(texts):
        if text not in seen:
            seen[text] = [
                (article, start, end, which, _KINDS.index(PARTS[name]))
                for article, start, end, word, name in find(text)
                if (which := group(word, name)) >= 0
            ]
        places.append(np.array(seen[text], dtype=np.int32).reshape(-1, 5))
        ends[number + 1] = ends[number] + len(seen[text])
    every = np.concatenate(places) if places else np.zeros((0, 5), dtype=np.int32)
    return Tagged(how, ends, every[:, :4], every[:, 4].astype(np.uint8), tuple(words), tuple(candidates))


def _places(text: str, table: SynonymTable, tagger: wordnet.Tagger | None) -> Iterator[tuple[int, int, int, str, str]]:
    """(article or -1, start, end, word, Penn tag) of each word with a tag of PARTS."""
    tokens = list(_TOKEN.finditer(text))
    lower = text.lower()
    spoken = lower if text.isupper() and len(lower) == len(text) else text  # to a tagger, capitals are names
    words = [spoken[token.start() : token.end()] for token in tokens]
    tags = [name for _, name in tagger(words)] if tagger else [table.guess(word) for word in words]
    for token, heard, name in zip(tokens, words, tags, strict=True):
        word, start = token.group(), token.start()
        name = "NN" if name == "NNP" and heard.islower() else name
        if name not in PARTS or not _WORD.fullmatch(word) or shape(word) == "mixed":
            continue
        article = _ARTICLE.search(text, max(0, start - 8), start)
        yield article.start() if article else -1, start, token.end(), word, name


def _packed(tagged: Tagged) -> bytes:
    strings = json.dumps([tagged.tagging, tagged.words, tagged.candidates]).encode()
    file, text = io.BytesIO(), np.frombuffer(strings, dtype=np.uint8)
    np.savez(file, strings=text, ends=tagged.ends, places=tagged.places, kinds=tagged.kinds)
    return file.getvalue()


def _open(path: Path) -> Tagged:
    with np.load(path, allow_pickle=False) as stored:
        tagging, words, candidates = json.loads(stored["strings"].tobytes())
        groups = tuple(map(tuple, candidates))
        return Tagged(tagging, stored["ends"], stored["places"], stored["kinds"], tuple(words), groups)
