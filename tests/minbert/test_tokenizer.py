"""Guards: our WordPiece equals transformers' BertTokenizer, survives saving, and refuses vocabularies that do not fit.

python -m pytest --import-mode=importlib tests/minbert/test_tokenizer.py
"""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from minbert import UserError
from minbert.tokenizer import Tokenizer

TEXTS = [
    "",
    "   ",
    "The quick brown fox jumps over the lazy dog.",
    "Don't stop -- it's $3.50 (or 3,50 €)!",
    "Café naïve ÀÉÎÕÜ ñandú Straße İstanbul ǅ",
    "我喜欢北京烤鸭。他說：「你好」",
    "mixed 中文 and English, 日本語テキスト 한국어",
    "a" * 99,
    "b" * 101,
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "emoji 😀👍🏽 family 👨‍👩‍👧 flags 🇩🇪",
    "tabs\tand\nnewlines\r\nand\u00a0nbsp\u200bzero\u2028line",
    "control \x00 \x07 \ufffd characters \ufeff",
    "[CLS] typed by a user [SEP] and [MASK] [UNK]",
    "<br /> http://example.com/a?b=c&d=e #tag @user",
    "e\u0301 combining, ﬁ ligature, ½ ² ™ …—–“”",
    "Привет мир Ελληνικά עברית العربية हिन्दी",
]


@pytest.fixture(scope="module")
def theirs(minilm: Path) -> Any:
    return transformers.BertTokenizer.from_pretrained(minilm)


@pytest.fixture(scope="module")
def ours(minilm: Path) -> Tokenizer:
    return Tokenizer.load(minilm)


def test_ids_equal_transformers(ours: Tokenizer, theirs: Any) -> None:
    for text, ids in zip(TEXTS, ours.encode(TEXTS), strict=True):
        assert [ours.cls, *ids, ours.sep] == theirs(text)["input_ids"], text


@settings(max_examples=150)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_equals_transformers(ours: Tokenizer, theirs: Any, text: str) -> None:
    assert ours.encode([text])[0] == theirs(text, add_special_tokens=False)["input_ids"]


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "cafe", "café", "Café", "北", "京", "北京", "a", "##b"]


def folder_with(folder: Path, pieces: list[str], **options: Any) -> Path:
    """A vocabulary and its rules, saved by transformers."""
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    transformers.BertTokenizer(vocabulary, **options).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"do_lower_case": True}, ["cafe", "北", "京"]),
        ({"do_lower_case": False}, ["Café", "北", "京"]),
        ({"do_lower_case": True, "strip_accents": False}, ["café", "北", "京"]),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, ["cafe", "北京"]),
    ],
)
def test_options_survive_saving(tmp_path: Path, options: dict[str, Any], wanted: list[str]) -> None:
    text = "Café 北京"
    tokenizer = Tokenizer.load(folder_with(tmp_path / "theirs", PIECES, **options))
    ids = [PIECES.index(piece) for piece in wanted]
    assert tokenizer.encode([text]) == [ids]
    (saved := tmp_path / "saved").mkdir()
    tokenizer.save(saved, 512)
    again = Tokenizer.load(saved)
    assert again.encode([text]) == [ids] and again.fingerprint == tokenizer.fingerprint
    theirs = transformers.AutoTokenizer.from_pretrained(saved)
    assert theirs(text, add_special_tokens=False)["input_ids"] == ids and theirs.model_max_length == 512


def test_fingerprint_covers_vocabulary_and_rules(tmp_path: Path) -> None:
    prints = []
    for number, (pieces, lower) in enumerate([(PIECES, True), (PIECES, True), (PIECES, False), ([*PIECES, "z"], True)]):
        folder = folder_with(tmp_path / str(number), pieces, do_lower_case=lower)
        prints.append(Tokenizer.load(folder).fingerprint)
    assert prints[0] == prints[1] and len(set(prints)) == 3


def test_fingerprint_covers_special_tokens(ours: Tokenizer, minilm: Path, tmp_path: Path) -> None:
    """The same tokenizer.json with other tokens around a text is another tokenizer."""
    prints = [ours.fingerprint]
    for ends in (("[CLS]", "[MASK]"), ("[MASK]", "[SEP]"), ("[CLS]", "[SEP]")):
        config = {"cls_token": ends[0], "sep_token": ends[1]}
        (tmp_path / "tokenizer.json").write_bytes((minilm / "tokenizer.json").read_bytes())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        prints.append(Tokenizer.load(tmp_path).fingerprint)
    assert len(set(prints[:3])) == 3
    assert prints[3] == prints[0], "BERT's own tokens, though the config names no others"


def test_surrogate_has_an_index(ours: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"text number 1, counted from 0, holds half of a surrogate pair"):
        ours.encode(["a cat", "a \ud83d cat"])


BPE = tokenizers.Tokenizer(tokenizers.models.BPE()).to_str()
BROKEN = [
    ("tokenizer_config.json", b"{}", r"no tokenizer\.json"),
    ("tokenizer.json", BPE, r"tokenizer\.json: the vocabulary lacks \[CLS\], \[SEP\]"),
    ("tokenizer.json", "{", r"tokenizer\.json: not a tokenizer"),
]


@pytest.mark.parametrize(("name", "content", "why"), BROKEN)
def test_other_vocabularies_are_refused(tmp_path: Path, name: str, content: str | bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=why):
        Tokenizer.load(tmp_path)
