"""Guards: the command: exit codes, one-sentence errors, mirrors that lack a part, a killed download.

python -m pytest --import-mode=importlib tests/data/test_get_data.py
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from minbert import UserError
from tasks.data.__main__ import main
from tasks.data.fetch import sources

SCRIPT = Path(__file__).parent.parent.parent / "data" / "get_data.py"


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment.pop("PYTHONPATH", None)  # the script finds the project by itself, from any folder
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def command(*arguments: str, folder: Path) -> tuple[int, str, str]:
    process = start(*arguments, folder=folder)
    out, error = process.communicate(timeout=60)
    return process.returncode, out, error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the following arguments are required: SET (see --help)"),
        (("senteval2",), "'senteval2' is not one of course, nli"),
        (("course", "--year", "2022"), "--year"),
        (("course", "--from-mirror", "nowhere"), "--from-mirror nowhere: neither an http address nor a folder"),
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


def chinese_mirror(folder: Path) -> dict[str, bytes]:
    """A mirror's files with as many rows as the real ones, and nothing else of them."""
    files = {}
    for part in sources.load("chinese").parts:
        if part.name in ("STS-B", "PAWS-X", "BQ", "ATEC"):
            for file in part.sources[0].files:
                files[f"zh/{file.path}"] = b"eins\tzwei\t1\n" * file.rows
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return files


def recorded(folder: Path) -> dict[str, int]:
    """Rows of the files in the manifest, by path."""
    content = json.loads((folder / "to/zh/manifest.json").read_text())
    return {entry["path"]: entry["rows"] for entry in content["files"]}


def test_a_mirror_that_lacks_a_part_ends_with_code_2_and_keeps_the_rest(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    chinese_mirror(mirror)
    code, out, error = command("chinese", "--data", "to", "--from-mirror", "mirror", folder=tmp_path)
    assert code == 2 and error == "error: incomplete: chinese (see above); run the same command again to continue\n"
    assert "LCQMC: MISSING: mirror/zh/LCQMC/LCQMC.train.data: not in the mirror" in out
    assert (tmp_path / "to/zh/STS-B/STS-B.test.data").exists() and "LCQMC/LCQMC.train.data" not in recorded(tmp_path)
    for split, count in (("train", 238766), ("valid", 8802), ("test", 12500)):
        (mirror / "zh/LCQMC").mkdir(exist_ok=True)
        (mirror / f"zh/LCQMC/LCQMC.{split}.data").write_bytes(b"a\tb\t0\n" * count)
    code, out, error = command("chinese", "--data", "to", "--from-mirror", "mirror", folder=tmp_path)
    assert (code, error) == (0, "") and out.count("already there") == 4
    assert recorded(tmp_path)["LCQMC/LCQMC.train.data"] == 238766


def test_killed_in_the_middle_it_leaves_no_part_of_a_file(server: Any, tmp_path: Path) -> None:
    """Kill -9: the second run fetches the file anew and removes what the first one left."""
    name = "zh/ATEC/ATEC.train.data"
    files = chinese_mirror(tmp_path / "mirror")
    server.files = {f"m/{path}": content for path, content in files.items()}
    server.script[f"m/{name}"] = ["stalls"]  # half of it, then silence
    arguments = ("chinese", "--data", "to", "--from-mirror", server.url("m"), "--tries", "1")
    process = start(*arguments, folder=tmp_path)
    until = time.monotonic() + 30
    while time.monotonic() < until and not server.asked:
        time.sleep(0.01)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "to/zh/.download").exists() and not (tmp_path / "to" / name).exists()
    code, _, error = command(*arguments, folder=tmp_path)
    assert code == 2 and "incomplete: chinese" in error  # LCQMC is not in this mirror
    assert (tmp_path / "to" / name).read_bytes() == files[name]
    assert not (tmp_path / "to/zh/.download").exists()
