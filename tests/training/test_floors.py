"""Guards: least values that stop a run, evaluations between epochs, and augmented runs that go on with the same bits.

python -m pytest --import-mode=importlib tests/training/test_floors.py
"""

import csv
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from minbert import AdamW, UserError
from minbert.training import checkpoint, loop
from minbert.training.loop import Context, LoopSettings
from minbert.training.plan import Plan, Step
from minbert.training.progress import Progress
from minbert.training.rundir import RunDir
from tasks.augment import wordnet

MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"
FLOORS = {"spread": (0.01, "all vectors point one way")}
Script = Callable[..., Any]


class Falling:
    """A toy whose spread is 1 until step `low`, and then `value`."""

    def __init__(self, low: int, value: float) -> None:
        self.low, self.value = low, value

    def backward(self, model: nn.Module, batch: Step, context: Context) -> dict[str, Tensor]:
        loss = (model(torch.ones(1, 2)) ** 2).mean()
        loss.backward()
        spread = torch.tensor(self.value if context.step >= self.low else 1.0, dtype=torch.float64)
        return {"loss": loss.detach(), "spread": spread, "height": torch.tensor(-5.0)}


def fit(path: Path, objective: Falling, **settings: Any) -> RunDir:
    run = RunDir(path)
    run.begin({"settings": {}})
    model = nn.Linear(2, 1)
    plan = Plan([30], lambda epoch: [("toy", np.arange(2))] * 30)
    how = LoopSettings(**({"lr": 0.01, "floors": FLOORS} | settings))
    loop.fit(model, AdamW(model.parameters()), objective, plan, run, how, lambda: (1.0, {}), device=torch.device("cpu"))
    return run


@pytest.mark.parametrize("low", [0, 3, 12, 29])
def test_a_value_under_its_floor_stops_the_run_before_it_is_saved(tmp_path: Path, low: int) -> None:
    with pytest.raises(UserError, match=rf"^step {low + 1}: all vectors point one way \(spread 0.001") as caught:
        fit(tmp_path / "run", Falling(low, 0.001), save_every=7)
    assert "\n" not in str(caught.value) and "0.01" in str(caught.value)
    saved = checkpoint.steps(tmp_path / "run" / "checkpoints")
    assert all(step <= low for step in saved) and bool(saved) == (low >= 7)


@pytest.mark.parametrize(("value", "floors"), [(0.01, FLOORS), (0.0, {}), (0.0, {"height": (-5.0, "too low")})])
def test_a_value_at_its_floor_or_without_one_does_not(tmp_path: Path, value: float, floors: dict) -> None:
    run = fit(tmp_path / "run", Falling(0, value), floors=floors)
    assert [row["toy/spread"] for row in run.metrics() if row["kind"] == "train"] == pytest.approx([value])


def test_speed_is_told_in_sentences_where_an_example_has_several() -> None:
    for sentences in (1, 3):
        progress = Progress(10, 0, sentences)
        progress.advance(32)
        row = progress.times()
        assert (row.get("sentences_per_second", 0) > 0) == (sentences > 1)
        if sentences > 1:
            assert row["sentences_per_second"] == pytest.approx(3 * row["examples_per_second"], rel=0.01)


@pytest.fixture
def small_wordnet(write_wordnet: Callable[..., Path], tmp_path: Path) -> Path:
    """An NLTK folder with a WordNet of a few adjectives of the sample."""
    groups = [("old", "aged"), ("open", "unfastened"), ("white", "snowy"), ("wooden", "timbered"), ("good", "fine")]
    return write_wordnet(tmp_path / "nltk_data", *(("a", dict.fromkeys(words, 2)) for words in groups))


def test_vectors_that_are_all_alike_end_in_a_sentence_and_exit_code_2(
    script: Script, tiny_copy: Callable[..., Path]
) -> None:
    folder = tiny_copy()
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():  # the last layer puts out its bias, whatever it is given
        if name.endswith("layer.1.output.LayerNorm.weight"):
            tensor.zero_()
        elif name.endswith("layer.1.output.LayerNorm.bias"):
            tensor.fill_(1.0)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    run = script(PRETRAIN, "--weights", folder, "--pooler", "mean", "--lr", 0, "--epochs", 1, weights=False)
    assert run.code == 2, run.err
    (said,) = run.errors
    assert said.startswith("error: step 1: ") and "collapsed" in said and "--lr" in said
    assert not (run.folder / "encoder").exists() and not (run.folder / "scores.json").exists()


def test_a_batch_of_one_row_is_no_collapse(script: Script, tmp_path: Path) -> None:
    """Without dropout the two texts of a row that says the same twice have one vector."""
    texts = ["the cat sat", "a dog runs", "who is happy ?"]
    rows = ["premise\thypothesis\tlabel", *(f"{text}\t{text}\tentailment" for text in texts)]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    how = ("--nli-pairs", tmp_path / "pairs.tsv", "--objective", "softmax", "--encoder-dropout", 0, "--pooler", "mean")
    run = script(PRETRAIN, *how, "--epochs", 1, "--batch-size", 2)
    assert run.code == 0, run.err


