"""Guards: which words are proper nouns, how often they stand in the fine-tuning sentences, and the table of both.

python -m pytest --import-mode=importlib tests/report/test_nouns.py
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest

from minbert.errors import UserError
from tasks.augment import wordnet
from tasks.report import errors, nouns
from tasks.runs import read_run
from tests.report.test_errors import with_files

Made = Callable[..., Path]
TRAIN = {
    "sst": [("Anna saw Berlin.",), ("A film.",)],
    "quora": [("Is Anna's aunt in Berlin?", "Who are the Indo-Europeans?"), ("ANNA?", "berlin")],
    "sts": [("Indo european tales.", "Nothing."), ("A b.", "c d.")],
}


def capitals(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """A tagger that takes every word with a capital letter, but the first, for a name."""
    return [(token, "NNP" if at and token[0].isupper() else "NN") for at, token in enumerate(tokens)]


@pytest.fixture
def tagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordnet, "find_nltk_data", lambda data="": Path())
    monkeypatch.setattr(wordnet, "tagger", lambda folder: capitals)


def test_proper_nouns_are_those_of_the_tagger_without_possessives() -> None:
    text = "Is Ada Lovelace's house near Saint-Malo? Ada knows."
    assert nouns.proper_nouns(text, capitals) == ["Ada", "Lovelace", "Saint-Malo"]
    assert nouns.words("Anna's INDO-European aunt") == ["anna", "indo-european", "aunt"]


@pytest.mark.usefixtures("tagged")
def test_nouns_are_counted_over_all_fine_tuning_sentences(multitask: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("who is Anna and who is anna in Berlin", "is Quux near Anna's house")
    run = read_run(with_files(multitask(rows=30, skill=0.5, texts=texts), TRAIN))
    pairs = nouns.pairs_of(run, "quora", seed=0)
    rows = run.tasks["quora"].rows
    assert rows is not None
    first, second = pairs.iloc[0], pairs.iloc[1]
    assert first["texts"][0] == "Who is Anna and who is anna in Berlin" and first["nouns"] == {"Anna": 3, "Berlin": 3}
    assert second["nouns"]["Quux"] == 0 == second["rarest"]
    assert pairs["right"].tolist() == (rows.predicted == rows.gold)[:-1].tolist()
    monkeypatch.setattr(nouns, "EXAMINED", 7)
    fewer, again, other = (nouns.pairs_of(run, "quora", seed=seed) for seed in (0, 0, 1))
    assert len(fewer) == 7 and fewer.equals(again) and not fewer.equals(other)


def test_the_difference_is_of_mean_logarithms() -> None:
    pairs = pd.DataFrame({"right": [True] * 20 + [False] * 20, "rarest": [99] * 20 + [0, 9] * 10})
    value, interval = nouns.difference(pairs)
    assert value == pytest.approx(0.5 - 2) and interval is not None
    error = 0.5 / 20**0.5  # of a mean of 0 and 1
    assert (interval.low, interval.high) == pytest.approx((value - 1.96 * error, value + 1.96 * error), abs=0.05)


@pytest.mark.usefixtures("tagged")
def test_the_command_prints_its_tables(multitask: Made, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_files(multitask(rows=60, skill=0.4, texts=("is Anna here",)), TRAIN)
    errors.main(["nouns", str(folder)])
    assert "| predicted incorrectly | " in capsys.readouterr().out
    with pytest.raises(UserError, match="a task sts with classes"):
        errors.main(["nouns", str(folder), "--task", "sts"])
