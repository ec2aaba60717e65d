"""Guards: without flags the commands are the papers' pipeline: CBCL with synonyms, then fine-tuning from its encoder.

python -m pytest --import-mode=importlib tests/e2e/test_pretrain_cbcl.py
"""

import csv
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from transformers import BertConfig, BertModel, BertTokenizer

import minbert
from minbert.files import sha256_of
from tasks import predict, record
from tasks.report import page
from tests.e2e.conftest import ROOT, SAMPLE, Script, script_of

MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"
SHORT = ("--tasks", "sst", "--limit", 16, "--limit-eval", 8, "--max-steps", 1)


def test_plain_command_needs_wordnet(script: Script, tmp_path: Path) -> None:
    """In the data folder or in `$NLTK_DATA`, which the page repeats with the command."""
    data = tmp_path / "data"
    for name in ("nli/nli-triplets.csv", "course/sts-dev.csv"):
        (data / name).parent.mkdir(parents=True)
        shutil.copy(SAMPLE / name, data / name)
    refused = script(PRETRAIN, "--data", data, data=False, NLTK_DATA="")
    assert refused.code == 2 and len(refused.errors) == 1
    assert "python data/get_data.py wordnet" in refused.errors[0] and "--synonyms none" in refused.errors[0]
    assert not refused.folder.exists()

    folder = SAMPLE / "nltk_data"
    run = script(PRETRAIN, "--data", data, "--limit", 20, "--max-steps", 1, data=False, NLTK_DATA=str(folder))
    assert run.code == 0, run.err
    assert run.manifest()["preset"] == "cbcl-synonyms"
    assert f"NLTK_DATA={folder}" in shlex.split(page.command(run.manifest()))
    assert "next: " not in run.out, "stage two has no data here"


def cosines_of(encoder: minbert.Encoder, pairs: list[tuple[str, ...]]) -> np.ndarray:
    first = encoder.encode([pair[0] for pair in pairs]).astype(np.float64)
    second = encoder.encode([pair[1] for pair in pairs]).astype(np.float64)
    return (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)


def test_stage_one_feeds_stage_two(script: Script, tiny: Path, tmp_path: Path) -> None:
    """By the command that stage one names at its end; stage two reads the vector that stage one has trained."""
    data = tmp_path / "my data"
    data.symlink_to(SAMPLE)
    flags = ("--epochs", 2, "--lr", 1e-3, "--pooler", "mean", "--data", data)
    first = script(PRETRAIN, *flags, run_dir="a", data=False, report=True, NLTK_DATA="")
    assert first.code == 0, first.err
    assert first.manifest()["preset"] == "cbcl-synonyms"
    assert first.manifest()["all_settings"]["synonyms"] == "3"
    groups = first.manifest()["curriculum"]
    assert sum(groups[name] for name in ("easy", "semi-hard", "hard")) == 120
    assert (first.folder / "report.html").is_file()

    # the encoder opens in transformers, and its scores are those of the run
    BertModel.from_pretrained(first.folder / "encoder")
    trained = load_file(first.folder / "encoder" / "model.safetensors")
    layer = "encoder.layer.0.output.dense.weight"
    assert not torch.equal(trained[layer], load_file(tiny / "model.safetensors")[layer])
    encoder = minbert.Encoder.load(first.folder / "encoder", precision="fp32")
    encoder.max_length = 24
    rows = record.read_rows(first.folder / "dev" / "sts.jsonl")
    np.testing.assert_allclose(rows.predicted, cosines_of(encoder, rows.texts), atol=1e-5)
    rho = spearmanr(rows.predicted, rows.gold).statistic
    scores = json.loads((first.folder / "scores.json").read_text())
    assert scores["step"] > 0 and scores["sts_dev_spearman"]["after"] == pytest.approx(rho, abs=1e-6)

    words = shlex.split(first.out.splitlines()[-1].partition(f"next: {sys.executable} ")[2])
    assert words == [
        os.path.relpath(ROOT / MULTITASK, tmp_path),
        "--encoder",
        str(first.folder / "encoder"),
        "--data",
        str(data),
    ]
    more = ("--fine-tune-mode", "last-linear-layer", *SHORT)
    second = script(MULTITASK, *words[1:], *more, run_dir="b", weights=False, data=False)
    assert second.code == 0, second.err
    assert f"--preset {first.manifest()['preset']})" in second.out.splitlines()[0]
    assert second.manifest()["all_settings"]["pooler"] == encoder.pooler == "mean"
    kept = load_file(second.folder / "encoder" / "model.safetensors")
    assert all(torch.equal(kept[name], trained[name]) for name in kept), "frozen: stage one's weights to the bit"


