"""Guards: a data set is whole with its manifest, or says what is missing and goes on; pinned files are those files.

python -m pytest --import-mode=importlib tests/data/test_collect.py
"""

import hashlib
import io
import json
import os
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from data.fetch import sources, verify
from data.fetch.collect import Fetcher
from data.fetch.download import Downloader, Policy
from data.fetch.sources import DataSet, File, Part, Way

ONE, TWO, MANY = b"first\nsecond\n", b"a\tb\nc\td\n", b"x\n" * 50


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return file.getvalue()


def small_set(server: Any, **further: Any) -> DataSet:
    """Two parts: one file pinned by its id, two files known by their rows."""
    base = server.url("public")
    pinned = Way((File("one.txt", blob(ONE), "", len(ONE), 2),), base=base)
    counted = Way((File("sub/two.tsv", rows=1, form="tsv"), File("sub/many.txt", rows=50)), base=base, **further)
    server.files |= {"public/one.txt": ONE, "public/sub/two.tsv": TWO, "public/sub/many.txt": MANY}
    return DataSet(
        "small", "small", (Part("pinned", (pinned,), "CC0", "A 2001"), Part("counted", (counted,), "MIT", "B 2002"))
    )


@pytest.fixture
def fetcher(tmp_path: Path, policy: Policy) -> Fetcher:
    return Fetcher(tmp_path / "to", Downloader(policy))


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
    (fetcher.to / "small" / "sub" / "many.txt").write_bytes(b"y\n" * 50)
    assert fetcher.collect(small_set(server)) and len(server.asked) == 4, "its recorded hash is not that any more"


def test_a_set_that_is_missing_a_part_says_so_and_goes_on(
    server: Any, fetcher: Fetcher, capsys: pytest.CaptureFixture[str]
) -> None:
    small = small_set(server)
    server.files["public/one.txt"] = b"another\nfile\n"
    assert not fetcher.collect(small)
    assert names(fetcher.to / "small") == [".fetched.json", "sub/many.txt", "sub/two.tsv"]
    shown = capsys.readouterr().out
    assert re.search(r"pinned: MISSING: http\S+/public/one.txt: what came is not the file: its git blob id is ", shown)
    assert "incomplete: pinned; what is complete is kept: run the same command again to go on" in shown
    server.files["public/one.txt"] = ONE
    before = len(server.asked)
    assert fetcher.collect(small) and [asked.path for asked in server.asked[before:]] == ["public/one.txt"]
    assert names(fetcher.to / "small") == ["manifest.json", "one.txt", "sub/many.txt", "sub/two.tsv"]


def test_files_of_a_part_that_is_not_whole_are_not_fetched_again(server: Any, fetcher: Fetcher) -> None:
    """Even where nothing but the record says what they are."""
    way = Way((File("first"), File("second")), base=server.url("public"))
    small = DataSet("small", "small", (Part("p", (way,), "MIT", "B"),))
    server.files["public/first"] = ONE
    assert not fetcher.collect(small)
    server.files["public/second"] = TWO
    assert fetcher.collect(small)
    assert [one.path for one in server.asked] == ["public/first", "public/second", "public/second"]
    assert manifest(fetcher)["files"][0]["source"] == server.url("public/first")


def test_a_mirror_may_hold_unpacked_files_larger_than_their_archive(
    server: Any, tmp_path: Path, policy: Policy
) -> None:
    way = Way((File("many.txt", rows=50),), archive="https://nowhere.example/a.zip", cap=60)
    server.files["m/small/many.txt"] = MANY
    fetcher = Fetcher(tmp_path / "to", Downloader(policy), server.url("m"))
    assert fetcher.collect(DataSet("small", "small", (Part("p", (way,), "MIT", "B"),)))


def test_a_set_that_loses_a_file_loses_its_manifest(server: Any, fetcher: Fetcher) -> None:
    small = small_set(server)
    assert fetcher.collect(small)
    (fetcher.to / "small" / "one.txt").unlink()
    server.files.clear()
    assert not fetcher.collect(small)
    assert not (fetcher.to / "small" / "manifest.json").exists()


