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


def folder_with(tmp_path: Path, pieces: list[str], config: dict[str, Any] | None = None) -> Path:
    (tmp_path / "vocab.txt").write_bytes("".join(f"{piece}\n" for piece in pieces).encode())
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIAL, "cafe", "café", "Café", "北", "京", "北京", "a", "##b"]


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
    tokenizer = Tokenizer.load(folder_with(tmp_path, PIECES, options))
    ids = [PIECES.index(piece) for piece in wanted]
    assert tokenizer.encode([text]) == [ids]
    (saved := tmp_path / "saved").mkdir()
    tokenizer.save(saved, 512)
    for without in ("nothing", "tokenizer.json"):
        (saved / without).unlink(missing_ok=True)
        again = Tokenizer.load(saved)
        assert again.encode([text]) == [ids]
        assert (again.lowercase, again.size, again.cls) == (tokenizer.lowercase, len(PIECES), 2)


def test_unicode_line_separators_are_pieces(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder_with(tmp_path, [*SPECIAL, "a", "\u2028", "\x85", "b"]))
    assert tokenizer.encode(["a b"]) == [[5, 8]]
    assert tokenizer.size == 9


def test_fingerprint_covers_vocabulary_and_rules(tmp_path: Path) -> None:
    prints = []
    for number, (pieces, lower) in enumerate([(PIECES, True), (PIECES, True), (PIECES, False), ([*PIECES, "z"], True)]):
        (folder := tmp_path / str(number)).mkdir()
        prints.append(Tokenizer.load(folder_with(folder, pieces, {"do_lower_case": lower})).fingerprint)
    assert prints[0] == prints[1] and len(set(prints)) == 3


def test_transformers_saves_equal_fingerprints(tmp_path: Path) -> None:
    (source := tmp_path / "source").mkdir()
    folder_with(source, PIECES, {"tokenizer_class": "BertTokenizer"})
    theirs = transformers.AutoTokenizer.from_pretrained(source)
    theirs.save_pretrained(tmp_path / "theirs")
    assert Tokenizer.load(tmp_path / "theirs").fingerprint == Tokenizer.load(source).fingerprint
    theirs.add_tokens(["<e1>"])
    theirs.save_pretrained(tmp_path / "more")
    more = Tokenizer.load(tmp_path / "more")
    (saved := tmp_path / "saved").mkdir()
    more.save(saved, 512)
    again = Tokenizer.load(saved)
    assert again.encode(["a <e1> café"]) == [theirs("a <e1> café", add_special_tokens=False)["input_ids"]]
    assert again.fingerprint == more.fingerprint != Tokenizer.load(source).fingerprint


BPE = tokenizers.Tokenizer(tokenizers.models.BPE()).to_str()
BROKEN = [
    ("vocab.txt", "[PAD]\n[CLS]\n[SEP]\na\n", r"vocab\.txt: the vocabulary lacks \[UNK\], \[MASK\]"),
    ("vocab.txt", "\n".join([*PIECES, "a", "cafe"]), r"vocab\.txt: .*2 of 15 lines"),
    ("vocab.txt", "\n".join(PIECES).encode("utf-16"), r"vocab\.txt:1: not UTF-8 text"),
    ("tokenizer_config.json", b"{}", r"neither tokenizer\.json nor vocab\.txt"),
    ("tokenizer.json", BPE, r"tokenizer\.json: not BERT's WordPiece"),
    ("tokenizer.json", "{", r"tokenizer\.json: not a tokenizer"),
]


@pytest.mark.parametrize(("name", "content", "why"), BROKEN)
def test_other_vocabularies_are_refused(tmp_path: Path, name: str, content: str | bytes, why: str) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=why):
        Tokenizer.load(tmp_path)
