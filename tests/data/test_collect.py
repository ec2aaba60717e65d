"""Guards: a set with a manifest is complete, else it says what is missing; pinned files are verified, downloads whole.

python -m pytest --import-mode=importlib tests/data/test_collect.py
"""

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from minbert.errors import UserError
from tasks.data.__main__ import SETS
from tasks.data.fetch import collect, sources
from tasks.data.fetch.collect import Fetcher
from tasks.data.fetch.download import Downloader
from tasks.data.fetch.sources import DataSet, File, Part, Source

ONE, TWO, MANY = b"first\nsecond\n", b"a\tb\nc\td\n", b"x\n" * 50


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return file.getvalue()


def small_set(server: Any) -> DataSet:
    """Two parts: one file pinned by its hash, two files known by their rows."""
    base = server.url("public")
    pinned = Source((File("one.txt", 2, hashlib.sha256(ONE).hexdigest()),), url=base)
    counted = Source((File("sub/two.tsv", 1, form="tsv"), File("sub/many.txt", 50)), url=base)
    server.files |= {"public/one.txt": ONE, "public/sub/two.tsv": TWO, "public/sub/many.txt": MANY}
    return DataSet(
        "small", "small", (Part("pinned", (pinned,), "CC0", "A 2001"), Part("counted", (counted,), "MIT", "B 2002"))
    )


@pytest.fixture
def fetcher(tmp_path: Path, downloads: Downloader) -> Fetcher:
    return Fetcher(tmp_path / "to", downloads)


def manifest(fetcher: Fetcher, folder: str = "small") -> dict[str, Any]:
    return json.loads((fetcher.to / folder / "manifest.json").read_text())


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_set_is_whole_with_its_manifest(server: Any, fetcher: Fetcher, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetcher.collect(small_set(server))
    assert names(fetcher.to / "small") == ["manifest.json", "one.txt", "sub/many.txt", "sub/two.tsv"]
    content = manifest(fetcher)
    assert content["complete"] and content["set"] == "small"
    by_path = {entry["path"]: entry for entry in content["files"]}
    assert (
        by_path["sub/many.txt"] | {"bytes": 100, "rows": 50, "licence": "MIT", "citation": "B 2002"}
        == (by_path["sub/many.txt"])
    )
    assert by_path["one.txt"]["source"] == server.url("public/one.txt") and by_path["one.txt"]["pinned"]
    assert by_path["one.txt"]["sha256"] == hashlib.sha256(ONE).hexdigest()
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("CC0", "A 2001", "MIT", "B 2002"))


def test_what_is_there_is_not_fetched_again(server: Any, fetcher: Fetcher) -> None:
    assert fetcher.collect(small_set(server)) and len(server.asked) == 3
    assert fetcher.collect(small_set(server)) and len(server.asked) == 3
    (fetcher.to / "small" / "manifest.json").unlink()  # files put there by hand count by what they are
    assert fetcher.collect(small_set(server)) and len(server.asked) == 3
    (fetcher.to / "small" / "sub" / "many.txt").write_bytes(MANY[:-2])
    assert fetcher.collect(small_set(server)) and len(server.asked) == 4, "it has not its number of rows any more"
    sources = {entry["path"]: entry["source"] for entry in manifest(fetcher)["files"]}
    assert sources["one.txt"] == "found in place" and sources["sub/many.txt"] == server.url("public/sub/many.txt")


def test_a_set_that_is_missing_a_part_says_so_and_goes_on(
    server: Any, fetcher: Fetcher, capsys: pytest.CaptureFixture[str]
) -> None:
    small = small_set(server)
    server.files["public/one.txt"] = b"another\nfile\n"
    assert not fetcher.collect(small)
    assert names(fetcher.to / "small") == ["manifest.json", "sub/many.txt", "sub/two.tsv"]
    assert not manifest(fetcher)["complete"]
    shown = capsys.readouterr().out
    assert re.search(r"pinned: MISSING: http\S+/public/one.txt: not the expected file: its sha256 is ", shown)
    assert "incomplete: pinned; the other parts are kept, run the same command again to go on" in shown
    server.files["public/one.txt"] = ONE
    before = len(server.asked)
    assert fetcher.collect(small) and server.asked[before:] == ["public/one.txt"]
    content = manifest(fetcher)
    assert content["complete"] and content["files"][1]["source"] == server.url("public/sub/many.txt")


def test_an_archive_is_fetched_once_for_all_its_parts(server: Any, fetcher: Fetcher) -> None:
    server.files["set.zip"] = zipped(top__a__one=ONE, top__b__many=MANY)
    url = server.url("set.zip")
    left = fetcher.to / "small" / ".download" / "set.zip"  # by a run that was killed
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of another address")
    parts = tuple(
        Part(name, (Source((File(f"kept/{name}/{file}", count),), archive=url, drop="kept/"),), "MIT", "B")
        for name, file, count in (("a", "one", 2), ("b", "many", 50))
    )
    assert fetcher.collect(DataSet("small", "small", parts))
    assert len(server.asked) == 1
    assert names(fetcher.to / "small") == ["kept/a/one", "kept/b/many", "manifest.json"]
    assert manifest(fetcher)["files"][0]["source"] == url


