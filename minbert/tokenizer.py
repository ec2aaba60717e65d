"""WordPiece tokenisation by the `tokenizers` library: texts to lists of token ids, without special tokens."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tokenizers
from tokenizers import BertWordPieceTokenizer
from tokenizers.models import WordPiece

from minbert.errors import UserError
from minbert.files import read_json

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Tokenizer:
    """A BERT vocabulary and its normalisation rules."""

    def __init__(self, library: tokenizers.Tokenizer, source: str) -> None:
        """Raises `UserError`, naming `source`, if the vocabulary lacks a special token."""
        vocabulary = library.get_vocab()
        _demand_special(vocabulary, source)
        library.no_truncation()
        library.no_padding()
        self._library = library
        self.size: int = library.get_vocab_size()
        self.lowercase = bool(getattr(library.normalizer, "lowercase", False))
        self.cls, self.sep = vocabulary["[CLS]"], vocabulary["[SEP]"]
        self.fingerprint = hashlib.sha256(library.to_str().encode("utf-8")).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of a weights folder: `vocab.txt` with `tokenizer_config.json`, else `tokenizer.json`.

        Raises `UserError` if they are missing, invalid, or not a WordPiece tokenizer.
        """
        for name, read in (("vocab.txt", _from_vocabulary), ("tokenizer.json", _from_json)):
            if (folder / name).is_file():
                return cls(read(folder / name), str(folder / name))
        raise UserError(f"{folder}: neither vocab.txt nor tokenizer.json")

    def check_fits(self, rows: int, source: str) -> None:
        """Raises `UserError` if the vocabulary has more pieces than the word embedding has `rows`."""
        if self.size > rows:
            raise UserError(f"{source}: the vocabulary has {self.size} pieces but the weights embed only {rows}")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, not truncated and without [CLS] and [SEP]."""
        return [row.ids for row in self._library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def save(self, folder: Path) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json` in transformers' format."""
        pieces = sorted(self._library.get_vocab().items(), key=lambda item: item[1])
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in pieces), encoding="utf-8")
        self._library.save(str(folder / "tokenizer.json"))
        rules = self._library.normalizer
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "model_max_length": 512,
            "strip_accents": getattr(rules, "strip_accents", None),
            "tokenize_chinese_chars": getattr(rules, "handle_chinese_chars", True),
            **{f"{name[1:-1].lower()}_token": name for name in _SPECIAL},
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _from_vocabulary(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a `vocab.txt`, one piece per line, and the `tokenizer_config.json` in the same folder."""
    config = path.parent / "tokenizer_config.json"
    options = read_json(config) if config.is_file() else {}
    if not isinstance(options, dict):
        raise UserError(f"{config}: holds a {type(options).__name__}, not the names and values of a config")
    try:
        # split at line feeds only: a vocabulary may contain Unicode's other line separators as pieces
        pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8: {error}") from error
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise UserError(f"{path}: {len(pieces) - len(vocabulary)} of {len(pieces)} lines are duplicates")
    _demand_special(vocabulary, str(path))
    made = BertWordPieceTokenizer(
        vocabulary,
        lowercase=bool(options.get("do_lower_case", True)),
        strip_accents=options.get("strip_accents"),
        handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
    )
    return made._tokenizer


def _from_json(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a `tokenizer.json`."""
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise UserError(f"{path}: not a WordPiece tokenizer: {error}") from error
    if not isinstance(library.model, WordPiece):
        raise UserError(f"{path}: not a WordPiece tokenizer")
    return library


def _demand_special(vocabulary: Mapping[str, int], source: str) -> None:
    missing = [token for token in _SPECIAL if token not in vocabulary]
    if missing:
        raise UserError(f"{source}: the vocabulary lacks {', '.join(missing)}")