def test_a_source_that_changed_is_told_by_the_recorded_hash(
    server: Any, fetcher: Fetcher, capsys: pytest.CaptureFixture[str]
) -> None:
    small = small_set(server)
    assert fetcher.collect(small)
    (fetcher.to / "small" / "sub" / "many.txt").unlink()
    server.files["public/sub/many.txt"] = b"z\n" * 50
    assert not fetcher.collect(small)
    assert "its sha256 is" in capsys.readouterr().out
    assert not (fetcher.to / "small" / "sub" / "many.txt").exists()


def test_an_archive_is_fetched_once_for_all_its_parts(server: Any, fetcher: Fetcher) -> None:
    server.files["set.zip"] = zipped(top__a__one=ONE, top__b__many=MANY)
    url = server.url("set.zip")
    parts = tuple(
        Part(name, (Way((File(f"{name}/{file}", rows=count),), archive=url),), "MIT", "B")
        for name, file, count in (("a", "one", 2), ("b", "many", 50))
    )
    assert fetcher.collect(DataSet("small", "small", parts))
    assert len(server.asked) == 1
    assert names(fetcher.to / "small") == ["a/one", "b/many", "manifest.json"]
    assert manifest(fetcher)["files"][0]["source"] == url


@pytest.mark.parametrize("case", ["hostile", "rows", "hash", "404", "bomb"])
def test_an_archive_that_is_not_right_gives_way_to_the_next_source(server: Any, fetcher: Fetcher, case: str) -> None:
    members = {"rows": {"one.txt": MANY}, "hostile": {"one.txt": ONE, "../x": ONE}}.get(case, {"one.txt": ONE})
    server.files |= {"set.zip": zipped(**members), "plain/one.txt": ONE}
    if case == "404":
        del server.files["set.zip"]
    bad = Way(
        (File("one.txt", rows=2),),
        archive=server.url("set.zip"),
        sha256="0" * 64 if case == "hash" else "",
        unpacked=5 if case == "bomb" else 1 << 20,
    )
    good = Way(bad.files, base=server.url("plain"))
    assert fetcher.collect(DataSet("small", "small", (Part("p", (bad, good), "MIT", "B"),)))
    assert names(fetcher.to / "small") == ["manifest.json", "one.txt"]
    assert (fetcher.to / "small" / "one.txt").read_bytes() == ONE


def test_an_archive_without_the_right_files_is_fetched_anew_by_the_next_run(server: Any, fetcher: Fetcher) -> None:
    server.files["set.zip"] = zipped(wrong=ONE)
    small = DataSet(
        "small",
        "small",
        tuple(Part(n, (Way((File(n, rows=2),), archive=server.url("set.zip")),), "MIT", "B") for n in "ab"),
    )
    assert not fetcher.collect(small) and len(server.asked) == 1
    server.files["set.zip"] = zipped(a=ONE, b=ONE)
    assert fetcher.collect(small) and len(server.asked) == 2


def test_a_sample_stands_in_only_while_the_whole_cannot_be_had(server: Any, fetcher: Fetcher) -> None:
    whole = Way((File("whole.txt", rows=50),), base=server.url("public"))
    sample = Way((File("sample.txt", rows=2),), base=server.url("public"), lesser=True)
    small = DataSet("small", "small", (Part("p", (whole, sample), "MIT", "B"),))
    server.files["public/sample.txt"] = ONE
    for _ in range(2):
        assert fetcher.collect(small)
        assert "sample.txt" in manifest(fetcher)["notes"][0]
    server.files["public/whole.txt"] = MANY
    assert fetcher.collect(small) and manifest(fetcher)["notes"] == []
    assert "whole.txt" in names(fetcher.to / "small")


