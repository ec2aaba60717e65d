"""Guards: NLTK opens the WordNet of a mirror.

DATA_DIR=... python -m pytest --import-mode=importlib tests/data/test_wordnet.py -m realdata
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.data.fetch import sources
from tasks.data.fetch.collect import Fetcher
from tasks.data.fetch.download import Downloader


@pytest.mark.realdata
def test_a_mirror_of_the_real_wordnet_opens_with_nltk(real_data: Path, tmp_path: Path, downloads: Downloader) -> None:
    if not (real_data / "nltk_data").is_dir():
        pytest.skip("DATA_DIR holds no nltk_data")
    assert Fetcher(tmp_path, downloads, str(real_data)).collect(sources.load("wordnet"))
    code = "from nltk.corpus import wordnet as w; print(sum(1 for _ in w.all_synsets()))"
    environment = {**os.environ, "NLTK_DATA": str(tmp_path / "nltk_data"), "PYTHONPATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 117_659
