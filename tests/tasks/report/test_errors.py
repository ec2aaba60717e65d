"""Guards: which pairs are sampled for annotation, what a labelled sheet adds up to, and the table of nouns.

python -m pytest --import-mode=importlib tests/tasks/report/test_errors.py
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from minbert.errors import UserError
from minbert.files import sha256_of
from tasks import record
from tasks.augment import wordnet
from tasks.report import errors
from tasks.report.errors import NAMES
from tasks.runs import read_run

MakeRun = Callable[..., Path]
LABELS = {"sst": "sentiment", "quora": "is_duplicate", "sts": "similarity"}


def capitalised(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([text[:1].upper() + text[1:] for text in texts])


def with_files(folder: Path, train: dict[str, list[tuple[str, ...]]] | None = None) -> Path:
    """A run folder with data files, in which dev texts begin with a capital letter."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for path in sorted((folder / "dev").iterdir()):
        task = path.stem
        rows = record.read_rows(path)
        columns = ["sentence"] if task == "sst" else ["sentence1", "sentence2"]
        published = [capitalised(texts) for texts in rows.texts]
        dev = pd.DataFrame(published, columns=columns)
        dev.insert(0, "id", rows.ids)
        dev[LABELS[task]] = np.nan_to_num(rows.gold)
        training = pd.DataFrame(train[task] if train else published * 3, columns=columns)
        training.insert(0, "id", [f"t{number}" for number in range(len(training))])
        training[LABELS[task]] = 1
        for split, table in (("dev", dev), ("train", training)):
            file = folder / f"{task}-{split}.csv"
            table.to_csv(file, sep="\t")
            manifest["data"][split][task] |= {"file": str(file), "sha256": sha256_of(file)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def labelled(path: Path, seed: int, count: int = 90) -> Path:
    """A sheet of made-up pairs with categories, about half of which are the first one."""
    draws = np.random.default_rng(seed)
    numbers = draws.integers(8, size=count) * draws.integers(2, size=count)
    categories = [list(NAMES)[number] for number in numbers]
    groups = list(errors.GROUPS) * (count // 3)
    ids = [f"id{number}" for number in range(count)]
    rows = {"pair": range(count), "text": "a / b", "gold": "", "category": categories, "group": groups, "id": ids}
    sheet = pd.DataFrame(rows)
    sheet.to_csv(path, sep="\t", index=False)
    return path


def test_sample_takes_three_groups(multitask: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "COUNT", 40)
    run = read_run(with_files(multitask(rows=200, skill=0.4)))
    sheet = errors.sample(run, "quora", seed=3)
    rows = run.tasks["quora"].rows
    assert rows is not None
    labelled_rows = rows.labelled()
    wrong = set(np.array(labelled_rows.ids)[labelled_rows.gold != labelled_rows.predicted])
    assert sheet["group"].value_counts().to_dict() == {"failed": 40, "train": 40, "dev": 40}
    assert {*sheet[sheet["group"] == "failed"]["id"]} <= wrong
    assert not {*sheet[sheet["group"] == "dev"]["id"]} <= wrong  # right and wrong alike
    assert len(set(sheet["group"][:12])) == 3, "the groups are shuffled together"
    assert sheet["text"].str.match("Sentence .* / The other").all(), "the texts as published"
    assert errors.sample(run, "quora", seed=3).equals(sheet)
    assert not errors.sample(run, "quora", seed=4).equals(sheet)


def test_counts_are_those_of_categories(tmp_path: Path) -> None:
    sheet = errors.read_sheet(labelled(tmp_path / "pairs.tsv", 1))
    counts = errors.counts(sheet)
    for group in errors.GROUPS:
        categories = sheet[sheet["group"] == group]["category"]
        assert counts[group].to_dict() == {key: int((categories == key).sum()) for key in NAMES}


HEADER = "pair\ttext\tgold\tcategory\tgroup\tid\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{HEADER}1\ta / b\tdifferent\tluck\tdev\tx\n", ":2: category 'luck' is not one of synonym, "),
        (f"{HEADER}\n1\ta / b\tdifferent\tidiom\ttest\tx\n", ":3: group 'test'"),
        # saved with commas
        ("pair,text\n", ": not tab-separated UTF-8 text with the columns pair, .*: the first line has 'pair,text'$"),
    ],
)
def test_sheet_error_names_its_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(content)
    with pytest.raises(UserError, match=rf"a\.tsv{message}"):
        errors.read_sheet(tmp_path / "a.tsv")


def test_sample_and_figure_commands(multitask: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_files(multitask(rows=40))
    errors.main(["sample", str(folder), "--seed", "4"])
    assert "note: only 39 dev pairs" in capsys.readouterr().err
    with pytest.raises(UserError, match="exists, and may hold categories"):
        errors.main(["sample", str(folder)])
    with pytest.raises(UserError, match="no pair has a category yet"):
        errors.main(["figure", str(folder / "pairs.tsv")])
    sheet = labelled(tmp_path / "labelled.tsv", 1)
    errors.main(["figure", str(sheet), "--out", str(tmp_path / "figure-1")])
    first = (tmp_path / "figure-1.svg").read_bytes()
    assert ElementTree.fromstring(first).tag.endswith("svg")


TRAIN = {
    "sst": [("Anna saw Berlin.",), ("A film.",)],
    "quora": [("Is Anna's aunt in Berlin?", "Who are the Indo-Europeans?"), ("ANNA?", "berlin")],
    "sts": [("Indo european tales.", "Nothing."), ("A b.", "c d.")],
}


def capitals(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """A tagger that takes every word with a capital letter, but the first, for a name."""
    return [(token, "NNP" if at and token[0].isupper() else "NN") for at, token in enumerate(tokens)]


@pytest.fixture
def tagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordnet, "find_nltk_data", lambda data="": Path())
    monkeypatch.setattr(wordnet, "tagger", lambda folder: capitals)


@pytest.mark.usefixtures("tagged")
def test_nouns_are_counted_in_training(multitask: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ("who is Anna and who is anna in Berlin", "is Quux near Anna's house in Saint-Malo")
    folder = with_files(multitask(rows=30, skill=0.5, texts=texts), TRAIN)
    run = read_run(folder)
    pairs = errors.pairs_with_nouns(run, "quora", seed=0)
    rows = run.tasks["quora"].rows
    assert rows is not None
    first = pairs.iloc[0]
    second = pairs.iloc[1]
    assert first["texts"][0] == "Who is Anna and who is anna in Berlin"
    assert first["nouns"] == {"Anna": 3, "Berlin": 3}
    assert second["nouns"] == {"Quux": 0, "Anna": 3, "Saint-Malo": 0} and second["rarest"] == 0
    assert pairs["right"].tolist() == (rows.predicted == rows.gold)[:-1].tolist()
    errors.main(["nouns", str(folder)])
    printed = capsys.readouterr().out
    for name, right in (("correctly", True), ("incorrectly", False)):
        side = pairs[pairs["right"] == right]
        assert f"| predicted {name} | {len(side)} | {side['rarest'].count()} |" in printed
    assert "Quux: 0, Anna: 3, Saint-Malo: 0 | predicted incorrectly |" in printed
