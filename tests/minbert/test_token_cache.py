"""Guards: what goes into the token cache comes out, once built it is not read again, and it belongs to one content.

python -m pytest --import-mode=importlib tests/minbert/test_token_cache.py
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minbert.files import sha256_of
from minbert.token_cache import Issue, Row, TokenCache, load
from minbert.tokenizer import Tokenizer

ROWS = [
    Row("a1", ("the cat sat", "a dog runs!"), 1.0),
    Row("ünï-☃", ("中文 😀 naïve", ""), 0.0),
    Row("", ("", "")),
    Row("z", ("the " * 500, "\u2028line\ttab"), 4.25),
]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINBERT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data.csv").write_text("content")
    return tmp_path / "data.csv"


def reading(*rows: Row | Issue, calls: list[str]) -> Iterator[Row | Issue]:
    """A lazy reader, which records in `calls` that it was used."""
    calls.append("read")
    yield from rows


def check(cache: TokenCache, rows: list[Row], tokenizer: Tokenizer) -> None:
    assert len(cache) == len(rows)
    np.testing.assert_array_equal(cache.labels, [row.label for row in rows])
    for i, row in enumerate(rows):
        assert cache.row_ids[i] == row.id
        for column, text in enumerate(row.texts):
            assert cache.text(i, column) == text
            assert cache.ids(i, column).tolist() == tokenizer.encode([text])[0]
            assert cache.token_counts()[i, column] == len(cache.ids(i, column))


SKIPPED = [Issue(2, "no label"), Issue(5, "Leer: kein Satz ☃")]
FACTS = {"counts": {"read": 4}}
CONTENTS = [
    [*ROWS, FACTS],
    [SKIPPED[0], *ROWS[:2], SKIPPED[1], ROWS[2]],
    [],
    [SKIPPED[0]],
    [Row("x", ("", ""))],
]


@pytest.mark.parametrize("content", CONTENTS)
def test_what_goes_in_comes_out(source: Path, tokenizer: Tokenizer, content: list[Any]) -> None:
    rows = [item for item in content if isinstance(item, Row)]
    skipped = [item for item in content if isinstance(item, Issue)]
    facts = FACTS if FACTS in content else {}
    for _ in ("built", "opened"):
        cache = load(source, content, "pairs", tokenizer, sha256=sha256_of(source))
        check(cache, rows, tokenizer)
        assert cache.token_counts().shape == (len(rows), cache.num_texts)
        assert cache.skipped == tuple(skipped)
        assert cache.report == facts
        entry = cache.manifest_entry()
        assert entry["read"] == len(rows) + len(skipped)
        assert entry["kept"] == len(rows)
        assert entry["skipped"] == [{"line": item.line, "why": item.reason} for item in skipped]
        assert cache.subset(np.arange(len(rows))) is cache
        if len(rows) > 1:
            last = cache.subset(np.array([len(rows) - 1]))
            check(last, rows[-1:], tokenizer)
            assert last.read == cache.read and last.key != cache.key


def test_moved_file_is_a_hit(source: Path, tokenizer: Tokenizer) -> None:
    calls: list[str] = []
    load(source, reading(*ROWS, calls=calls), "pairs", tokenizer, sha256=sha256_of(source))
    moved = source.rename(source.with_name("other.csv"))
    cache = load(moved, reading(*ROWS, calls=calls), "pairs", tokenizer, sha256=sha256_of(moved))
    assert calls == ["read"] and cache.source == moved
    moved.write_text("changed")
    cache = load(moved, reading(*ROWS[:1], calls=calls), "pairs", tokenizer, sha256=sha256_of(moved))
    check(cache, ROWS[:1], tokenizer)
    assert len(calls) == 2


def test_vocabulary_and_reader_change_the_key(
    source: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for fingerprint, reader in (("a", "pairs"), ("b", "pairs"), ("b", "reader 2"), ("a", "pairs")):
        monkeypatch.setattr(tokenizer, "fingerprint", fingerprint)
        load(source, reading(*ROWS, calls=calls), reader, tokenizer, sha256=sha256_of(source))
    assert len(calls) == 3
