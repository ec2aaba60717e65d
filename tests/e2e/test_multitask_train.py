"""Guards: a run of multitask_train.py leaves a whole folder: encoder, scores and the leaderboard's files.

python -m pytest --import-mode=importlib tests/e2e/test_multitask_train.py
"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score

import minbert
from tasks import readers, record
from tests.e2e.conftest import SAMPLE, Script

COURSE = SAMPLE / "course"
MULTITASK = "multitask_train.py"
HEADERS = {
    "sst": b"id \t Predicted_Sentiment \n",
    "para": b"id \t Predicted_Is_Paraphrase \n",
    "sts": b"id \t Predicted_Similiary \n",
}
SOURCES = {
    "sst": ("ids-sst-dev.csv", "ids-sst-test-student.csv", "sentiment"),
    "para": ("quora-dev.csv", "quora-test-student.csv", "is_duplicate"),
    "sts": ("sts-dev.csv", "sts-test-student.csv", "similarity"),
}


def records(name: str) -> list[dict[str, str]]:
    with open(COURSE / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def ids_of(name: str) -> list[str]:
    return [row["id"].strip().lower() for row in records(name)]


def read_predictions(path: Path, short: str) -> dict[str, str]:
    """The predictions of a file by id; the file must have the leaderboard's form."""
    content = path.read_bytes()
    assert content.startswith(HEADERS[short])
    *lines, end = content.removeprefix(HEADERS[short]).decode().split("\n")
    assert end == "", "the last line is whole"
    values = {}
    for line in lines:
        assert line.endswith(" ")
        row_id, value = line.removesuffix(" ").split(" , ")
        values[row_id] = value
    assert len(values) == len(lines), "every id once"
    return values


def test_run_folder_is_complete(script: Script) -> None:
    run = script(MULTITASK, "--epochs", 2, "--lr", 5e-3, report=True)
    assert run.code == 0, run.err
    folder = run.folder
    files = {"manifest.json", "metrics.jsonl", "scores.json", "report.html"}
    folders = {"checkpoints", "encoder", "dev", "predictions"}
    assert {path.name for path in folder.iterdir()} == files | folders
    manifest = run.manifest()
    assert manifest["command"].startswith("python multitask_train.py --run-dir")
    assert manifest["settings"]["pooler"] == minbert.Encoder.load(folder / "encoder").pooler == "pooler"
    assert {"settings", "weights", "environment", "data", "plan", "preset", "overrides", "precision"} <= manifest.keys()
    for split in ("train", "dev", "test"):
        for entry in manifest["data"][split].values():
            assert entry["read"] == entry["kept"] + len(entry["skipped"])
    evaluations = [row["score"] for row in run.rows() if row["kind"] == "evaluation"]
    assert len(evaluations) == 2
    written = [(folder / name).stat().st_mtime_ns for name in ("scores.json", "manifest.json", "report.html")]
    assert written == sorted(written), "the time that the page shows includes predicting, scoring and saving"
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["dev_norm"] == max(evaluations) == evaluations[0]
    check_predictions(folder, scores)
    check_encoder(folder)


def check_predictions(folder: Path, scores: dict) -> None:
    assert len(list((folder / "predictions").iterdir())) == 6
    golds = {}
    values = {}
    for short, (dev, test, label) in SOURCES.items():
        of_dev = read_predictions(folder / "predictions" / f"{short}-dev-output.csv", short)
        of_test = read_predictions(folder / "predictions" / f"{short}-test-output.csv", short)
        assert list(of_dev) == ids_of(dev), "every id, in input order"
        assert list(of_test) == ids_of(test)
        golds[short] = [float(row[label]) for row in records(dev)]
        values[short] = [float(value) for value in of_dev.values()]
        for value in [*of_dev.values(), *of_test.values()]:
            if short == "sst":
                assert value in ("0", "1", "2", "3", "4")
            elif short == "para":
                assert value in ("0.0", "1.0")
            else:
                assert value == repr(float(value))
    sst = accuracy_score(golds["sst"], values["sst"])
    para = accuracy_score(golds["para"], values["para"])
    sts = pearsonr(golds["sts"], values["sts"]).statistic
    assert [scores["tasks"][name]["score"] for name in ("sst", "quora", "sts")] == pytest.approx([sst, para, sts])
    assert scores["dev_norm"] == pytest.approx((sst + para + (sts + 1) / 2) / 3)


def check_encoder(folder: Path) -> None:
    """The encoder is that of the best checkpoint."""
    best = json.loads((folder / "scores.json").read_text())["step"]
    checkpoint = load_file(folder / "checkpoints" / f"step-{best:08d}" / "model.safetensors")
    saved = load_file(folder / "encoder" / "model.safetensors")
    assert torch.equal(saved["embeddings.word_embeddings.weight"], checkpoint["encoder.word_embedding.weight"])


