"""Guards: WordNet comes from NLTK's server, and NLTK opens it.

python -m pytest --import-mode=importlib tests/data/test_wordnet.py
"""

import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.data.fetch import sources
from tasks.data.fetch.collect import Fetcher
from tasks.data.fetch.download import Downloader
from tasks.data.fetch.sources import DataSet


def content(rows: int) -> bytes:
    return b"a line\n" * max(rows, 1)


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
                archive.writestr(one.path.removeprefix(source.drop), content(one.rows))
        server.files[source.archive.rpartition("/")[2]] = file.getvalue()


@pytest.fixture
def fetcher(tmp_path: Path, downloads: Downloader) -> Fetcher:
    return Fetcher(tmp_path / "to", downloads)


def manifest(fetcher: Fetcher) -> dict[str, Any]:
    return json.loads((fetcher.to / "nltk_data" / "manifest.json").read_text())


def test_wordnet_and_the_tagger_come_from_nltks_server(server: Any, fetcher: Fetcher, wordnet: DataSet) -> None:
    serve(server, wordnet)
    assert fetcher.collect(wordnet)
    assert manifest(fetcher)["notes"] == []
    assert len(list((fetcher.to / "nltk_data/taggers/averaged_perceptron_tagger_eng").iterdir())) == 3
    asked = len(server.asked)
    assert fetcher.collect(wordnet) and len(server.asked) == asked


@pytest.mark.realdata
def test_a_mirror_of_the_real_wordnet_opens_with_nltk(real_data: Path, tmp_path: Path, downloads: Downloader) -> None:
    if not (real_data / "nltk_data").is_dir():
        pytest.skip("DATA_DIR holds no nltk_data")
    assert Fetcher(tmp_path, downloads, str(real_data)).collect(sources.load("wordnet"))
    code = "from nltk.corpus import wordnet as w; print(sum(1 for _ in w.all_synsets()))"
    environment = {**os.environ, "NLTK_DATA": str(tmp_path / "nltk_data"), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 117_659
