"""Guards: WordNet comes from NLTK's server, else from Debian's packages, else one sentence says what is missing.

python -m pytest --import-mode=importlib tests/data/test_wordnet.py
"""

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from data.fetch import wordnet
from data.fetch.collect import Fetcher
from data.fetch.download import Downloader, Policy
from data.fetch.wordnet import Servers

DATA = "  1 a licence line\n00001740 03 n 01 entity 0 000 | that which is\n00001930 03 n 01 thing 0 000 | a thing\n"
SYNSETS = 8  # two in each of the four files
ALL = [*wordnet._FILES]


def content(name: str) -> str:
    return wordnet.lexnames() if name == "lexnames" else DATA


APT = """#!/bin/sh
[ "$1" = download ] || exit 3
echo "$PWD $*" >> {log}
{action}
for name in $2 $3; do echo x > "${{name}}_1_all.deb"; done
"""
DPKG = """#!/bin/sh
[ "$1" = -x ] || exit 3
mkdir -p "$3/usr/share/doc/wordnet-base" && cp -r {files} "$3/usr/share/wordnet"
echo "a licence" > "$3/usr/share/doc/wordnet-base/copyright"
"""


@pytest.fixture
def fetcher(tmp_path: Path, policy: Policy) -> Fetcher:
    return Fetcher(tmp_path / "to", Downloader(policy))


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Programs called apt-get and dpkg-deb, first on PATH; `log` is what apt-get was asked for."""
    programs, files, log = tmp_path / "bin", tmp_path / "wordnet", tmp_path / "log"
    programs.mkdir()
    files.mkdir()
    for name in [name for name in ALL if name != "lexnames"]:  # Debian's packages lack it
        (files / name).write_text(content(name))

    def make(action: str = "") -> Path:
        for name, text in {"apt-get": APT.format(log=log, action=action), "dpkg-deb": DPKG.format(files=files)}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        return log

    return make


STUB = """
import sys, urllib.request, zipfile
from pathlib import Path
class Downloader:
    def __init__(self, server_index_url=None, download_dir=None):
        self.index, self.to = server_index_url, download_dir
    def download(self, name, quiet=False):
        kind = "corpora" if name == "wordnet" else "taggers"
        try:
            body = urllib.request.urlopen(self.index.replace("index.xml", name + ".zip"), timeout=5).read()
        except OSError as error:
            print(f"[nltk_data] Error loading {name}:\\n[nltk_data]   {error}", file=sys.stderr)
            return False
        path = Path(self.to, kind, name + ".zip")
        path.parent.mkdir(parents=True)
        path.write_bytes(body)
        if kind == "taggers":
            zipfile.ZipFile(path).extractall(path.parent)
        return True
