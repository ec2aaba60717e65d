"""Write data/sample/nltk_data: the part of WordNet that the sample's words need, and a tagger trained on its sentences.

DATA_DIR=DIR python data/sample/make_nltk_data.py                # reads DIR/nltk_data, WordNet and NLTK's own tagger
python data/sample/make_nltk_data.py --data DIR --out FOLDER     # writes to FOLDER instead

Of WordNet it keeps the synsets of the sample's words that have synonyms, with all their lemmas, the heads of satellite
adjectives and the usage domains ("disparagement"), but no gloss and no other relation. The tagger learns the tags that
NLTK's own one gives the sample's sentences. Both are zip files, which NLTK reads as it does folders.
"""

import argparse
import json
import random
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from pathlib import Path

SAMPLE = Path(__file__).resolve().parent
sys.path.insert(0, str(SAMPLE.parent.parent))

from lemminflect import getLemma  # noqa: E402
from nltk.tag.perceptron import PerceptronTagger  # noqa: E402

from minbert.token_cache import Row  # noqa: E402
from tasks.augment import wordnet  # noqa: E402
from tasks.augment.wordnet import TAGGER, WORDNET, WordNet  # noqa: E402
from tasks.readers import clean_pair, clean_sentence, read_texts  # noqa: E402

Tagged = list[tuple[str, str]]
"""The tokens of a sentence, each with its Penn tag."""
Lemma = tuple[str, str]
"""A lemma as in WordNet's index (lower case, _ for a space), and its part of speech: n, v, a or r."""
Key = tuple[str, int]
"""Part of speech and offset of a synset."""
FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
"""Part of speech -> suffix of WordNet's files."""
UNIVERSAL = {"n": "NOUN", "v": "VERB", "a": "ADJ"}
"""Part of speech -> lemminflect's name of it."""
ITERATIONS = 8
"""Passes of the tagger's training over the sentences."""
SMALLEST_WEIGHT = 1.0
"""The tagger's smaller weights are dropped: three in four bytes for one token in a hundred."""


def main() -> None:
    """Read the command line and write both zip files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="", help="a folder with nltk_data, the whole WordNet (default: $DATA_DIR)")
    parser.add_argument("--out", type=Path, default=SAMPLE / "nltk_data", help="(default: nltk_data next to this file)")
    options = parser.parse_args()
    source = wordnet.find_nltk_data(options.data)
    if source == (SAMPLE / "nltk_data").resolve():
        parser.error("--data: give the folder of the whole WordNet, not the sample's")
    make(source, options.out)


def make(source: Path, out: Path) -> None:
    """Write WordNet and the tagger into `out`, from the NLTK data folder `source`."""
    sentences = tagged_sentences(source)
    lemmas = lemmas_of(sentences, WordNet(source, "all"))
    write_zip(out / f"{WORDNET}.zip", wordnet_files(source / WORDNET, lemmas))
    write_zip(out / f"{TAGGER}.zip", tagger_files(sentences))


def write_zip(path: Path, files: dict[str, str]) -> None:
    """Write files (name -> text) into a zip, in a folder of its name; always with the same date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"{path.stem}/{name}", (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED, compresslevel=9)


def sample_texts() -> list[str]:
    """The English sentences of the sample, each once; those of the course's files as its preprocessing leaves them."""
    texts = dict[str, None]()
    for folder in ("course", "nli", "senteval"):
        for path in sorted((SAMPLE / folder).rglob("*")):
            if path.is_dir() or path.name.startswith("STS.gs."):
                continue
            for row in read_texts(path).rows:
                texts.update(dict.fromkeys(preprocessed(row) if folder == "course" else row.texts))
    return list(texts)


def preprocessed(row: Row) -> tuple[str, ...]:
    """The texts of a row of the course's files as training reads them: in lower case."""
    clean = clean_sentence if len(row.texts) == 1 else clean_pair
    return tuple(map(clean, row.texts))


def tagged_sentences(source: Path) -> list[Tagged]:
    """The sample's sentences, tagged by NLTK's own tagger."""
    tags_of = wordnet.tagger(source)
    sentences = []
    for text in sample_texts():
        tokens = [token[0] for token in wordnet.TOKEN.finditer(text)]
        sentences.append(tags_of(tokens))
    return sentences


