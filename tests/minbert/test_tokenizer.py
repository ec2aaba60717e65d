"""Guards: token ids equal those of transformers' BertTokenizer, also after saving.

python -m pytest --import-mode=importlib tests/minbert/test_tokenizer.py
"""

from pathlib import Path
from typing import Any

import pytest
import transformers

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


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "café", "Café", "北", "京", "北京", "a", "##b"]


def saved_by_transformers(folder: Path, pieces: list[str], **options: Any) -> Tokenizer:
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    transformers.BertTokenizer(vocabulary, **options).save_pretrained(folder)
    return Tokenizer.load(folder)


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
    tokenizer = saved_by_transformers(tmp_path / "theirs", PIECES, **options)
    ids = [PIECES.index(piece) for piece in wanted]
    assert tokenizer.encode([text]) == [ids]
    saved = tmp_path / "saved"
    saved.mkdir()
    tokenizer.save(saved, 512)
    again = Tokenizer.load(saved)
    assert again.encode([text]) == [ids] and again.fingerprint == tokenizer.fingerprint
    theirs = transformers.AutoTokenizer.from_pretrained(saved)
    assert theirs(text, add_special_tokens=False)["input_ids"] == ids
    assert theirs.model_max_length == 512


def test_fingerprint_covers_what_changes_ids(tmp_path: Path) -> None:
    """Vocabulary, rules, and the tokens around a text."""
    tokenizer = saved_by_transformers(tmp_path / "lower", PIECES, do_lower_case=True)
    same = saved_by_transformers(tmp_path / "same", PIECES, do_lower_case=True)
    cased = saved_by_transformers(tmp_path / "cased", PIECES, do_lower_case=False)
    larger = saved_by_transformers(tmp_path / "larger", [*PIECES, "z"], do_lower_case=True)
    (tmp_path / "same" / "tokenizer_config.json").write_text('{"cls_token": "[CLS]", "sep_token": "[MASK]"}')
    other_end = Tokenizer.load(tmp_path / "same")
    assert same.fingerprint == tokenizer.fingerprint
    assert len({tokenizer.fingerprint, cased.fingerprint, larger.fingerprint, other_end.fingerprint}) == 4


def test_many_texts_are_encoded_in_order(ours: Tokenizer) -> None:
    cat, dog = ours.encode(["a cat", "a dog"])
    assert ours.encode(["a cat"] * 4500 + ["a dog"]) == [cat] * 4500 + [dog]
