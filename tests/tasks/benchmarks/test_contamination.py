"""Guards: which files a run's manifests name, which of them can be read, and how many scored pairs stand in them.

python -m pytest --import-mode=importlib tests/tasks/benchmarks/test_contamination.py
"""

import json
from pathlib import Path
from typing import Any

import pytest

from minbert.files import sha256_of
from tasks.benchmarks import classifiers, contamination
from tasks.benchmarks.contamination import Contamination

PAIRS = [
    ("A man is eating food.", "Somebody eats."),
    ("The dog's asleep", "A cat runs, fast!"),
    ("Two birds sing .", "No bird sings ."),
    ("What is it?", "Who are they?"),
]
SET = {"STS-B": PAIRS}


def write(path: Path, content: str) -> dict[str, str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return {"file": str(path), "sha256": sha256_of(path)}


def run(folder: Path, data: Any, weights: str = "", **selection: Any) -> Path:
    (folder / "encoder").mkdir(parents=True)
    usual = {"keep": "best", "metric": "spearman", "patience": 0, "by_dev_pairs": True}
    content = {"data": data, "settings": {}, "weights": {"folder": weights}, "selection": usual | selection}
    (folder / "manifest.json").write_text(json.dumps(content))
    return folder / "encoder"


def test_pairs_are_found_in_either_order_whatever_case_and_spaces(tmp_path: Path) -> None:
    train = write(
        tmp_path / "sts-train.csv",
        "\tid\tsentence1\tsentence2\tsimilarity\n"
        "0\tx\tsomebody eats .\ta man is eating food .\t3\n1\ty\tthe dog 's asleep\ta bus\t1\n",
    )
    found = contamination.check("e", run(tmp_path / "run", {"train": {"sts": train}}), SET)
    assert counts(found) == {"STS-B": (4, 1, 2, 0)} and found.complete
    assert "25.0%" in found_table(found)


def found_table(found: Contamination) -> str:
    return contamination.table(found).terminal()


def counts(found: Contamination) -> dict[str, tuple[int, ...]]:
    """By set: all rows, those trained on, those with a text that was, and rows that chose a checkpoint."""
    return {str(name): tuple(row) for name, *row in found.counts.itertuples(index=False)}


def test_files_that_are_gone_or_changed_are_said_and_not_looked_into(tmp_path: Path) -> None:
    gone, changed = (write(tmp_path / name, "What is it?\tWho are they?\t1\n") for name in ("gone.tsv", "changed.tsv"))
    (tmp_path / "gone.tsv").unlink()
    (tmp_path / "changed.tsv").write_text("What is it?\tWho are they?\nmore\tmore\n")
    found = contamination.check("e", run(tmp_path / "run", {"train": {"files": [gone, changed]}}), SET)
    assert not found.complete and counts(found)["STS-B"][1] == 0
    said = found_table(found)
    assert f"1 of 2 files missing, not searched: {tmp_path / 'gone.tsv'}" in said and "1 of 2 files changed" in said
    assert "scored rows" not in said, "no counts where nothing could be read"


def test_the_encoder_that_a_run_began_with_counts_too(tmp_path: Path) -> None:
    triplets = write(tmp_path / "a.csv", 'sent0,sent1,hard_neg\n"Two birds sing.",no bird sings,No.\n')
    first = run(tmp_path / "cbcl", {"train": {"files": [triplets], "counts": {"read": 1}}})
    texts = {
        "train": "what is it\twho are they\t1\n",
        "dev": "who are they\twhat is it\t1\nA cat runs, fast\tThe dog is asleep\t0\n",
        "test": "a\tc\t1\n",
    }
    data = {split: {"sts": write(tmp_path / f"{split}.tsv", text)} for split, text in texts.items()}
    second = run(tmp_path / "multitask", data, str(first))
    found = contamination.check("e", second, SET)
    assert found.complete and counts(found) == {"STS-B": (4, 2, 2, 1)}
    purposes = {Path(file.file).name: file.purpose for file in found.files}
    assert purposes == {"train.tsv": "train", "dev.tsv": "dev", "a.csv": "train"}, "test files are not trained on"


def test_the_pairs_that_chose_a_checkpoint_are_counted_and_named(tmp_path: Path) -> None:
    rows = "somebody eats.\tA man is eating food\t1\na man is eating food\tSomebody eats\t2\na\tb\t3\n"
    dev = write(tmp_path / "dev.tsv", rows) | {"name": "course", "kept": 3}
    data = {"train": write(tmp_path / "train.tsv", "x\ty\n"), "sts_dev": dev}
    best = contamination.check("e", run(tmp_path / "best", data), SET)
    assert counts(best) == {"STS-B": (4, 0, 0, 2)}, "two of the three choosing pairs, though they are one pair of it"
    assert best.notes[:1] == [f"{tmp_path / 'best'} keeps the best checkpoint by spearman on 3 pairs of course"]
    assert best.notes[0] in found_table(best)

    reviews = {"MR": [("A man is eating food",), ("What is it?",)]}
    single = contamination.check("e", run(tmp_path / "single", data), reviews)
    assert counts(single) == {"MR": (2, 0, 0, 2)}, "of sets of single sentences too"

    last = contamination.check("e", run(tmp_path / "last", data, keep="last", by_dev_pairs=False), SET)
    assert counts(last) == {"STS-B": (4, 0, 0, 0)} and [file.purpose for file in last.files] == ["train"]
    assert last.notes[:1] == [f"{tmp_path / 'last'} keeps its last step; not selected on dev pairs"]


@pytest.mark.realdata
def test_the_phrases_hold_sentences_of_mr_and_subj(real_data: Path, tmp_path: Path) -> None:
    path = real_data / "senteval/downstream/SST/binary/sentiment-train"
    record = {"file": str(path), "sha256": sha256_of(path)}
    rows = {name: classifiers.tested(classifiers.read_set(real_data, name, 2)) for name in ("MR", "SUBJ")}
    found = contamination.check("e", run(tmp_path / "run", {"train": {"files": [record]}}), rows)
    assert {name: row[:2] for name, row in counts(found).items()} == {"MR": (10_662, 5_542), "SUBJ": (10_000, 2_107)}


def test_an_encoder_that_a_run_began_with_and_that_is_gone_is_said(tmp_path: Path) -> None:
    train = {"train": write(tmp_path / "a.tsv", "Two birds sing.\tno bird sings\t1\n")}
    missing = tmp_path / "cbcl/encoder"
    found = contamination.check("e", run(tmp_path / "multitask", train, str(missing)), SET)
    assert not found.complete and counts(found) == {"STS-B": (4, 1, 1, 0)}
    assert f"the encoder that this run started from, {missing}, is missing" in found_table(found)
    missing.mkdir(parents=True)
    assert contamination.check("e", tmp_path / "multitask/encoder", SET).complete, "weights without a manifest"