# WordNet


def lemmas_of(sentences: list[Tagged], words: WordNet) -> set[Lemma]:
    """The lemmas that are looked up for the sentences' words, as far as they decide which synonyms there are."""
    lemmas = set[Lemma]()
    for word, tag in set(chain.from_iterable(sentences)):
        # A plural may be a lemma without synonyms that hides another: "profits" is not several times "profit".
        if tag != "NNS" and not words.candidates(word, tag):
            continue
        part = wordnet.PARTS[tag]
        stems = [word.lower()]
        if part in UNIVERSAL:
            stems += getLemma(word.lower(), UNIVERSAL[part])
        lemmas.update((stem.lower(), part) for stem in stems)
    return lemmas


@dataclass(frozen=True)
class Synset:
    """A line of a data file without its gloss; `words` are (word, lex id), `pointers` (symbol, target, lemmas)."""

    lexfile: str
    type: str
    words: list[tuple[str, str]]
    pointers: list[tuple[str, Key, str]]

    @classmethod
    def parse(cls, line: str) -> "Synset":
        """Read a line; of its pointers, the usage domains and a satellite's head are kept."""
        fields = line.split("|")[0].split()
        count = int(fields[3], 16)
        words = list(zip(fields[4 : 4 + 2 * count : 2], fields[5 : 5 + 2 * count : 2]))
        first = 5 + 2 * count
        last = first + 4 * int(fields[first - 1])
        pointers = []
        for start in range(first, last, 4):
            symbol, offset, part, lemmas = fields[start : start + 4]
            if symbol == ";u" or (symbol == "&" and fields[2] == "s"):
                pointers.append((symbol, (part, int(offset)), lemmas))
        return cls(fields[1], fields[2], words, pointers)

    def line(self, offset: int, offsets: dict[Key, int]) -> str:
        """The line of a data file; `offsets` has the new offsets of the targets. Its length does not depend on them."""
        fields = [f"{offset:08d}", self.lexfile, self.type, f"{len(self.words):02x}"]
        for word, lex_id in self.words:
            fields += [word, lex_id]
        fields.append(f"{len(self.pointers):03d}")
        for symbol, target, lemmas in self.pointers:
            fields += [symbol, f"{offsets[target]:08d}", target[0], lemmas]
        if self.type == "v":
            fields.append("00")  # number of sentence frames
        return f"{' '.join(fields)} |\n"


def wordnet_files(source: Path, lemmas: set[Lemma]) -> dict[str, str]:
    """The files of WordNet that NLTK reads, with all senses of some lemmas."""
    senses = read_index(source)
    keys: set[Key] = set()
    for lemma, part in lemmas:
        keys.update((part, offset) for offset in senses.get((lemma, part), ()))
    synsets = read_synsets(source, keys)
    targets: set[Key] = set()
    for synset in synsets.values():
        targets.update(target for _, target, _ in synset.pointers)
    # the targets are read for their names alone: without their own pointers no further synsets are needed
    for key, synset in read_synsets(source, targets - keys).items():
        synsets[key] = replace(synset, pointers=[])
    header = licence(source)
    offsets = new_offsets(synsets, len(header))
    files = {"LICENSE": unnumbered(header), "lexnames": (source / "lexnames").read_text(encoding="utf-8")}
    files["index.sense"] = ""  # NLTK opens it, but synonyms need nothing of it
    for part, suffix in FILES.items():
        lines = [synsets[key].line(offsets[key], offsets) for key in sorted(synsets) if key[0] == part]
        exceptions = [line for line in lines_of(source / f"{suffix}.exc") if is_exception(line, part, lemmas)]
        files[f"data.{suffix}"] = header + "".join(lines)
        files[f"index.{suffix}"] = "".join(index_lines(part, synsets, lemmas, senses, offsets))
        files[f"{suffix}.exc"] = "".join(exceptions)
    files["cntlist.rev"] = "".join(line for line in lines_of(source / "cntlist.rev") if is_count_of(line, lemmas))
    return files


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a WordNet file, without the licence at its head."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith(" "):
                yield line