@pytest.mark.parametrize("case", ["rows", "hash", "404"])
def test_an_archive_that_is_not_right_gives_way_to_the_next_source(server: Any, fetcher: Fetcher, case: str) -> None:
    content = MANY if case == "rows" else ONE
    server.files |= {"set.zip": zipped(**{"one.txt": content}), "plain/one.txt": ONE}
    if case == "404":
        del server.files["set.zip"]
    digest = "0" * 64 if case == "hash" else ""
    bad = Source((File("one.txt", 2),), archive=server.url("set.zip"), sha256=digest)
    good = Source(bad.files, url=server.url("plain"))
    assert fetcher.collect(DataSet("small", "small", (Part("p", (bad, good), "MIT", "B"),)))
    assert names(fetcher.to / "small") == ["manifest.json", "one.txt"]
    assert (fetcher.to / "small" / "one.txt").read_bytes() == ONE


def test_a_sample_stands_in_only_while_the_whole_cannot_be_had(server: Any, fetcher: Fetcher) -> None:
    whole = Source((File("whole.txt", 50),), url=server.url("public"))
    sample = Source((File("sample.txt", 2),), url=server.url("public"), partial=True)
    small = DataSet("small", "small", (Part("p", (whole, sample), "MIT", "B"),))
    server.files["public/sample.txt"] = ONE
    for _ in range(2):
        assert fetcher.collect(small)
        assert "sample.txt" in manifest(fetcher)["notes"][0]
    server.files["public/whole.txt"] = MANY
    assert fetcher.collect(small) and manifest(fetcher)["notes"] == []
    assert "whole.txt" in names(fetcher.to / "small")


def test_an_optional_part_is_left_out_with_a_note(server: Any, fetcher: Fetcher) -> None:
    gone = Part("gone", (Source((File("gone.txt", 1),), url=server.url("nowhere")),), "MIT", "B", optional=True)
    private = Part("private", (Source((File("own.txt", 1),)),), "MIT", "B", optional=True)
    assert fetcher.collect(DataSet("small", "small", (*small_set(server).parts, gone, private)))
    notes = manifest(fetcher)["notes"]
    assert "gone: left out" in notes[0] and "404" in notes[0] and "no public address" in notes[1]


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_mirror_has_the_layout_of_the_data_folder(
    server: Any, tmp_path: Path, downloads: Downloader, kind: str
) -> None:
    small = small_set(server)
    files = {"small/one.txt": ONE, "small/sub/two.tsv": TWO, "small/sub/many.txt": MANY}
    for name, content in files.items():
        (tmp_path / "mirror" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mirror" / name).write_bytes(content)
    server.files = {f"m/{name}": content for name, content in files.items()} if kind == "url" else {}
    mirror = server.url("m") if kind == "url" else str(tmp_path / "mirror")
    fetcher = Fetcher(tmp_path / "to", downloads, mirror)
    assert fetcher.collect(small)
    assert manifest(fetcher)["files"][0]["source"] == f"{mirror}/small/one.txt"
    assert len(server.asked) == (3 if kind == "url" else 0)


@pytest.mark.parametrize(
    ("content", "form", "count"),
    [(b"", "lines", 0), (b"a", "lines", 1), (b"a\n\nb", "lines", 3), (b'h,i\n"x\ny",z\n', "csv", 1), (TWO, "tsv", 1)],
)
def test_rows_are_counted(tmp_path: Path, content: bytes, form: str, count: int) -> None:
    (tmp_path / "f").write_bytes(content)
    assert collect.rows(tmp_path / "f", form) == count


@pytest.mark.parametrize(("year", "rows"), [(2023, 141506), (2024, 283010)])
def test_every_set_is_in_the_table_and_the_year_chooses_the_course_files(year: int, rows: int) -> None:
    assert all(sources.load(name, year).parts for name in SETS)
    questions = {file.path: file.rows for part in sources.load("course", year).parts for file in part.sources[0].files}
    assert questions["quora-train.csv"] == rows


def test_the_hub_is_where_hf_endpoint_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    assert sources.load("nli").parts[0].sources[0].url.startswith("https://hub.example/datasets/princeton-nlp/")
    monkeypatch.delenv("HF_ENDPOINT")
    assert sources.load("nli").parts[0].sources[0].url.startswith("https://huggingface.co/datasets/princeton-nlp/")


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["senteval", "wordnet"])
def test_real_files_verify_against_the_table(name: str, real_data: Path, tmp_path: Path, downloads: Downloader) -> None:
    dataset, fetcher = sources.load(name), Fetcher(tmp_path / "to", downloads, str(real_data))
    if not (real_data / dataset.folder).is_dir():
        pytest.skip(f"DATA_DIR holds no {dataset.folder}")
    assert fetcher.collect(dataset)
    assert name != "senteval" or all(entry["pinned"] for entry in manifest(fetcher, name)["files"])


BODY = hashlib.shake_256(b"a file").digest(40_000)


@pytest.mark.parametrize("troubles", [[], ["500"], ["truncates", "503"], ["stalls"]], ids=" ".join)
def test_a_failed_attempt_is_repeated(server: Any, downloads: Downloader, tmp_path: Path, troubles: list[str]) -> None:
    server.files["file"], server.script["file"] = BODY, list(troubles)
    downloads.fetch(server.url("file"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("trouble", ["404", "500", "truncates", "stalls"])
def test_the_last_attempt_fails_in_one_sentence(
    server: Any, downloads: Downloader, tmp_path: Path, trouble: str
) -> None:
    server.files["file"], server.script["file"] = BODY, [trouble] * 9
    with pytest.raises(UserError) as error:
        downloads.fetch(server.url("file"), tmp_path / "file")
    assert "\n" not in str(error.value) and str(error.value).startswith(server.url("file"))
    assert len(server.asked) == 3 and not list(tmp_path.iterdir())