# 120 triplets: 8 steps an epoch, whose ends (8 and 16) are no evaluation but the last.
FLAGS = ("--epochs", 2, "--batch-size", 16, "--order", "none", "--lr", 1e-3, "--pooler", "mean", "--evaluate-every", 3,
         "--evaluate-triplets", 20, "--save-every", 4, "--keep", "best")  # fmt: skip
SYNONYMS = ("--synonyms", 3, "--synonyms-p", 0.5)


def test_an_augmented_run_evaluates_when_asked_takes_the_best_and_resumes_with_the_same_bits(
    script: Script, small_wordnet: Path
) -> None:
    where = {"NLTK_DATA": str(small_wordnet)}
    whole = script(PRETRAIN, *FLAGS, *SYNONYMS, run_dir="whole", **where)
    assert whole.code == 0, whole.err
    evaluations = [row for row in whole.rows() if row["kind"] == "evaluation"]
    assert [row["step"] for row in evaluations] == [3, 6, 9, 12, 15, 16]
    scores = json.loads((whole.folder / "scores.json").read_text())
    judged = [{"step": 0, "score": scores["sts_dev_spearman"]["before"]}, *evaluations]
    best = max(judged, key=lambda row: row["score"])
    assert scores["step"] == best["step"]
    assert [row["best"] for row in evaluations] == [
        all(row["score"] > other["score"] for other in judged[:place]) for place, row in enumerate(evaluations, 1)
    ]
    kept = checkpoint.steps(whole.folder / "checkpoints")
    assert kept == sorted({best["step"], 16})
    sets = whole.manifest()["synonyms"]["sets"]
    assert sets["nli"]["texts"] == 3 * 120 and sets["nli"]["replaceable words"] > 10

    killed = script(PRETRAIN, *FLAGS, *SYNONYMS, signal=(signal.SIGKILL, "step", 10), **where)
    assert killed.code == -signal.SIGKILL and max(checkpoint.steps(killed.folder / "checkpoints")) == 9
    resumed = script(PRETRAIN, *FLAGS, *SYNONYMS, "--resume", **where)
    assert resumed.code == 0, resumed.err
    assert resumed.rows() == whole.rows() and resumed.bits() == whole.bits()

    other = script(PRETRAIN, *FLAGS, *SYNONYMS, "--synonyms-stage", "finetune", run_dir="other", NLTK_DATA="")
    assert other.code == 0, "the other stage's synonyms need no WordNet: " + other.err
    model = "encoder/model.safetensors"
    assert "synonyms" not in other.manifest() and other.bits()[model] != whole.bits()[model]


def test_resume_with_another_wordnet_or_scorer_is_refused(
    script: Script, small_wordnet: Path, tiny: Path, tmp_path: Path
) -> None:
    scorer = shutil.copytree(tiny, tmp_path / "scorer")
    where = {"NLTK_DATA": str(small_wordnet)}
    flags = (*FLAGS, *SYNONYMS, "--order", "curriculum", "--scorer", scorer)
    script(PRETRAIN, *flags, signal=(signal.SIGINT, "step", 3), **where)
    weights = load_file(scorer / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in weights.items()}, scorer / "model.safetensors", {"format": "pt"})
    refused = script(PRETRAIN, *flags, "--resume", **where)
    assert refused.code == 2 and "data scorer (was" in refused.errors[0] and "WordNet" not in refused.errors[0]
    save_file(weights, scorer / "model.safetensors", {"format": "pt"})
    index = small_wordnet / wordnet.WORDNET / "index.adj"
    index.write_text(index.read_text() + "\n")
    refused = script(PRETRAIN, *flags, "--resume", **where)
    assert refused.code == 2 and "data WordNet (was" in refused.errors[0]


def test_synonyms_in_fine_tuning_are_written_and_trained_on(script: Script, small_wordnet: Path) -> None:
    flags = ("--tasks", "sst", "--epochs", 1, "--batch-size", 75, "--lr", 1e-3, "--synonyms", 2, "--synonyms-p", 1)
    run = script(MULTITASK, *flags, NLTK_DATA=str(small_wordnet))
    assert run.code == 0, run.err
    with open(run.folder / "synonyms" / "sst.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert len(rows) == 150 and any(row["before"] != row["after"] for row in rows)
    plain = script(MULTITASK, *flags, "--synonyms-stage", "pretrain", run_dir="plain", NLTK_DATA="")
    assert plain.code == 0, plain.err
    assert not (plain.folder / "synonyms").exists()
    model = "encoder/model.safetensors"
    assert plain.bits()[model] != run.bits()[model]


@pytest.mark.parametrize("name", [MULTITASK, PRETRAIN])
def test_synonyms_without_wordnet_are_refused_before_anything_is_written(script: Script, name: str) -> None:
    run = script(name, "--synonyms", 3, NLTK_DATA="")
    assert run.code == 2 and len(run.errors) == 1, run.err
    assert run.errors[0].startswith("error: WordNet is in none of") and "get_data.py wordnet" in run.errors[0]
    assert not run.folder.exists()
