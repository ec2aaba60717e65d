"""WordPiece tokenisation by the `tokenizers` library: texts to lists of token ids, without special tokens."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import tokenizers
from tokenizers import BertWordPieceTokenizer
from tokenizers.models import WordPiece

from minbert.errors import UserError, reason, short_repr
from minbert.files import read_json_object, write_atomic, write_json

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RULES: dict[str, tuple[str, bool | None]] = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
"""Key of `tokenizer_config.json` -> (option of `BertWordPieceTokenizer`, its value where the key is missing)."""
# The parts of a tokenizer.json and their types; the library's other types may run a pattern of the file's own.
_PARTS: dict[str, tuple[str | None, ...]] = {
    "model": ("WordPiece", ""),
    "normalizer": ("BertNormalizer",),
    "pre_tokenizer": ("BertPreTokenizer",),
    "post_processor": ("TemplateProcessing", "BertProcessing", None),
    "decoder": ("WordPiece", None),
}
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
        self.cls, self.sep = vocabulary["[CLS]"], vocabulary["[SEP]"]
        rules = {part: rule for part, rule in json.loads(library.to_str()).items() if part not in _WITHOUT_EFFECT}
        self.fingerprint = hashlib.sha256(json.dumps(rules).encode("utf-8")).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of a weights folder: `tokenizer.json`, else `vocab.txt` with `tokenizer_config.json`.

        Raises `UserError` if they are missing, invalid, or not a WordPiece tokenizer.
        """
        for name, open_file in (("tokenizer.json", _from_json), ("vocab.txt", _from_vocabulary)):
            if (folder / name).is_file():
                return cls(open_file(folder / name))
        raise UserError(f"{folder}: neither tokenizer.json nor vocab.txt")

    def check_fits(self, rows: int, source: str) -> None:
        """Raises `UserError` if the vocabulary has more pieces, numbered from 0, than the word embedding has `rows`."""
        if self.size > rows:
            raise UserError(f"{source}: the vocabulary has {self.size} pieces but the weights embed only {rows}")

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, not truncated and without [CLS] and [SEP]."""
        return [row.ids for row in self._library.encode_batch_fast(list(texts), add_special_tokens=False)]

    def save(self, folder: Path, max_length: int) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json` in transformers' format.

        transformers' tokenizer truncates to `max_length` tokens, the encoder's number of positions.
        """
        pieces = sorted(self._library.get_vocab().items(), key=lambda item: item[1])
        write_atomic(folder / "vocab.txt", "".join(f"{piece}\n" for piece, _ in pieces))
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
    _demand_special(vocabulary, path)
    return BertWordPieceTokenizer(vocabulary, **_options(path.with_name("tokenizer_config.json")))._tokenizer


def _options(path: Path) -> dict[str, bool | None]:
    """The normalisation rules of a `tokenizer_config.json`, under the names of `BertWordPieceTokenizer`."""
    content = read_json_object(path) if path.is_file() else {}
    options: dict[str, bool | None] = {}
    for key, (name, usual) in _RULES.items():
        options[name] = value = content.get(key, usual)
        if not isinstance(value, bool) and (usual is not None or value is not None):
            raise UserError(f"{path}: {key} must be true or false, not {short_repr(value)}")
    return options


def _from_json(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a `tokenizer.json`: BERT's WordPiece, whose parts cannot hang or crash the library."""
    content = read_json_object(path)
    for part, kinds in _PARTS.items():
        kind = content[part].get("type", "") if isinstance(content.get(part), dict) else content.get(part)
        if kind not in kinds:
            raise UserError(f"{path}: not BERT's WordPiece tokenizer: its {part} is {short_repr(kind)}")
    try:
        library = tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises no narrower type
        raise UserError(f"{path}: not BERT's WordPiece tokenizer: {reason(error)}") from error
    if not isinstance(library.model, WordPiece) or library.model.unk_token != "[UNK]":
        raise UserError(f"{path}: not BERT's WordPiece tokenizer")
    _demand_special(library.get_vocab(with_added_tokens=False), path)
    ids = library.get_vocab().values()
    if set(ids) != set(range(len(ids))):
        raise UserError(f"{path}: the ids of its {len(ids)} pieces are not the numbers from 0 to {len(ids) - 1}")
    return library


def _demand_special(vocabulary: Mapping[str, int], path: Path) -> None:
    missing = [token for token in _SPECIAL if token not in vocabulary]
    if missing:
        raise UserError(f"{path}: the vocabulary lacks {', '.join(missing)}")