def test_first_update_follows_adam(script: Script, tiny: Path) -> None:
    """Its largest change is the rate, and without bias correction (1 - b1) / sqrt(1 - b2) = 3.16 times the rate.

    The decay then leaves 1 - rate * decay of the weights.
    """
    started = load_file(tiny / "model.safetensors")
    cases: list[tuple[tuple[Any, ...], float, float]] = [
        ((), 1.0, 1.0),
        (("--correct-bias", "false"), 0.1 / 0.001**0.5, 1.0),
        (("--weight-decay", 100), 1.0, 0.9),
    ]
    for number, (flags, factor, kept) in enumerate(cases):
        usual = ("--preset", "sample", "--pooler", "mean", "--lr", 1e-3, "--max-steps", 1)
        run = script(PRETRAIN, *usual, *flags, run_dir=f"run-{number}")
        assert run.code == 0, run.err
        trained = load_file(run.folder / "encoder" / "model.safetensors")
        name = "encoder.layer.0.output.dense.weight"
        change = trained[name] / kept - started[name]
        assert change.abs().max().item() == pytest.approx(1e-3 * factor, rel=0.02)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (PRETRAIN, "--triplets triplets.csv --order none"),
        pytest.param("tasks/contrastive/simcse.py", "--texts texts.txt --keep-duplicates", marks=pytest.mark.slow),
        pytest.param(
            "tasks/contrastive/consert.py",
            "--texts texts.txt --keep-duplicates --views none,none",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_unique_batches_exchange_rows(script: Script, tiny: Path, tmp_path: Path, command: str, more: str) -> None:
    """Every text reads as its positive, and as that of another row: only without that row is each positive found."""
    triplets = ["sent0,sent1,hard_neg\n"]
    texts = []
    # signs that the vocabulary lacks, all of which are read as [UNK]
    signs = ("\N{SNOWMAN}", "\N{UMBRELLA}")
    for who, what, unknown in product(("cat", "dog", "bird", "mat"), ("sat", "sleeps", "runs"), signs):
        texts.append(f"a {who} {what} {unknown}\n")
        triplets.append(f"a {who} {what} {unknown},a {who} {what} \N{CLOUD},who {what}\n")
    (tmp_path / "triplets.csv").write_text("".join(triplets))
    (tmp_path / "texts.txt").write_text("".join(texts))
    flags = (*more.split(), "--pooler", "mean", "--batch-size", 12, "--encoder-dropout", 0, "--max-steps", 1)
    flags += ("--sts-dev", "none", "--keep", "last", "--patience", 0, "--synonyms", "none")
    accuracies = {}
    for unique in ("true", "false"):
        run = script(command, *flags, "--unique-batches", unique, run_dir=unique)
        assert run.code == 0, run.err
        accuracies[unique] = run.rows()[0]["nli/accuracy"]
        saved = minbert.BertModel.from_pretrained(run.folder / "encoder").config
        assert saved == minbert.BertModel.from_pretrained(tiny).config, "--encoder-dropout is of this run alone"
    assert accuracies["false"] < accuracies["true"] == 1


def test_unfinished_stage_one_is_refused(script: Script, tmp_path: Path) -> None:
    (tmp_path / "runs/cbcl").mkdir(parents=True)
    (tmp_path / "runs/cbcl/manifest.json").write_text("{}")
    unfinished = script(MULTITASK, *SHORT, weights=False)
    assert unfinished.code == 2 and "runs/cbcl: this run has no encoder/ yet" in unfinished.errors[0], unfinished.err


def test_cross_encoder_feeds_joint_pairs(
    script: Script, tiny: Path, tiny_copy: Callable[..., Path], corpora: Path
) -> None:
    """Beside another sentence encoder, which stage one's last line names, and which is not trained."""
    flags = ("--preset", "cross-encoder", "--nli-pairs", corpora / "pairs.tsv", "--lr", 1e-3, "--pooler", "mean")
    first = script(script_of("-m tasks.contrastive.nli"), *flags, run_dir="first")
    assert first.code == 0, first.err
    assert "a guess has a loss of 1.099" in first.out
    assert f"--sentence-encoder {tiny}" in first.out.splitlines()[-1]

    copy = tiny_copy()
    flags = ("--encoder", first.folder, "--pairs", "joint", "--sentence-encoder", copy, "--tasks", "sts")
    second = script(MULTITASK, *flags, "--max-steps", 3, run_dir="second", weights=False)
    assert second.code == 0, second.err
    assert f"--preset {first.manifest()['preset']})" in second.out.splitlines()[0]
    assert second.manifest()["settings"]["pooler"] == minbert.Encoder.load(second.folder / "encoder").pooler == "mean"

    kept = predict.load(second.folder).model.sentence_encoder.state_dict()
    started = minbert.BertModel.from_pretrained(tiny).state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in started.items())

    # other weights under the same name
    (copy / "model.safetensors").write_bytes((first.folder / "encoder" / "model.safetensors").read_bytes())
    again = script(MULTITASK, *flags, "--max-steps", 3, "--resume", run_dir="second", weights=False)
    assert again.code == 2 and "data sentence encoder (" in again.err


