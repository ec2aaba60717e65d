"""Guards: the command: exit codes, one-sentence errors, a mirror that lacks its parts.

python -m pytest --import-mode=importlib tests/data/test_get_data.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from minbert import UserError
from tasks.data.__main__ import main

SCRIPT = Path(__file__).parent.parent.parent / "data" / "get_data.py"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the following arguments are required: SET (see --help)"),
        (("NLI",), "set: NLI is spelled nli"),
        (("senteval2",), "'senteval2' is not one of course, nli"),
        (("course", "--year", "2022"), "--year"),
        (("course", "--from-mirror", "nowhere"), "--from-mirror nowhere: neither an http address nor a folder"),
        (("course", "--tries", "0"), "--tries 0: is not above 0"),
        (("--data", "x", "check"), "check comes first"),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["get_data.py", *arguments])
    with pytest.raises(UserError) as caught:
        main()
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_from_any_folder_an_incomplete_set_ends_with_code_2(tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, SCRIPT, "chinese", "--data", "to", "--from-mirror", "mirror"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    sentence = "error: incomplete: chinese (see above); run the same command again to continue\n"
    assert (done.returncode, done.stderr) == (2, sentence)
    assert "LCQMC: MISSING: mirror/zh/LCQMC/LCQMC.train.data: not in the mirror" in done.stdout