"""
"""In the place of nltk.downloader: the same ways (says False, leaves WordNet zipped), without seconds of import."""


@pytest.fixture(autouse=True)
def _quick_nltk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stub" / "nltk").mkdir(parents=True)
    (tmp_path / "stub" / "nltk" / "__init__.py").touch()
    (tmp_path / "stub" / "nltk" / "downloader.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "stub"), os.environ.get("PYTHONPATH", "")]))


def nltk_server(server: Any, kinds: dict[str, str], *, broken: bool = False) -> str:
    """An index and packages as NLTK's downloader reads them: {package: folder}. WordNet's package stays zipped."""
    from hashlib import md5, sha256

    lines = []
    for name, kind in kinds.items():
        names = ALL if name == "wordnet" else wordnet._TAGGER_FILES
        file, unpacked = io.BytesIO(), sum(len(content(one)) for one in names)
        with zipfile.ZipFile(file, "w") as archive:
            for one in names:
                archive.writestr(f"{name}/{one}", content(one))
        body = file.getvalue()
        server.files[f"{name}.zip"] = body[:-9] if broken else body
        facts = f'checksum="{md5(body).hexdigest()}" sha256_checksum="{sha256(body).hexdigest()}" size="{len(body)}"'
        unzip = 'unzip="0"' if name == "wordnet" else 'unzip="1"'
        lines.append(
            f'<package id="{name}" name="{name}" subdir="{kind}" {unzip} unzipped_size="{unpacked}" {facts} '
            f'url="{server.url(name + ".zip")}"/>'
        )
    server.files["index.xml"] = f"<nltk_data><packages>{''.join(lines)}</packages></nltk_data>".encode()
    return server.url("index.xml")


def manifest(fetcher: Fetcher) -> dict[str, Any]:
    return json.loads((fetcher.to / "nltk_data" / "manifest.json").read_text())


BOTH = {"wordnet": "corpora", "averaged_perceptron_tagger_eng": "taggers"}


def test_nltks_downloader_comes_first(server: Any, fetcher: Fetcher, debian: Any) -> None:
    log = debian()
    assert wordnet.collect(fetcher, Servers(nltk_server(server, BOTH), 30), SYNSETS)
    assert not log.exists()
    assert (fetcher.to / "nltk_data/corpora/wordnet/lexnames").read_text() == wordnet.lexnames()
    assert manifest(fetcher)["tagger"] is True and manifest(fetcher)["notes"] == []
    paths = [entry["path"] for entry in manifest(fetcher)["files"]]
    assert "corpora/wordnet/data.noun" in paths and any(path.startswith("taggers/") for path in paths)
    asked = len(server.asked)
    assert wordnet.collect(fetcher, Servers(server.url("index.xml"), 30), SYNSETS) and len(server.asked) == asked


def test_nltks_own_downloader_does_what_the_stub_does(
    server: Any, fetcher: Fetcher, debian: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "stub" / "nltk" / "downloader.py").rename(tmp_path / "unused.py")
    (tmp_path / "stub" / "nltk" / "__init__.py").unlink()
    (tmp_path / "stub" / "nltk").rmdir()
    lenient = "import nltk.pathsec\nnltk.pathsec.ENFORCE = False  # it refuses 127.0.0.1\n"
    monkeypatch.setattr(wordnet, "_SCRIPT", lenient + wordnet._SCRIPT)
    log, tagger = debian(), fetcher.to / "nltk_data" / "taggers" / wordnet._TAGGER_NAME
    tagger.mkdir(parents=True)  # there already: one process is slow enough
    for name in wordnet._TAGGER_FILES:
        (tagger / name).write_text("{}")
    assert wordnet.collect(fetcher, Servers(nltk_server(server, {"wordnet": "corpora"}), 60), SYNSETS)
    assert not log.exists()
    assert {entry["source"] for entry in manifest(fetcher)["files"]} == {"NLTK's downloader", "lay there"}


def test_debians_packages_are_unpacked_and_completed(
    server: Any, fetcher: Fetcher, debian: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    log = debian()
    assert wordnet.collect(fetcher, Servers(server.url("none/index.xml"), 30), SYNSETS)
    place = fetcher.to / "nltk_data/corpora/wordnet"
    assert sorted(path.name for path in place.iterdir()) == sorted([*ALL, "LICENSE"])
    assert not any(path.is_symlink() for path in place.iterdir())
    assert log.read_text().split()[1:] == ["download", "wordnet-base", "wordnet-sense-index"]
    assert not Path(log.read_text().split()[0]).exists(), "the temporary folder is gone"
    assert wordnet.TAG_NOTE in manifest(fetcher)["notes"][0] and manifest(fetcher)["tagger"] is False
    assert wordnet.TAG_NOTE in capsys.readouterr().out
    assert manifest(fetcher)["files"][0]["source"].startswith("Debian's packages")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("echo 'E: Unable to locate package wordnet-base' >&2; exit 100", "Unable to locate package"),
        ("sleep 5", "apt-get gave no result in 1 s"),
        ("exit 7", "apt-get ended with code 7"),
        ("exit 0", "data.noun is missing"),
    ],
)
def test_without_either_one_sentence_says_what_is_missing(
    server: Any, fetcher: Fetcher, debian: Any, capsys: pytest.CaptureFixture[str], action: str, words: str
) -> None:
    debian(action)
    assert not wordnet.collect(fetcher, Servers(server.url("none/index.xml"), 1), SYNSETS)
    said = [line for line in capsys.readouterr().out.splitlines() if "MISSING" in line]
    assert len(said) == 1 and words in said[0] and "NLTK's downloader:" in said[0]
    assert "synonym augmentation needs it, everything else works without" in said[0]
    assert [path for path in fetcher.to.rglob("*") if path.is_file()] == [fetcher.to / "nltk_data/.fetched.json"]


def test_a_machine_without_apt(
    server: Any, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not wordnet.collect(fetcher, Servers(server.url("none/index.xml"), 30), SYNSETS)
    assert "there is no apt-get" in capsys.readouterr().out


def test_a_broken_package_of_nltk_gives_way(server: Any, fetcher: Fetcher, debian: Any) -> None:
    debian()
    assert wordnet.collect(fetcher, Servers(nltk_server(server, BOTH, broken=True), 30), SYNSETS)
    assert manifest(fetcher)["files"][0]["source"].startswith("Debian's packages")


def test_another_wordnet_is_refused(server: Any, fetcher: Fetcher, debian: Any) -> None:
    debian()
    assert not wordnet.collect(fetcher, Servers(nltk_server(server, BOTH), 30), SYNSETS + 1)
    assert not (fetcher.to / "nltk_data/corpora/wordnet").exists()


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_mirror_is_the_only_source_then(server: Any, tmp_path: Path, policy: Policy, debian: Any, kind: str) -> None:
    log, mirror = debian(), tmp_path / "mirror"
    for name in ALL:
        path = f"nltk_data/corpora/wordnet/{name}"
        (mirror / path).parent.mkdir(parents=True, exist_ok=True)
        (mirror / path).write_text(content(name))
        server.files[f"m/{path}"] = content(name).encode()
    fetcher = Fetcher(tmp_path / "to", Downloader(policy), server.url("m") if kind == "url" else str(mirror))
    assert wordnet.collect(fetcher, None, SYNSETS)
    assert not log.exists() and manifest(fetcher)["tagger"] is False
    assert {path.name for path in (fetcher.to / "nltk_data/corpora/wordnet").iterdir()} == set(ALL)


def test_the_45_lexicographer_files() -> None:
    lines = wordnet.lexnames().splitlines()
    assert len(lines) == 45 and lines[0] == "00\tadj.all\t3" and lines[29] == "29\tverb.body\t2"
    assert lines[3] == "03\tnoun.Tops\t1" and lines[44] == "44\tadj.ppl\t3" and lines[2] == "02\tadv.all\t4"


@pytest.mark.realdata
def test_a_mirror_of_the_real_wordnet_opens_with_nltk(tmp_path: Path, policy: Policy) -> None:
    data = os.environ.get("DATA_DIR", "")
    if not data or not Path(data, "nltk_data").is_dir():
        pytest.skip("DATA_DIR holds no nltk_data")
    assert wordnet.collect(Fetcher(tmp_path, Downloader(policy), data))
    code = "from nltk.corpus import wordnet as w; print(sum(1 for _ in w.all_synsets()))"
    environment = {**os.environ, "NLTK_DATA": str(tmp_path / "nltk_data"), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == wordnet.SYNSETS