def test_cross_encoder_needs_two_token_types(script: Script, tiny: Path, tmp_path: Path, corpora: Path) -> None:
    one_type = BertConfig.from_pretrained(tiny, type_vocab_size=1)
    BertModel(one_type).save_pretrained(tmp_path / "one")
    BertTokenizer.from_pretrained(tiny).save_pretrained(tmp_path / "one")
    flags = ("--preset", "cross-encoder", "--nli-pairs", corpora / "pairs.tsv", "--weights", tmp_path / "one")
    run = script(script_of("-m tasks.contrastive.nli"), *flags, weights=False)
    assert run.code == 2 and "--objective cross: these weights embed one token type" in run.errors[0], run.err


@pytest.mark.parametrize("command", [PRETRAIN, "-m tasks.contrastive.consert"])
def test_training_needs_no_scored_pairs(script: Script, corpora: Path, tmp_path: Path, command: str) -> None:
    """Without the course's files; what is not measured is said."""
    if command == PRETRAIN:
        flags = ["--triplets", SAMPLE / "nli" / "nli-triplets.csv", "--synonyms", "none"]
    else:
        flags = ["--texts", corpora / "texts.txt"]
    flags += ["--pooler", "mean", "--max-steps", 2, "--data", tmp_path]
    flags += ["--sts-dev", "none", "--keep", "last", "--patience", 0]
    run = script(script_of(command), *flags, data=False, report=True)
    assert run.code == 0, run.err
    assert "(--sts-dev none), so similarity is not measured" in run.out
    assert "undefined" not in run.out + run.err and "failed" not in run.err
    scores = json.loads((run.folder / "scores.json").read_text())
    measured = {name for name, value in scores.items() if isinstance(value, dict)}
    assert measured == ({"triplet_accuracy", "frozen_loss"} if command == PRETRAIN else set())
    assert scores["dev_set"] == run.manifest()["data"]["sts_dev"]["name"] == "none"
    assert minbert.Encoder.load(run.folder / "encoder").encode(["a cat"]).shape == (1, 32)
    assert (run.folder / "report.html").is_file()


def test_harmful_training_keeps_the_start(script: Script, tiny: Path, tmp_path: Path) -> None:
    """The dev pairs are scored by the starting encoder itself: any change makes it worse."""
    with open(SAMPLE / "course" / "sts-dev.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    encoder = minbert.Encoder.load(tiny, pooler="mean", precision="fp32")
    scores_by_start = cosines_of(encoder, [(row["sentence1"], row["sentence2"]) for row in rows])
    dev = tmp_path / "dev.tsv"
    lines = []
    for row, score in zip(rows, scores_by_start, strict=True):
        lines.append(f"{row['sentence1']}\t{row['sentence2']}\t{5 * max(0, score):.7f}\n")
    dev.write_text("sentence1\tsentence2\tscore\n" + "".join(lines))
    flags = ("--sts-dev", dev, "--pooler", "mean", "--max-length", 64, "--epochs", 2, "--lr", 1e-2, "--keep", "best")
    run = script(PRETRAIN, *flags)
    assert run.code == 0, run.err
    assert "best so far" not in run.out and "training did not help" in run.out
    assert run.manifest()["selection"] == {"keep": "best", "metric": "spearman", "patience": 0, "by_dev_pairs": True}
    scores = json.loads((run.folder / "scores.json").read_text())
    rho = scores["sts_dev_spearman"]
    assert rho["after"] == rho["before"] > 0.999
    assert (scores["step"], scores["best_step"], scores["last_step"]) == (0, 0, 7)
    trained = load_file(run.folder / "encoder" / "model.safetensors")
    started = load_file(tiny / "model.safetensors")
    assert all(torch.equal(trained[name], started[name]) for name in trained)
    assert scores["kept_weights"].startswith("the encoder from before training")
    assert f"after training ({scores['kept_weights']})" in run.out


def test_task_gives_the_difficulty(script: Script) -> None:
    usual = ("--preset", "sample", "--pooler", "mean", "--epochs", 1)
    head = script(MULTITASK, "--tasks", "sts", "--max-steps", 3, "--limit-eval", 8, run_dir="head")
    assert head.code == 0, head.err
    usual += ("--order-within", "sorted")
    losses = []
    for number, flags in enumerate([(), ("--difficulty", "task", "--difficulty-run", head.folder)]):
        run = script(PRETRAIN, *usual, *flags, run_dir=f"run-{number}")
        assert run.code == 0, run.err
        losses.append(json.loads((run.folder / "scores.json").read_text())["last_epoch_loss"])
    assert losses[0] != losses[1], "other triplets come first"
    assert "curriculum" not in run.manifest()
    weights = run.manifest()["settings"]["data similarity head"]
    assert weights == sha256_of(next((head.folder / "checkpoints").glob("*/model.safetensors")))
