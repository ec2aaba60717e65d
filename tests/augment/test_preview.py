"""Guards: the preview of synonym replacement: files of any form, marks, and one sentence for a user's mistake.

python -m pytest --import-mode=importlib tests/augment/test_preview.py
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.augment import __main__ as synonym_preview
from tasks.augment.punctuation import insert


@pytest.fixture
def _small_wordnet(write_wordnet: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synsets = [
        ("a", {"big": 1, "enormous": 1}),
        ("n", {"car": 9, "automobile": 9}),
        ("n", {"car": 0, "railway car": 0}),
    ]
    monkeypatch.setenv("NLTK_DATA", str(write_wordnet(tmp_path / "nltk_data", *synsets)))


@pytest.mark.usefixtures("_small_wordnet")
def test_lines_and_triplets_with_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.txt").write_text("A big car stops.\n\nNothing here.\n", encoding="utf-8")
    synonym_preview.main(["preview", str(tmp_path / "plain.txt")])
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["1  A [big -> enormous] car stops.", "3  Nothing here."]
    assert shown[-2].startswith("synonyms, method 3: 100% of the adjectives of these texts have a synonym; with p 1,")
    assert shown[-1] == "read as lines · seed 11711"
    (tmp_path / "triplets.csv").write_text("sent0,sent1,hard_neg\nA car.,The big car.,No.\n", encoding="utf-8")
    synonym_preview.main(["preview", str(tmp_path / "triplets.csv"), "--method", "2", "--p", "1"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["2.1  A [car -> automobile].", "2.2  The [big -> enormous] [car -> automobile]."]
    assert shown[-1].startswith("read as triplet")


def test_punctuation_is_shown_as_training_inserts_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["Failure to meet borrowing requirements", "How is the singing"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    synonym_preview.main(["preview", str(tmp_path / "texts.txt"), "--marks", "english", "--seed", "1"])
    shown = re.sub(r"\[\+(.)\]", r"\1", capsys.readouterr().out)
    for key, text in enumerate(texts):
        assert f"{key + 1}  {insert(text, seed=1, epoch=0, key=key)}\n" in shown
