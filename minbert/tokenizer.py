"""WordPiece through the `tokenizers` library: sentences to lists of ids, without special tokens."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import BertWordPieceTokenizer

from minbert.errors import UserError
from minbert.files import read_json

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class Tokenizer:
    """A BERT vocabulary and its rules."""

    def __init__(self, library: tokenizers.Tokenizer, lowercase: bool, source: str) -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        self.lowercase = lowercase
        self.size: int = library.get_vocab_size()
        special = {token: library.token_to_id(token) for token in _SPECIAL}
        found = {token: number for token, number in special.items() if number is not None}
        missing = [token for token in _SPECIAL if token not in found]
        if missing:
            raise UserError(f"{source}: the vocabulary lacks {', '.join(missing)}")
        self.cls, self.sep = found["[CLS]"], found["[SEP]"]
        self.fingerprint = hashlib.sha256(library.to_str().encode("utf-8")).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of a weights folder: `vocab.txt` with `tokenizer_config.json`, else `tokenizer.json`."""
        vocabulary = folder / "vocab.txt"
        if vocabulary.is_file():
            config = folder / "tokenizer_config.json"
            options = read_json(config) if config.is_file() else {}
            if not isinstance(options, dict):
                raise UserError(f"{config}: holds a {type(options).__name__}, not the names and values of a config")
            return cls.from_vocabulary(vocabulary, lowercase=bool(options.get("do_lower_case", True)), options=options)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UserError(f"{folder}: neither vocab.txt nor tokenizer.json")
        content = read_json(path)
        model = content.get("model") if isinstance(content, dict) else None
        if not isinstance(model, dict) or model.get("type") != "WordPiece":
            raise UserError(f"{path}: not a WordPiece tokenizer")
        lowercase = bool((content.get("normalizer") or {}).get("lowercase", False))
        return cls(tokenizers.Tokenizer.from_file(str(path)), lowercase, str(path))

    @classmethod
    def from_vocabulary(
        cls, path: Path, *, lowercase: bool = True, options: dict[str, Any] | None = None
    ) -> "Tokenizer":
        """A tokenizer from a file with one WordPiece a line; `UserError` on a doubled line."""
        options = options or {}
        pieces = _lines(path)
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        if len(vocabulary) != len(pieces):
            raise UserError(f"{path}: {len(pieces) - len(vocabulary)} of {len(pieces)} lines stand twice")
        missing = [token for token in _SPECIAL if token not in vocabulary]
        if missing:
            raise UserError(f"{path}: the vocabulary lacks {', '.join(missing)}")
        library = BertWordPieceTokenizer(
            vocabulary,
            lowercase=lowercase,
            strip_accents=options.get("strip_accents"),
            handle_chinese_chars=bool(options.get("tokenize_chinese_chars", True)),
        )
        return cls(library._tokenizer, lowercase, str(path))

    def check_fits(self, rows: int, source: str) -> None:
        """`UserError` where the vocabulary has more pieces than the word embedding has rows."""
        if self.size > rows:
            raise UserError(f"{source}: the vocabulary has {self.size} pieces but the weights embed only {rows}")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, whole and without [CLS] and [SEP]."""
        return [row.ids for row in self._library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def save(self, folder: Path) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json` as transformers reads them."""
        pieces = sorted(self._library.get_vocab().items(), key=lambda item: item[1])
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in pieces), encoding="utf-8")
        self._library.save(str(folder / "tokenizer.json"))
        rules = json.loads(self._library.to_str()).get("normalizer") or {}
        config = {"tokenizer_class": "BertTokenizer", "do_lower_case": self.lowercase, "model_max_length": 512}
        config |= {
            "strip_accents": rules.get("strip_accents"),
            "tokenize_chinese_chars": rules.get("handle_chinese_chars", True),
        }
        config |= {f"{name[1:-1].lower()}_token": name for name in _SPECIAL}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _lines(path: Path) -> list[str]:
    """The lines of a file, cut at line feeds only: a vocabulary may hold other separators of Unicode as pieces."""
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8: {error}") from error
