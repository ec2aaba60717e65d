"""Guards: the preview of synonym replacement: files of any form, marks, and one sentence for a user's mistake.

python -m pytest --import-mode=importlib tests/contrastive/synonyms/test_preview.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minbert import UserError
from tasks.contrastive.synonyms import preview as synonym_preview
from tasks.contrastive.synonyms.replacement import Change
from tasks.contrastive.synonyms.synonym_table import SynonymTable


@pytest.fixture
def _small_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = SynonymTable.of({("big", "a"): ["enormous"], ("car", "n"): ["automobile"]})
    monkeypatch.setattr("tasks.contrastive.synonyms.wordnet.find", lambda data: tmp_path)
    monkeypatch.setattr("tasks.contrastive.synonyms.synonym_table.load", lambda folder, **options: table)


@pytest.mark.usefixtures("_small_table")
def test_lines_and_triplets_with_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plain.txt").write_text("A big car stops.\n\nNothing here.\n", encoding="utf-8")
    synonym_preview.main(["preview", str(tmp_path / "plain.txt")])
    shown = capsys.readouterr().out.splitlines()
    assert shown[:3] == ["1  - A big car stops.", "   + [A big -> An enormous] car stops.", "3  = Nothing here."]
    assert shown[-1].startswith("1 of 2 texts changed · method 3, p = 1, seed 11711 · read as lines")
    assert shown[-1].endswith("parts of speech by wordnet counts")
    (tmp_path / "triplets.csv").write_text("sent0,sent1,hard_neg\nA car.,The big car.,No.\n", encoding="utf-8")
    synonym_preview.main(["preview", str(tmp_path / "triplets.csv"), "--method", "2", "--p", "1"])
    shown = capsys.readouterr().out
    assert "+ An automobile." not in shown  # the article is part of the mark
    assert "+ [A car -> An automobile]." in shown
    assert "+ The [big -> enormous] [car -> automobile]." in shown
    assert "3 texts changed · method 2" in shown


@pytest.mark.usefixtures("_small_table")
@pytest.mark.parametrize("phrases", [False, True])
def test_phrases_go_by_the_name_that_training_has(
    phrases: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, bool]] = []
    table = SynonymTable.of({("big", "a"): ["enormous"]})
    load = "tasks.contrastive.synonyms.synonym_table.load"
    monkeypatch.setattr(load, lambda folder, **options: (seen.append(options), table)[1])
    (tmp_path / "plain.txt").write_text("A big car stops.\n", encoding="utf-8")
    synonym_preview.main(["preview", str(tmp_path / "plain.txt"), *(["--phrases"] if phrases else [])])
    assert seen == [{"multiword": phrases, "all_senses": False}]


def test_marks_are_colours_on_a_terminal_and_brackets_elsewhere() -> None:
    changes = [Change(0, 5, "An enormous")]
    assert synonym_preview.marked("A big car", changes, colour=False) == ("A big car", "[A big -> An enormous] car")
    old, new = synonym_preview.marked("A big car", changes, colour=True)
    assert (old, new) == ("\033[31mA big\033[0m car", "\033[32mAn enormous\033[0m car")


@pytest.mark.parametrize(("arguments", "said"), [
    (["--p", "2"], "--p: 2.0 is not between 0 and 1"), (["--method", "4"], "invalid choice"),
    (["--limit", "0"], "--limit: 0 is less than 1"),
])  # fmt: skip
def test_mistakes_on_the_command_line(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "a.txt").write_text("A big car.\n", encoding="utf-8")
    with pytest.raises(UserError, match=said):
        synonym_preview.main(["preview", str(tmp_path / "a.txt"), *arguments])


def test_without_wordnet_one_sentence_names_the_command_and_the_exit_code_is_2(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A big car.\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name not in ("NLTK_DATA", "DATA_DIR")}
    command = [sys.executable, "-m", "tasks.contrastive.synonyms", "preview", str(tmp_path / "a.txt")]
    done = subprocess.run(
        [*command, "--data", str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"python data/get_data.py wordnet --to {tmp_path}" in done.stderr