def test_an_optional_part_is_left_out_with_a_note(server: Any, fetcher: Fetcher) -> None:
    gone = Part("gone", (Way((File("gone.txt", rows=1),), base=server.url("nowhere")),), "MIT", "B", optional=True)
    private = Part("private", (Way((File("own.txt", rows=1),)),), "MIT", "B", optional=True)
    assert fetcher.collect(DataSet("small", "small", (*small_set(server).parts, gone, private)))
    notes = manifest(fetcher)["notes"]
    assert "gone: left out" in notes[0] and "404" in notes[0] and "no public address known" in notes[1]


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_a_mirror_has_the_layout_of_the_data_folder(server: Any, tmp_path: Path, policy: Policy, kind: str) -> None:
    small = small_set(server)
    files = {"small/one.txt": ONE, "small/sub/two.tsv": TWO, "small/sub/many.txt": MANY}
    for name, content in files.items():
        (tmp_path / "mirror" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mirror" / name).write_bytes(content)
    server.files = {f"m/{name}": content for name, content in files.items()} if kind == "url" else {}
    mirror = server.url("m") if kind == "url" else str(tmp_path / "mirror")
    fetcher = Fetcher(tmp_path / "to", Downloader(policy), mirror)
    assert fetcher.collect(small)
    assert manifest(fetcher)["files"][0]["source"] == f"{mirror}/small/one.txt"
    assert len(server.asked) == (3 if kind == "url" else 0)


def test_a_mirror_with_other_content_is_refused_or_accepted_knowingly(
    server: Any, tmp_path: Path, policy: Policy, capsys: pytest.CaptureFixture[str]
) -> None:
    small = DataSet("small", "small", small_set(server).parts[:1])
    (tmp_path / "mirror" / "small").mkdir(parents=True)
    (tmp_path / "mirror" / "small" / "one.txt").write_bytes(MANY)
    strict = Fetcher(tmp_path / "to", Downloader(policy), str(tmp_path / "mirror"))
    assert not strict.collect(small)
    assert "--accept-changed" in capsys.readouterr().out
    assert names(tmp_path / "to" / "small") == [".fetched.json"]
    loose = Fetcher(tmp_path / "to", Downloader(policy), str(tmp_path / "mirror"), accept_changed=True)
    assert loose.collect(small) and loose.collect(small)
    assert manifest(loose)["files"][0] | {"pinned": False, "rows": 50} == manifest(loose)["files"][0]


def test_git_gives_the_same_id(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"hello\n")
    assert verify.git_blob(tmp_path / "f") == "ce013625030ba8dba906f756967f9e9ca394464a"


@pytest.mark.parametrize(
    ("content", "form", "count"),
    [(b"", "lines", 0), (b"a", "lines", 1), (b"a\n\nb", "lines", 3), (b'h,i\n"x\ny",z\n', "csv", 1), (TWO, "tsv", 1)],
)
def test_rows_are_counted(tmp_path: Path, content: bytes, form: str, count: int) -> None:
    (tmp_path / "f").write_bytes(content)
    assert verify.rows(tmp_path / "f", form) == count


TABLES = {
    "course": lambda: sources.course(2024),
    "course-2023": lambda: sources.course(2023),
    "nli": sources.nli,
    "senteval": sources.senteval,
    "chinese": sources.chinese,
}


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_are_sound(name: str) -> None:
    """Paths stay in the folder, ids look like ids, every required part has a public way, files are named once a way."""
    dataset = TABLES[name]()
    for part in dataset.parts:
        assert part.licence and part.citation
        assert part.optional or any(way.base or way.archive for way in part.ways), part.name
        for way in part.ways:
            assert way.files and (way.base + way.archive == "" or (way.base + way.archive).startswith("https://"))
            assert len({file.path for file in way.files}) == len(way.files)
            for file in way.files:
                assert not PurePosixPath(file.path).is_absolute() and ".." not in file.path
                assert re.fullmatch(r"([0-9a-f]{40})?", file.blob) and file.size <= way.cap
    course = {file.path: file.rows for part in dataset.parts for file in part.ways[0].files}
    expected = {"course": 283010, "course-2023": 141506}.get(name)
    assert expected is None or course["quora-train.csv"] == expected


def test_the_hub_is_where_hf_endpoint_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    assert sources.nli().parts[0].ways[0].base.startswith("https://hub.example/datasets/princeton-nlp/")
    monkeypatch.delenv("HF_ENDPOINT")
    assert sources.nli().parts[0].ways[0].base.startswith("https://huggingface.co/datasets/princeton-nlp/")


@pytest.mark.realdata
def test_real_files_verify_against_the_table(tmp_path: Path, policy: Policy) -> None:
    data = os.environ.get("DATA_DIR", "")
    if not data or not Path(data, "senteval", "downstream").is_dir():
        pytest.skip("DATA_DIR holds no senteval/downstream")
    fetcher = Fetcher(tmp_path / "to", Downloader(policy), data)
    assert fetcher.collect(sources.senteval())
    assert all(entry["pinned"] for entry in manifest(fetcher, "senteval")["files"])
