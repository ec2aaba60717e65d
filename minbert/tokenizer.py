"""Tokenisation by the `tokenizers` library: texts to lists of token ids, without special tokens."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from minbert.files import read_optional_json, require_file, write_atomic, write_json

BERT_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
"""BERT's special tokens by their roles, whose names are those of transformers' `tokenizer_config.json`."""
_CHUNK = 4096  # texts given to the library at once
_WITHOUT_EFFECT = ("post_processor", "decoder")
"""Parts of a tokenizer.json that `Tokenizer.encode` does not use; transformers' versions write different ones."""


class Tokenizer:
    """A vocabulary and its normalisation rules: BERT's WordPiece, or another one that transformers has opened."""

    def __init__(self, library: tokenizers.Tokenizer, special_tokens: Mapping[str, str] = BERT_TOKENS) -> None:
        vocabulary = library.get_vocab()
        library.no_truncation()
        library.no_padding()
        self._library = library
        self.special_tokens = dict(special_tokens)
        self.size: int = max(vocabulary.values()) + 1
        self.cls = vocabulary[special_tokens["cls_token"]]
        self.sep = vocabulary[special_tokens["sep_token"]]
        content = json.loads(library.to_str())
        for part in _WITHOUT_EFFECT:
            del content[part]
        # BERT's own are left out: the fingerprints that earlier versions recorded stay as they are
        ends = (special_tokens["cls_token"], special_tokens["sep_token"])
        if ends != (BERT_TOKENS["cls_token"], BERT_TOKENS["sep_token"]):
            content["special_tokens"] = ends
        self.fingerprint = hashlib.sha256(json.dumps(content).encode("utf-8")).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """The tokenizer of an encoder's folder that `weights.resolve` returns: its `tokenizer.json`.

        `tokenizer_config.json` names its special tokens, else they are BERT's. Raises `UserError` if a file is missing.
        """
        library = tokenizers.Tokenizer.from_file(str(require_file(folder / "tokenizer.json")))
        config = read_optional_json(folder / "tokenizer_config.json")
        special_tokens = {role: config[role] for role in BERT_TOKENS if role in config} or BERT_TOKENS
        return cls(library, special_tokens)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, not truncated and without [CLS] and [SEP]."""
        rows: list[list[int]] = []
        # some at a time: the library's objects take much more memory than the ids
        for start in range(0, len(texts), _CHUNK):
            chunk = self._library.encode_batch_fast(list(texts[start : start + _CHUNK]), add_special_tokens=False)
            rows += [row.ids for row in chunk]
        return rows

    @property
    def unknown(self) -> int | None:
        """The id of the token that stands for what the vocabulary lacks; None if it lacks nothing."""
        # the library's Unigram model does not tell
        token = getattr(self._library.model, "unk_token", None) or self.special_tokens.get("unk_token")
        return None if token is None else self._library.token_to_id(token)

    def save(self, folder: Path, max_length: int) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json` in transformers' format; BERT's with a `vocab.txt`.

        transformers' tokenizer truncates to `max_length` tokens.
        """
        write_atomic(folder / "tokenizer.json", self._library.to_str(pretty=True))
        config: dict[str, Any] = {"model_max_length": max_length, **self.special_tokens}
        if self._is_bert():
            rules = self._library.normalizer
            vocabulary = self._library.get_vocab()
            pieces = sorted(vocabulary, key=vocabulary.__getitem__)
            write_atomic(folder / "vocab.txt", "".join(f"{piece}\n" for piece in pieces))
            # transformers builds this class from the rules here, whatever tokenizer.json says of them
            config |= {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": rules.lowercase,
                "strip_accents": rules.strip_accents,
                "tokenize_chinese_chars": rules.handle_chinese_chars,
            }
        else:
            config["tokenizer_class"] = "PreTrainedTokenizerFast"
        write_json(folder / "tokenizer_config.json", config)

    def _is_bert(self) -> bool:
        """Whether transformers' BertTokenizer can be given all rules of this tokenizer."""
        model = self._library.model
        rules = self._library.normalizer
        if not isinstance(model, WordPiece) or not isinstance(rules, BertNormalizer):
            return False
        # these have one value in BertTokenizer
        if model.max_input_chars_per_word != 100 or model.continuing_subword_prefix != "##" or not rules.clean_text:
            return False
        # vocab.txt numbers its lines
        without_gaps = self.size == self._library.get_vocab_size()
        return without_gaps and isinstance(self._library.pre_tokenizer, BertPreTokenizer)