def read_index(source: Path) -> dict[tuple[str, str], list[int]]:
    """(lemma, part of speech) -> offsets of its synsets, the most frequent sense first."""
    senses = {}
    for part, suffix in FILES.items():
        for line in lines_of(source / f"index.{suffix}"):
            fields = line.split()
            senses[fields[0], part] = [int(offset) for offset in fields[-int(fields[2]) :]]
    return senses


def read_synsets(source: Path, keys: set[Key]) -> dict[Key, Synset]:
    """The synsets of some keys, in WordNet's order."""
    synsets = {}
    for part, suffix in FILES.items():
        for line in lines_of(source / f"data.{suffix}"):
            key = (part, int(line[:8]))
            if key in keys:
                synsets[key] = Synset.parse(line)
    return synsets


def new_offsets(synsets: dict[Key, Synset], header: int) -> dict[Key, int]:
    """The offset in bytes of each synset's line in its new data file, after a header of some length."""
    offsets = {}
    # a line's length does not depend on the offsets in it, so any will do
    targets: dict[Key, int] = {}
    for synset in synsets.values():
        targets |= dict.fromkeys([target for _, target, _ in synset.pointers], 0)
    sizes = dict.fromkeys(FILES, header)
    for key in sorted(synsets):
        part = key[0]
        offsets[key] = sizes[part]
        sizes[part] += len(synsets[key].line(0, targets).encode())
    return offsets


def index_lines(
    part: str,
    synsets: dict[Key, Synset],
    lemmas: set[Lemma],
    senses: dict[Lemma, list[int]],
    offsets: dict[Key, int],
) -> Iterator[str]:
    """The lines of an index file, with the synsets of each lemma in WordNet's order.

    It has the lemmas of the sample, and the first word of each synset, by which NLTK names the synset.
    """
    names = {name for name, of in lemmas if of == part and (name, part) in senses}
    for key, synset in synsets.items():
        if key[0] == part:
            first, _ = synset.words[0]
            names.add(first.split("(")[0].lower())  # adjectives may have a marker: "asleep(p)"
    for name in sorted(names):
        kept = [f"{offsets[part, old]:08d}" for old in senses[name, part] if (part, old) in offsets]
        yield f"{name} {part} {len(kept)} 0 {len(kept)} 0 {' '.join(kept)}\n"


def is_exception(line: str, part: str, lemmas: set[Lemma]) -> bool:
    """Whether a line of irregular forms has a base form among the lemmas."""
    return any((base, part) in lemmas for base in line.split()[1:])


def is_count_of(line: str, lemmas: set[Lemma]) -> bool:
    """Whether a line of cntlist.rev, which begins with a sense key such as big%3:00:01::, is of one of the lemmas."""
    lemma, _, sense = line.partition("%")
    return (lemma, "nvara"[int(sense[0]) - 1]) in lemmas


def licence(source: Path) -> str:
    """The head of WordNet's data files, which holds its licence; NLTK reads the version from it."""
    with open(source / "data.noun", encoding="utf-8") as lines:
        return "".join(takewhile(lambda line: line.startswith("  "), lines))


def unnumbered(header: str) -> str:
    """The licence without the numbers of its lines."""
    lines = [line.strip().partition(" ")[2] for line in header.splitlines()]
    return "\n".join(lines).strip() + "\n"


# The tagger


def tagger_files(sentences: list[Tagged]) -> dict[str, str]:
    """The three files of a perceptron tagger that NLTK's trainer has trained on the sentences."""
    tagger = PerceptronTagger(load=False)
    random.seed(0)  # the trainer shuffles the sentences between its passes
    tagger.train(sentences, nr_iter=ITERATIONS)
    weights = {}
    for feature, by_tag in sorted(tagger.model.weights.items()):
        large = {tag: round(weight, 1) for tag, weight in sorted(by_tag.items()) if abs(weight) >= SMALLEST_WEIGHT}
        if large:
            weights[feature] = large
    contents = {"weights": weights, "tagdict": dict(sorted(tagger.tagdict.items())), "classes": sorted(tagger.classes)}
    name = Path(TAGGER).name
    return {f"{name}.{part}.json": json.dumps(content) for part, content in contents.items()}


if __name__ == "__main__":
    main()
