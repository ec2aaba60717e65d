"""Guards: which words are proper nouns, how often they stand in the fine-tuning sentences, and the table of both.

python -m pytest --import-mode=importlib tests/report/test_nouns.py
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from minbert.errors import UserError
from tasks.augment import wordnet
from tasks.report import collect, errors, nouns
from tasks.report.nouns import Pair
from tests.report.conftest import HOSTILE
from tests.report.test_errors import with_files

Made = Callable[..., Path]
TRAIN = {
    "sst": [("Anna saw Berlin.",), ("A film.",)],
    "quora": [("Is Anna's aunt in Berlin?", "Who are the Indo-Europeans?"), ("ANNA?", "berlin")],
    "sts": [("Indo european tales.", "Nothing."), ("A b.", "c d.")],
}


@pytest.fixture(autouse=True)
def _without_nltk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "realdata" not in request.keywords:
        monkeypatch.setenv("DATA_DIR", str(tmp_path))
        monkeypatch.delenv("NLTK_DATA", raising=False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Is Ada Lovelace's house near London? Where?", ["Ada", "Lovelace", "London"]),
        ("Why do I think I'm better than NASA says? I’ve no idea.", ["NASA"]),
        ('She said: "Yes." Then Zoë went to Saint-Malo (Brittany).', ["Zoë", "Saint-Malo"]),
        ("what is it", []),
        ("", []),
    ],
)
def test_capital_letters_inside_a_sentence_mark_a_proper_noun(text: str, found: list[str]) -> None:
    assert nouns.capitalised(text) == found


def test_words_are_counted_whatever_their_case() -> None:
    counts = nouns.word_counts(text for rows in TRAIN.values() for row in rows for text in row)
    assert (counts["anna"], counts["berlin"], counts["indo-europeans"], counts["indo"]) == (3, 3, 1, 1)
    assert counts["europeans"] == 0 and counts["Anna"] == 0


def test_a_table_counts_over_all_fine_tuning_sentences(multitask: Made) -> None:
    texts = ("who is Anna and who is anna in Berlin", "is Quux near Anna's house")
    run = collect.read_run(with_files(multitask(rows=30, skill=0.5, texts=texts), TRAIN))
    table = nouns.noun_table(run, "quora", seed=0)
    assert table.sentences == 10 and "capitalised" in table.how
    rows = run.tasks["quora"].rows
    assert rows is not None
    first, second = table.pairs[:2]
    assert first.texts[0] == "Who is Anna and who is anna in Berlin"
    assert first.nouns["Anna"] == first.nouns["Berlin"] == 3 and "anna" not in first.nouns
    assert second.nouns["Quux"] == 0 == second.rarest
    assert [pair.right for pair in table.pairs] == (rows.predicted == rows.gold)[:-1].tolist()
    fewer = nouns.noun_table(run, "quora", seed=0, most=7).pairs
    assert len(fewer) == 7 and {pair.id for pair in fewer} < {pair.id for pair in table.pairs}
    assert (
        fewer
        == nouns.noun_table(run, "quora", seed=0, most=7).pairs
        != nouns.noun_table(run, "quora", seed=1, most=7).pairs
    )


def pair(number: int, text: str, *, right: bool, count: int = 1) -> Pair:
    return Pair(str(number), (text, "other"), right, {"X": count})


def test_the_most_similar_pairs_are_put_side_by_side() -> None:
    words = ["river", "boat", "bridge", "opera", "tenor", "violin", "piano", "soup"]
    draws = np.random.default_rng(0)
    sides = [
        [pair(n, " ".join(draws.choice(words, 4)), right=right) for n in range(count)]
        for right, count in ((True, 9), (False, 6))
    ]
    texts = [" ".join(one.texts) for side in sides for one in side]
    vectors = TfidfVectorizer(stop_words="english").fit_transform(texts).toarray()
    near = vectors[:9] @ vectors[9:].T
    expected, free = [], near.copy()
    for _ in range(4):  # greedily, by brute force
        one, two = np.unravel_index(free.argmax(), free.shape)
        expected.append(free[one, two])
        free[one, :], free[:, two] = -1, -1
    found = nouns.matched(*sides, 4)
    assert [cosine for _, _, cosine in found] == pytest.approx(expected)
    assert len({one.id for one, _, _ in found}) == len({two.id for _, two, _ in found}) == 4
    assert all(one.right and not two.right for one, two, _ in found)
    assert nouns.matched([], sides[1], 4) == nouns.matched(*sides, 0) == []
    assert len(nouns.matched(sides[0][:2], sides[1], 4)) == 2


def test_the_difference_is_of_mean_logarithms() -> None:
    correct = [pair(n, "a", right=True, count=99) for n in range(20)]
    failed = [pair(n, "a", right=False, count=9 * (n % 2)) for n in range(20)]
    value, around = nouns.difference(correct, failed)
    assert value == pytest.approx(0.5 - 2) and around is not None
    error = 0.5 / 20**0.5  # of a mean of 0 and 1
    assert (around.low, around.high) == pytest.approx((value - 1.96 * error, value + 1.96 * error), abs=0.05)


def test_markdown_holds_no_markup_of_the_data() -> None:
    hostile = [Pair(str(n), (text, "a | b\nc"), bool(n % 2), {"<b>|X": 3}) for n, text in enumerate(HOSTILE)]
    text = nouns.as_markdown(nouns.NounTable(hostile, "hand", 5), 2)
    assert "<script" not in text and "<img" not in text and "<b>" not in text
    rows = [" ".join(line.split()) for line in text.splitlines() if line.startswith("|")]
    assert all(len([1 for n, c in enumerate(row) if c == "|" and row[n - 1] != "\\"]) in (5, 6) for row in rows)
    assert "| predicted correctly | 2 | 2 | 0 (0%) | 3 |" in rows


def test_the_command_writes_what_it_prints(multitask: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_files(multitask(rows=60, skill=0.4, texts=("is Anna here",) * 1), TRAIN)
    errors.main(["nouns", str(folder), "--rows", "0", "--pairs", "2", "--out", str(tmp_path / "table.md")])
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "table.md").read_text()
    assert "counted in 10 fine-tuning sentences" in printed and "| predicted incorrectly | " in printed
    with pytest.raises(UserError, match="a task sts with classes"):
        errors.main(["nouns", str(folder), "--task", "sts"])


def test_a_tagger_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    assert nouns.finder(str(tmp_path))[0] is nouns.capitalised, "nothing is there"
    for resource in (wordnet.WORDNET, wordnet.TAGGER):
        (tmp_path / resource).mkdir(parents=True)
        (tmp_path / resource / "index.adj").write_text("of a test")
    with pytest.raises(UserError, match="cannot read it"):
        nouns.finder(str(tmp_path))


@pytest.mark.realdata
def test_the_tagger_finds_names_at_the_start_of_a_sentence(real_data: Path) -> None:
    find, how = nouns.finder(str(real_data))
    if "perceptron" not in how:
        pytest.skip("NLTK's tagger is not in $DATA_DIR/nltk_data")
    assert find("Are most spiders in Australia dangerous?") == ["Australia"]
    assert find("London's bridges are older than Berlin's.") == ["London", "Berlin"]
