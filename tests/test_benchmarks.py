"""Guards: the speed benchmarks compare the same work, in the number formats they name, and count as they say.

python -m pytest --import-mode=importlib tests/test_benchmarks.py
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.special import expit
from scipy.stats import pearsonr

from benchmarks import contrastive_speed, encode_speed, harness, single_task, train_speed
from minbert import BertModel, UserError
from minbert.tokenizer import Tokenizer
from minbert.train.loop import StepContext
from tasks.contrastive.settings import ContrastiveSettings
from tasks.examples import Examples

SAMPLE = harness.SAMPLE


def trainers() -> None:
    """Skip where sentence-transformers is there without what its trainer needs."""
    pytest.importorskip("accelerate")
    pytest.importorskip("datasets")


@pytest.fixture
def still(tiny_copy: Callable[..., Path]) -> Path:
    """The tiny BERT without dropout."""
    folder = tiny_copy("config.json")
    source = tiny_copy(name="whole") / "config.json"
    config = json.loads(source.read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def sample(folder: Path, length: int = 32) -> Examples:
    return harness.triplets(SAMPLE, str(folder), length)


def settings(**more: object) -> ContrastiveSettings:
    given = {"pooler": "mean", "batch_size": 8, "lr": 1e-3, "precision": "fp32"}
    return ContrastiveSettings.of(**(given | more))


def test_both_sides_make_the_same_updates(still: Path, tmp_path: Path) -> None:
    trainers()
    examples = sample(still)
    ours = contrastive_speed.Ours(str(still), examples, settings())
    theirs = contrastive_speed.Theirs(still, settings(), tmp_path)
    made, seconds = contrastive_speed.collated(examples, 8, 4, theirs)
    assert len(seconds) == len(made) == 4
    context = StepContext(1, 0, "fp32", torch.device("cpu"))
    lengths = [[len(ids) for ids in ours.objective.inputs(ours.model, step, context).sentences] for step, _ in made]
    masks = [
        [features[f"{name}_attention_mask"] for name in ("anchor", "positive", "negative")] for _, features in made
    ]
    assert lengths == [[row for mask in parts for row in mask.sum(1).tolist()] for parts in masks]
    area = sum(mask.numel() for parts in masks for mask in parts)
    assert contrastive_speed.padding(made) == pytest.approx(1 - sum(map(sum, lengths)) / area)
    order = [*made, made[0]]
    first, second = ([float(side(batch)) for batch in order] for side in (ours, theirs))
    assert first == pytest.approx(second, rel=1e-3)
    assert first[-1] < 0.9 * first[0], "nothing was learnt"
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("words", ["--batches 0", "--warmup -1", "--threads -1", "--device cuda"])
def test_a_mistake_on_the_command_line_is_no_traceback(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["x", *words.split()])
    with pytest.raises(UserError, match=words.split()[0]):
        harness.parse(harness.parser("", "", 1, 1))


def test_the_commands_print_a_row_for_each_contestant(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainers()
    monkeypatch.setattr(encode_speed, "supports_bf16", lambda device: True)
    command = f"x --weights {tiny} --data {SAMPLE} --batches 2 --warmup 1 --length 16"
    for module, more in ((contrastive_speed, "--batch-size 4"), (encode_speed, "--sentences 6")):
        monkeypatch.setattr(sys, "argv", f"{command} {more}".split())
        module.main()
        lines = capsys.readouterr().out.replace("\\", "").splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert sum(cells[0] == "minbert bf16" and cells[2] == "1.00 [1.00, 1.00]" for cells in rows) == 1
        names = " ".join(cells[0] for cells in rows)
        libraries = ("minbert", "sentence-transformers")
        assert all(f"{library} {kind}" in names for library in libraries for kind in ("bf16", "fp32"))


def test_both_encoders_of_a_training_step_give_the_same_pooled_vectors(still: Path) -> None:
    pairs = train_speed.read_pairs(SAMPLE, Tokenizer.load(still))
    pairs = [pair for pair in pairs if len(pair[0]) <= 64][:6]
    ours, theirs = BertModel.from_pretrained(still).eval(), transformers.BertModel.from_pretrained(still).eval()
    first, second = (make(pairs) for make in (train_speed.our_pooled(ours), train_speed.their_pooled(theirs)))
    assert len({len(ids) for ids, _, _ in pairs}) > 1 and {sum(types) for _, types, _ in pairs} != {0}
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("task", "outputs"), single_task.OUTPUTS.items())
def test_the_single_task_peer_is_scored_on_what_it_was_trained_to_give(still: Path, task: str, outputs: int) -> None:
    model = single_task.Classifier(still, outputs).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(still)
    torch.nn.init.normal_(model.linear.weight, std=20.0)  # far from where a sigmoid is a straight line
    rows = single_task.rows_of(task, "dev", SAMPLE)  # the tiny model has 64 positions
    rows = [replace(row, texts=tuple(text[:25] for text in row.texts)) for row in rows]
    with torch.no_grad():
        logits = torch.cat([model(single_task.encoded(tokenizer, [row])) for row in rows])
        model.linear.bias -= logits.mean(0)
    logits = (logits - logits.mean(0)).double().numpy()
    labels = np.array([row.label for row in rows])
    if task == "sts":
        expected = pearsonr(expit(logits[:, 0]), labels).statistic
    else:
        expected = np.mean((logits.argmax(1) if task == "sst" else logits[:, 0] > 0) == labels)
    assert single_task.dev_score(model, tokenizer, task, rows, "fp32") == pytest.approx(expected, abs=1e-6)
