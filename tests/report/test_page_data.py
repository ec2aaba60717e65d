"""Guards: the page says what data a run was made of, what of it stands in test files, and the command to repeat it.

python -m pytest --import-mode=importlib tests/report/test_page_data.py
"""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.report import collect, page, views
from tasks.report.collect import Run

Made = Callable[..., Path]


def changed(folder: Path, **more: object) -> Run:
    """A run whose manifest holds more."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return collect.read(folder)


def test_the_command_names_the_data_folder_that_the_environment_named(multitask: Made) -> None:
    folder = multitask()
    assert views.command(collect.read(folder)).startswith("OMP_NUM_THREADS=2 python multitask_train.py ")
    run = changed(folder, variables={"DATA_DIR": "it's; mine"}, command="multitask_train.py --resume --seed 3")
    words = shlex.split(views.command(run))
    assert words == ["DATA_DIR=it's; mine", "OMP_NUM_THREADS=2", "python", "multitask_train.py", "--seed", "3"]
    assert "DATA_DIR=" in page.build([run], resamples=2)


def texts_account(transductive: bool) -> dict[str, object]:
    """What a manifest says of unlabelled texts."""
    skipped = [{"line": 7, "why": "sentence1: empty", "file": "somewhere/sts-train.csv"}]
    files = [
        {"file": "sts-train.csv", "sha256": "ef" * 32, "split": "train", "read": 2000, "kept": 1999, "texts": 3998}
    ]
    return {
        "files": files, "texts": 3998, "distinct": 3900, "duplicates": 98, "kept": 3900, "transductive": transductive,
        "also_in_test": {"STS12": 1000, "any": 1234}, "dev_pairs_seen": 583, "skipped": skipped,
        "absent": ["STS12 train"],
    }  # fmt: skip


@pytest.mark.parametrize(("settings", "shown", "hidden"), [
    ({}, {"order": "curriculum"}, {"texts", "views", "punctuation"}),
    ({"objective": "triplet"}, {"objective": "triplet", "order": "curriculum"}, {"views"}),
    ({"objective": "softmax"}, {"objective": "softmax"}, {"order", "views"}),
    ({"objective": "views", "texts": "sts", "views": "shuffle,none"},
     {"objective": "views", "texts": "sts", "views": "shuffle,none"}, {"order", "punctuation"}),
    ({"objective": "simcse", "texts": "a.txt", "marks": "chinese", "marks_most": 3, "eda_weight": 0.6},
     {"objective": "simcse", "punctuation": "1 to 3, chinese, weight 0.6"}, {"order", "views"}),
])  # fmt: skip
def test_the_page_says_what_is_minimised_and_an_order_where_there_is_one(
    contrastive: Made, settings: dict[str, object], shown: dict[str, str], hidden: set[str]
) -> None:
    folder = contrastive()
    known = json.loads((folder / "manifest.json").read_text())["all_settings"]
    text = page.build([changed(folder, all_settings=known | settings)], resamples=2)
    for name, value in shown.items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text
    assert not [name for name in hidden if f"<dt>{name}</dt>" in text]


@pytest.mark.parametrize(
    ("transductive", "said"),
    [
        (True, "hold test sentences (transductive); 583 dev pairs are made of them"),
        (False, "1,234 of 3,900 stand in a test file too; 583 dev pairs are made of them"),
    ],
)
def test_texts_that_stand_in_test_files_are_said(contrastive: Made, transductive: bool, said: str) -> None:
    text = page.build([changed(contrastive(), data={"train": texts_account(transductive)})], resamples=2)
    assert f"<dt>training texts</dt><dd>{said}</dd>" in text
    account = texts_account(transductive) | {"weights_transductive": True}
    chained = page.build([changed(contrastive("chained"), data={"train": account})], resamples=2)
    assert "; the weights come from a run on test sentences (transductive); 583" in chained
    for line in (
        "not in the data folder: STS12 train",
        "texts: 3,998",
        "duplicates: 98",
        "kept texts that stand in a test file of STS12: 1,000",
        "kept texts that stand in a test file: 1,234",
        "sts-train.csv: line 7: sentence1: empty",
    ):
        assert f"<li>{line}</li>" in text
    assert "training texts" not in page.build([collect.read(contrastive("other"))], resamples=2)