def test_short_run_is_whole(script: Script, tmp_path: Path) -> None:
    """A second one has the same bits, whose output nobody reads, and tokenises nothing again."""
    steps = ("--max-steps", 7, "--log-every", 2, "--lr", 5e-4, "--lr-schedule", "linear")
    flags = ("--limit", 20, "--batch-size", 8, *steps)
    cache = tmp_path / "cache"
    run = script(MULTITASK, *flags, MINBERT_CACHE=str(cache))
    assert run.code == 0, run.err
    rates = {row["step"]: row["lr"] for row in run.rows() if row["kind"] == "train"}
    assert rates.keys() == {2, 4, 6, 7}
    assert rates[7] == pytest.approx(5e-4 / 7), "the schedule ends with the run"
    assert run.manifest()["training_rows"] == dict.fromkeys(("sst", "quora", "sts"), 20)
    files = {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")}
    assert files
    unread = script(MULTITASK, *flags, run_dir="unread", unread=True, MINBERT_CACHE=str(cache))
    assert (unread.code, unread.errors, unread.out) == (0, run.errors, "")
    assert unread.bits() == run.bits()
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")} == files


def test_synonyms_change_training_texts(script: Script) -> None:
    """A file lists every text, and what they are made of identifies the run."""
    flags = ("--tasks", "sst", "--limit", 20, "--limit-eval", 8, "--max-steps", 1)
    plain = script(MULTITASK, *flags, run_dir="plain")
    run = script(MULTITASK, *flags, "--synonyms", 1, "--synonyms-p", 1, NLTK_DATA="")
    assert run.code == plain.code == 0, run.err
    assert run.rows()[0]["sst/loss"] != plain.rows()[0]["sst/loss"]
    with open(run.folder / "synonyms" / "sst.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 20 and any(row["before"] != row["after"] for row in rows)
    assert run.manifest()["settings"].keys() > {"data WordNet", "data tagger", "data words that synonyms keep"}


def test_limit_eval_and_keep_last_hold(script: Script) -> None:
    flags = ("--epochs", 3, "--lr", 5e-3, "--keep", "last", "--pooler", "mean", "--pairs", "joint", "--limit-eval", 30)
    run = script(MULTITASK, *flags)
    assert run.code == 0, run.err
    for short, (dev, test, _) in SOURCES.items():
        for split, source in (("dev", dev), ("test", test)):
            predicted = list(read_predictions(run.folder / "predictions" / f"{short}-{split}-output.csv", short))
            ids = ids_of(source)
            assert len(predicted) == 30
            assert predicted == [row_id for row_id in ids if row_id in predicted]
            assert predicted != ids[:30], "files may be sorted by class: the rows are drawn"
    entry = run.manifest()["data"]["dev"]["sst"]
    assert entry["kept"] == 30
    assert entry["read"] == 30 + len(entry["skipped"]) + entry["left_out"]
    evaluations = [row for row in run.rows() if row["kind"] == "evaluation"]
    scores = json.loads((run.folder / "scores.json").read_text())
    assert (scores["dev_norm"], scores["step"]) == (evaluations[-1]["score"], evaluations[-1]["step"])
    assert max(evaluations, key=lambda row: row["score"])["step"] == scores["best_step"]
    assert run.manifest()["selection"]["by_dev_pairs"] is False
    assert "best so far" not in run.out
    assert minbert.Encoder.load(run.folder / "encoder").pooler == "mean"


def test_dev_rows_without_labels_are_predicted(script: Script, tmp_path: Path) -> None:
    """They are predicted and not scored."""
    lines = (COURSE / "quora-dev.csv").read_text().splitlines()
    lines[3] = lines[3][:-3]  # no label
    index, name, first, *_ = lines[5].split("\t")
    lines[5] = "\t".join([index, name, first, "", ""])  # no sentence2, no label
    (tmp_path / "quora.csv").write_text("\n".join(lines) + "\n")
    flags: list[str | Path] = []
    for short in SOURCES:
        flags += [f"--{short}_dev_out", tmp_path / f"{short}-dev.txt"]
        flags += [f"--{short}_test_out", tmp_path / f"{short}-test.txt"]
    run = script(MULTITASK, "--max-steps", 3, "--para_dev", tmp_path / "quora.csv", *flags)
    assert run.code == 0, run.err
    for short, (dev, test, _) in SOURCES.items():
        if short != "para":
            assert list(read_predictions(tmp_path / f"{short}-dev.txt", short)) == ids_of(dev)
        assert list(read_predictions(tmp_path / f"{short}-test.txt", short)) == ids_of(test)
    assert not (run.folder / "predictions").exists()
    ids = [line.split("\t")[1] for line in (*lines[1:5], *lines[6:])]
    assert list(read_predictions(tmp_path / "para-dev.txt", "para")) == ids
    rows = record.read_rows(run.folder / "dev" / "quora.jsonl")
    assert rows.ids == ids
    assert np.flatnonzero(np.isnan(rows.gold)).tolist() == [2]
    assert rows.texts[0] == tuple(map(readers.clean_pair, lines[1].split("\t")[2:4]))
    assert json.loads((run.folder / "scores.json").read_text())["tasks"]["quora"]["rows"] == 48
    entry = run.manifest()["data"]["dev"]["quora"]
    assert [row["line"] for row in entry["skipped"]] == [6]
    assert [row["line"] for row in entry["warnings"]] == [4]
    assert "1 of 50 rows skipped" in run.err
