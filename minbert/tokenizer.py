"""WordPiece tokenisation by the `tokenizers` library: texts to lists of token ids, without special tokens."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tokenizers
from tokenizers import BertWordPieceTokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer

from minbert.errors import UserError, reason
from minbert.files import read_json_object, write_atomic, write_json

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WITHOUT_EFFECT = ("post_processor", "decoder")
"""Parts of a tokenizer.json that `Tokenizer.encode` does not use; transformers' versions write different ones."""


class Tokenizer:
    """A BERT vocabulary and its normalisation rules."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        vocabulary = library.get_vocab()
        library.no_truncation()
        library.no_padding()
        self._library = library
        self.size: int = library.get_vocab_size()
        self.lowercase = library.normalizer.lowercase
        self.cls = vocabulary["[CLS]"]
        self.sep = vocabulary["[SEP]"]
        content = json.loads(library.to_str())
        for part in _WITHOUT_EFFECT:
            del content[part]
        self.fingerprint = hashlib.sha256(json.dumps(content).encode("utf-8")).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of a weights folder: `tokenizer.json`, else `vocab.txt` with `tokenizer_config.json`.

        Raises `UserError` if they are missing, invalid, or not a WordPiece tokenizer.
        """
        if (folder / "tokenizer.json").is_file():
            return cls(_from_json(folder / "tokenizer.json"))
        if (folder / "vocab.txt").is_file():
            return cls(_from_vocabulary(folder / "vocab.txt"))
        raise UserError(f"{folder}: neither tokenizer.json nor vocab.txt")

    def check_fits(self, rows: int, source: str) -> None:
        """Raises `UserError` if the vocabulary has more pieces, numbered from 0, than the word embedding has `rows`."""
        if self.size > rows:
            raise UserError(f"{source}: the vocabulary has {self.size} pieces but the weights embed only {rows}")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, not truncated and without [CLS] and [SEP]."""
        return [row.ids for row in self._library.encode_batch_fast(list(texts), add_special_tokens=False)]

    @property
    def unknown(self) -> int | None:
        """The id of the token that stands for what the vocabulary lacks; None if it lacks nothing."""
        token = getattr(self._library.model, "unk_token", None)
        return None if token is None else self._library.token_to_id(token)

    def save(self, folder: Path, max_length: int) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json` in transformers' format.

        transformers' tokenizer truncates to `max_length` tokens, the encoder's number of positions.
        """
        vocabulary = self._library.get_vocab()
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        write_atomic(folder / "vocab.txt", "".join(f"{piece}\n" for piece in pieces))
        write_atomic(folder / "tokenizer.json", self._library.to_str(pretty=True))
        rules = self._library.normalizer
        config = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "model_max_length": max_length,
            "strip_accents": rules.strip_accents,
            "tokenize_chinese_chars": rules.handle_chinese_chars,
            **{f"{name[1:-1].lower()}_token": name for name in _SPECIAL},
        }
        write_json(folder / "tokenizer_config.json", config)


def _from_vocabulary(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a `vocab.txt`, one piece per line, and the `tokenizer_config.json` in the same folder."""
    content = path.read_bytes()
    try:
        # split at line feeds only: a vocabulary may contain Unicode's other line separators as pieces
        pieces = content.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{content.count(10, 0, error.start) + 1}: not UTF-8 text") from error
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise UserError(f"{path}: {len(pieces) - len(vocabulary)} of {len(pieces)} lines are duplicates")
    _require_special(vocabulary, path)
    config_path = path.with_name("tokenizer_config.json")
    config = read_json_object(config_path) if config_path.is_file() else {}
    wordpiece = BertWordPieceTokenizer(
        vocabulary,
        lowercase=config.get("do_lower_case", True),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    return wordpiece._tokenizer


def _from_json(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a `tokenizer.json` with BERT's WordPiece."""
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise UserError(f"{path}: not a tokenizer: {reason(error)}") from error
    if not isinstance(library.model, WordPiece) or not isinstance(library.normalizer, BertNormalizer):
        raise UserError(f"{path}: not BERT's WordPiece tokenizer")
    _require_special(library.get_vocab(), path)
    return library


def _require_special(vocabulary: Mapping[str, int], path: Path) -> None:
    missing = [token for token in _SPECIAL if token not in vocabulary]
    if missing:
        raise UserError(f"{path}: the vocabulary lacks {', '.join(missing)}")
