"""Guards: WordNet comes from NLTK's server or Debian's packages, and NLTK opens it; else a sentence says it is missing.

python -m pytest --import-mode=importlib tests/data/test_wordnet.py
"""

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.data.fetch import archives, sources
from tasks.data.fetch.collect import Fetcher
from tasks.data.fetch.download import Downloader
from tasks.data.fetch.sources import DataSet

APT = """#!/bin/sh
echo "$*" >> {log}
{action}
[ "$1" = download ] || exit 3
for name in $2 $3; do echo x > "${{name}}_1_all.deb"; done
"""
DPKG = """#!/bin/sh
[ "$1" = -x ] || exit 3
mkdir -p "$3/usr/share" && cp -r {files} "$3/usr/share/wordnet"
"""
Debian = Callable[..., Path]


def content(path: str, rows: int) -> bytes:
    return archives.lexnames().encode() if path.endswith("lexnames") else b"a line\n" * max(rows, 1)


@pytest.fixture
def wordnet(server: Any) -> DataSet:
    """The set as in the table, its archives on the test server, where there are none yet."""
    dataset = sources.load("wordnet")
    parts = []
    for part in dataset.parts:
        first, *others = part.sources
        archive = server.url(first.archive.rpartition("/")[2])
        parts.append(replace(part, sources=(replace(first, archive=archive), *others)))
    return replace(dataset, parts=tuple(parts))


def serve(server: Any, wordnet: DataSet) -> None:
    for part in wordnet.parts:
        file, source = io.BytesIO(), part.sources[0]
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for one in source.files:
                archive.writestr(one.path.removeprefix(source.drop), content(one.path, one.rows))
        server.files[source.archive.rpartition("/")[2]] = file.getvalue()


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Debian:
    """Programs called apt-get and dpkg-deb, first on PATH; returns the log of what apt-get was asked for."""
    programs, files, log = tmp_path / "bin", tmp_path / "wordnet", tmp_path / "log"
    programs.mkdir()
    files.mkdir()
    for one in sources.load("wordnet").parts[0].sources[0].files:
        if not one.path.endswith("lexnames"):  # Debian's packages lack it
            (files / Path(one.path).name).write_bytes(content(one.path, one.rows))

    def make(action: str = "") -> Path:
        for name, text in {"apt-get": APT.format(log=log, action=action), "dpkg-deb": DPKG.format(files=files)}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        return log

    return make


@pytest.fixture
def fetcher(tmp_path: Path, downloads: Downloader) -> Fetcher:
    return Fetcher(tmp_path / "to", downloads)


def manifest(fetcher: Fetcher) -> dict[str, Any]:
    return json.loads((fetcher.to / "nltk_data" / "manifest.json").read_text())


def test_nltks_server_comes_first(server: Any, fetcher: Fetcher, debian: Debian, wordnet: DataSet) -> None:
    log = debian()
    serve(server, wordnet)
    assert fetcher.collect(wordnet)
    assert not log.exists() and manifest(fetcher)["notes"] == []
    assert (fetcher.to / "nltk_data/corpora/wordnet/lexnames").read_text() == archives.lexnames()
    assert len(list((fetcher.to / "nltk_data/taggers/averaged_perceptron_tagger_eng").iterdir())) == 3
    asked = len(server.asked)
    assert fetcher.collect(wordnet) and len(server.asked) == asked


def test_debians_packages_are_unpacked_and_completed(fetcher: Fetcher, debian: Debian, wordnet: DataSet) -> None:
    log = debian()
    assert fetcher.collect(wordnet)
    assert log.read_text() == "download wordnet-base wordnet-sense-index\n"
    assert (fetcher.to / "nltk_data/corpora/wordnet/lexnames").read_text() == archives.lexnames()
    assert manifest(fetcher)["files"][0]["source"] == "Debian's wordnet-base and wordnet-sense-index"
    (note,) = manifest(fetcher)["notes"]
    assert note.startswith("tagger: left out: ") and "WordNet's own counts decide the part of speech" in note
    assert sorted(path.name for path in (fetcher.to / "nltk_data").iterdir()) == ["corpora", "manifest.json"]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("echo 'E: Unable to locate package wordnet-base' >&2; exit 100", "apt-get: E: Unable to locate package"),
        ("exit 7", "apt-get: exit code 7"),
        ("exit 0", "no file wordnet/data.noun in them"),
    ],
)
def test_without_either_one_sentence_says_what_is_missing(
    fetcher: Fetcher, debian: Debian, wordnet: DataSet, capsys: pytest.CaptureFixture[str], action: str, words: str
) -> None:
    debian(action)
    assert not fetcher.collect(wordnet)
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "MISSING" in line]
    assert words in said and "404" in said and "synonym augmentation needs it; everything else works" in said
    assert [path for path in fetcher.to.rglob("*") if path.is_file()] == [fetcher.to / "nltk_data/.fetched.json"]


def test_a_machine_without_apt_says_so(
    fetcher: Fetcher, wordnet: DataSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(fetcher.to))
    assert not fetcher.collect(wordnet)
    assert "apt-get is not installed" in capsys.readouterr().out


def test_another_version_of_wordnet_is_refused(fetcher: Fetcher, debian: Debian, wordnet: DataSet) -> None:
    log = debian()
    (log.parent / "wordnet" / "data.noun").write_bytes(b"a line\n" * 82_000)
    assert not fetcher.collect(wordnet)
    assert not (fetcher.to / "nltk_data" / "corpora").exists()


def test_the_45_lexicographer_files() -> None:
    lines = archives.lexnames().splitlines()
    assert len(lines) == 45 and lines[0] == "00\tadj.all\t3" and lines[29] == "29\tverb.body\t2"
    assert lines[3] == "03\tnoun.Tops\t1" and lines[44] == "44\tadj.ppl\t3" and lines[2] == "02\tadv.all\t4"


@pytest.mark.realdata
def test_a_mirror_of_the_real_wordnet_opens_with_nltk(real_data: Path, tmp_path: Path, downloads: Downloader) -> None:
    if not (real_data / "nltk_data").is_dir():
        pytest.skip("DATA_DIR holds no nltk_data")
    assert Fetcher(tmp_path, downloads, str(real_data)).collect(sources.load("wordnet"))
    code = "from nltk.corpus import wordnet as w; print(sum(1 for _ in w.all_synsets()))"
    environment = {**os.environ, "NLTK_DATA": str(tmp_path / "nltk_data"), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 117_659
