"""Guards: which pairs a name of `--sts-dev` means, what helps where they are missing, which scored sets hold them.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_data.py
DATA_DIR=... python -m pytest --import-mode=importlib tests/tasks/contrastive/test_data.py -m realdata
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from minbert import UserError
from minbert.files import sha256_of
from minbert.tokenizer import Tokenizer
from minbert.train.start import InitialEncoder
from tasks.contrastive.consert import ConsertSettings
from tasks.contrastive.data import (
    DevFiles,
    DevSets,
    TrainingRows,
    count_in_scored_sets,
    find_dev_pairs,
    prepare_data,
    read_dev_pairs,
)
from tasks.contrastive.settings import FileSettings
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import texts_of, write

Read = Callable[..., DevSets]
COURSE = "\tid\tsentence1\tsentence2\tsimilarity\n"


@pytest.fixture
def read(tiny: Path, corpora: Path) -> Read:
    """A function that reads what `--sts-dev` names in a data folder."""

    def read_dev(name: str, data: Path = corpora) -> DevSets:
        files = find_dev_pairs(FileSettings(sts_dev=name, data=str(data)))
        return read_dev_pairs(files, Tokenizer.load(tiny), 32)

    return read_dev


def texts(dev: DevSets) -> dict[str, list[tuple[str, ...]]]:
    return {name: texts_of(examples) for name, examples in dev.pairs.items()}


@pytest.mark.parametrize("layout", ["STS/STSBenchmark", "stsbenchmark"])
def test_stsb_in_either_layout(read: Read, corpora: Path, layout: str) -> None:
    data = corpora / "elsewhere"
    shutil.copytree(corpora / "downstream/STS/STSBenchmark", data / layout)
    dev = read("STSb", data)
    assert dev.name == "stsb"
    assert texts(dev) == {"sts": [("Old dev mill", "A mill"), ("A cup!", "New dev mill")]}
    assert dev.manifest_entry()["file"].endswith(f"{layout}/sts-dev.csv")


def test_course_set_and_single_file(read: Read, corpora: Path) -> None:
    write(corpora / "course/sts-dev.csv", COURSE + "0\ta\tA cat .\tA dog .\t1.5\n")
    assert texts(read("course")) == {"sts": [("a cat .", "a dog .")]}
    file = corpora / "downstream/STS/STSBenchmark/sts-test.csv"
    dev = read(str(file))
    assert (dev.name, len(dev)) == (str(file), 2)
    assert dev.sha256 == dev.manifest_entry()["sha256"] == sha256_of(file)


def test_limit_draws_pairs(tiny: Path, tmp_path: Path) -> None:
    """The same ones for every seed of a run: none is asked for."""
    rows = [f"{n}\t{n}\tA cat {n}.\tA dog.\t{n // 8}\n" for n in range(40)]
    file = write(tmp_path / "dev.csv", COURSE + "".join(rows))
    ids = {}
    for limit in (10, 20):
        files = find_dev_pairs(FileSettings(sts_dev=str(file)))
        (pairs,) = read_dev_pairs(files, Tokenizer.load(tiny), 32, limit=limit).pairs.values()
        ids[limit] = [int(row.id) for row in pairs.cache.rows()]
    assert ids[10] == sorted(ids[10])
    assert set(ids[10]) < set(ids[20])
    assert max(ids[10]) > 20, "a file may be sorted by score"


def test_dev_rows_of_a_split_column(read: Read, tmp_path: Path) -> None:
    header = "sentence1,sentence2,score,split\n"
    file = write(tmp_path / "all.csv", header + "a,b,1,train\nc,d,2,dev\ne,f,3,test\n")
    assert texts(read(str(file))) == {"sts": [("c", "d")]}


def test_zh_reads_existing_dev_files(read: Read, corpora: Path) -> None:
    write(corpora / "zh/STS-B/STS-B.valid.data", "鸟在飞。\t鱼在游\t2\n鸟在飞。\t鸟飞\t4\n")
    alone = read("zh")
    assert texts(alone) == {"sts": [("鸟在飞。", "鱼在游"), ("鸟在飞。", "鸟飞")]}
    assert alone.absent == ("ATEC", "BQ", "LCQMC", "PAWS-X")
    write(corpora / "zh/BQ/dev.csv", "\ufeffsentence1,sentence2,label\n怎么还,如何还,0\n")
    dev = read("zh")
    assert texts(dev) == {"BQ": [("怎么还", "如何还")], "STS-B": texts(alone)["sts"]}
    entry = dev.manifest_entry()
    assert (entry["kept"], entry["BQ"]["kept"]) == (3, 1)
    assert entry["BQ"]["file"].endswith("BQ/dev.csv")
    assert dev.sha256 != alone.sha256


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("stsb", r"get_data\.py senteval"), ("zh", r"get_data\.py chinese"), ("corse", "did you mean 'course'")],
)
def test_missing_set_names_the_remedy(read: Read, tmp_path: Path, name: str, remedy: str) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match=f"^--sts-dev {name}: .*{remedy}"):
        read(name, tmp_path / "other")


def test_no_usable_row_is_refused(initial: InitialEncoder, examples_of: Callable[..., Examples]) -> None:
    rows = TrainingRows(examples_of([]), {"files": [{"file": "own.csv"}]})
    with pytest.raises(UserError, match=r"^own\.csv: no usable row, so there are no triplets"):
        prepare_data(rows, DevFiles("none", {}), ConsertSettings.of(), initial, noun="triplets")


def test_pairs_in_scored_sets_are_counted(read: Read, corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In either order, whatever the case and the marks; a set that is damaged is left out with a warning."""
    content = "sentence1\tsentence2\tscore\nnew test mill\ta cup .\t3\na mill\told dev mill\t3\na\tb\t3\n"
    content += "the STS12 MSRpar tap\ta STS12 MSRpar tap .\t3\n"
    file = write(corpora / "own.tsv", content)
    subset = corpora / "downstream/STS/STS12-en-test/STS.input.MSRpar.txt"
    counts = count_in_scored_sets(read(str(file)), corpora)
    assert {name: count for name, count in counts.items() if count} == {"STS12": 1, "STS-B": 1, "STS-B dev": 1}
    assert counts.keys() == {"STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "STS-B dev"}
    assert "STS-B dev" not in count_in_scored_sets(read("stsb"), corpora)
    shutil.rmtree(corpora / "downstream/STS/STS13-en-test")
    assert "STS13" not in count_in_scored_sets(read(str(file)), corpora)
    assert not capsys.readouterr().err, "sets that are not there are no defect"
    subset.unlink()
    assert "STS12" not in count_in_scored_sets(read(str(file)), corpora)
    assert f"note: {subset}: no such file" in capsys.readouterr().err


@pytest.mark.realdata
def test_course_dev_overlaps_scored_sets(real_data: Path, tiny: Path) -> None:
    course = read_dev_pairs(find_dev_pairs(FileSettings(sts_dev="course")), Tokenizer.load(tiny), 32)
    expected = {"STS12": 153, "STS13": 66, "STS14": 232, "STS15": 186, "STS16": 57, "STS-B": 148, "STS-B dev": 149}
    counts = count_in_scored_sets(course, real_data)
    assert len(course) == 863 and {name: counts[name] for name in expected} == expected
