"""WordNet and the perceptron tagger as NLTK reads them: where they lie, what they say, what they hash to.

NLTK is imported only while a table is built or sentences are tagged; finding and hashing the files needs none of it.
"""

import hashlib
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert.errors import UserError

WORDNET = "corpora/wordnet"
TAGGER = "taggers/averaged_perceptron_tagger_eng"
PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
_RUDE = ("ethnic_slur", "obscenity", "disparagement")

Tagger = Callable[[Sequence[str]], list[tuple[str, str]]]
"""Tokens of a sentence -> (token, Penn tag)."""


@dataclass(frozen=True)
class Sense:
    """One synset: its part of speech (n, v, a, r), its lemmas, and how often each was counted in this sense."""

    part: str
    lemmas: tuple[str, ...]
    counts: tuple[int, ...]
    rude: tuple[bool, ...]  # WordNet marks the lemma, or the whole synset, as a slur, an obscenity or disparaging


def find(data: str = "") -> Path:
    """The NLTK data folder with WordNet: one of `$NLTK_DATA`, else `nltk_data` in the data folder.

    The data folder is `data`, else `$DATA_DIR`, else `data`. `UserError` where WordNet is in none of them.
    """
    own = [Path(name) for name in os.environ.get("NLTK_DATA", "").split(os.pathsep) if name]
    folder = Path(data or os.environ.get("DATA_DIR") or "data")
    for candidate in (*own, folder / "nltk_data"):
        if files(candidate, WORDNET):
            return candidate.resolve()
    raise UserError(
        f"WordNet is in none of its usual places ({', '.join(map(str, (*own, folder / 'nltk_data')))}); "
        f"python data/get_data.py wordnet --to {folder} fetches it for --synonyms"
    )


def files(folder: Path, resource: str) -> list[Path]:
    """The files of an NLTK resource, unpacked or as one zip; none where it is missing."""
    packed = folder / f"{resource}.zip"
    unpacked = sorted(path for path in (folder / resource).glob("*") if path.is_file())
    return unpacked or ([packed] if packed.is_file() else [])


def fingerprint(folder: Path, resource: str) -> str:
    """SHA-256 over the names and bytes of a resource's files; of nothing where it is missing."""
    digest = hashlib.sha256()
    for path in files(folder, resource):
        with open(path, "rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def _nltk_path(folder: Path) -> Any:
    """NLTK's `data` module with the folder among the roots that it agrees to read."""
    import nltk.data

    if str(folder) not in nltk.data.path:
        nltk.data.path.insert(0, str(folder))
    return nltk.data


@contextmanager
def _readable(path: Path, folder: Path) -> Iterator[None]:
    """Whatever NLTK meets in a damaged file, the user mends it in one way: by fetching it again."""
    try:
        yield
    except Exception as error:
        raise UserError(
            f"{path}: NLTK cannot read it ({error.__class__.__name__}); fetch it again "
            f"(python data/get_data.py wordnet --to {folder.parent})"
        ) from error


def read(folder: Path) -> tuple[list[Sense], dict[str, dict[str, list[str]]]]:
    """All synsets of WordNet in its own order, and its exception lists: part of speech -> form -> lemmas."""
    data = _nltk_path(folder)
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    with _readable(folder / WORDNET, folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "multilingual functions are not available": English alone is read
        corpus = WordNetCorpusReader(data.find(WORDNET, paths=[str(folder)]), None)
        counts = _counts(corpus)
        senses = [_sense(synset, part, counts) for part in PARTS for synset in corpus.all_synsets(part)]
        return senses, {part: _exceptions(corpus, name) for part, name in PARTS.items()}


def _counts(corpus: Any) -> Mapping[str, int]:
    """Sense key -> its count in the sense-tagged corpus. NLTK's own look-up reads the file once per lemma."""
    with corpus.open("cntlist.rev") as lines:
        return {key: int(count) for key, _, count in map(str.split, lines)}


def _sense(synset: Any, part: str, counts: Mapping[str, int]) -> Sense:
    lemmas = synset.lemmas()
    whole = any(_is_rude(domain) for domain in synset.usage_domains())
    return Sense(
        part,
        tuple(lemma.name().replace("_", " ") for lemma in lemmas),
        tuple(counts.get(lemma.key().lower(), 0) for lemma in lemmas),
        tuple(whole or any(_is_rude(domain) for domain in lemma.usage_domains()) for lemma in lemmas),
    )


def _is_rude(domain: Any) -> bool:
    return domain.name().split(".")[0] in _RUDE


def _exceptions(corpus: Any, name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    with corpus.open(f"{name}.exc") as lines:
        for form, *lemmas in map(str.split, lines):
            found[form] += [lemma for lemma in lemmas if lemma not in found[form]]
    return dict(found)


def tagger(folder: Path) -> Tagger | None:
    """NLTK's English perceptron tagger, or None where its files are not in the folder."""
    if not files(folder, TAGGER):
        return None
    data = _nltk_path(folder)
    from nltk.tag.perceptron import PerceptronTagger

    with _readable(folder / TAGGER, folder):
        return PerceptronTagger(loc=data.find(f"{TAGGER}/", paths=[str(folder)])).tag


def tagging(folder: Path) -> str:
    """What decides the part of speech here: `perceptron`, or `wordnet counts` without the tagger's files."""
    return "perceptron" if files(folder, TAGGER) else "wordnet counts"
