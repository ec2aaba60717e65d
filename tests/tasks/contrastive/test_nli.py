"""Guards: the classification of NLI pairs, apart or read together, with phrases; which rows of the files it sees.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_nli.py
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertModel as TransformersBert
from transformers import BertTokenizer

from minbert import UserError
from minbert.bert import BertModel
from minbert.train.start import InitialEncoder
from tasks.contrastive.data import TrainingRows
from tasks.contrastive.nli import CrossTrainStep, SoftmaxTrainStep
from tasks.contrastive.pairs import NliFileSettings, PhraseFileSettings, find_pairs, find_phrases, read_pairs
from tasks.contrastive.step import ContrastiveModel
from tasks.examples import Examples
from tests.tasks.contrastive.conftest import (
    ANCHORS,
    LABELS,
    POSITIVES,
    run_step,
    texts_of,
    vectors_of,
    write,
    write_pairs,
)

ROWS = np.array([4, 0, 3, 1])
PAIRS = [
    ("the cat sat.", "a cat.", "entailment"),
    ("the cat sat.", "a dog.", "-"),
    ("a dog runs.", "the dog is happy.", "neutral"),
    ("a dog runs.", "the dog sat.", "contradiction"),
]


def test_softmax_is_cross_entropy_over_features(bert: BertModel, labelled: Examples) -> None:
    """Over [u; v; |u - v|] (SBERT, section 3), in float64."""
    model = ContrastiveModel(bert, "mean", seed=9, classifier=(3, 3)).eval()
    metrics, gradients = run_step(SoftmaxTrainStep(labelled), model, ROWS)
    u, v = vectors_of(model, labelled, ROWS)
    weight = model.classifier.weight.detach().double().numpy()
    bias = model.classifier.bias.detach().double().numpy()
    logits = np.concatenate([u, v, abs(u - v)], axis=1) @ weight.T + bias
    gold = np.array(LABELS)[ROWS].astype(int)
    log_probabilities = logits[np.arange(len(gold)), gold] - np.log(np.exp(logits).sum(1))
    assert metrics["loss"].item() == pytest.approx(-log_probabilities.mean(), rel=1e-4)
    assert metrics["accuracy"].item() == pytest.approx((logits.argmax(1) == gold).mean())
    assert "classifier.weight" in gradients


@pytest.mark.parametrize("phrases", [False, True])
def test_cross_equals_transformers(bert: BertModel, tiny: Path, examples_of: Callable[..., Any], phrases: bool) -> None:
    """By transformers' mean vector of each row. With phrases rows 0 and 3 are some, and 4 and 1 are pairs."""
    rows = [*zip(ANCHORS, POSITIVES, map(int, LABELS), strict=True)]
    if phrases:
        rows[0] = ANCHORS[0], "", 3
        rows[3] = ANCHORS[3], "", 4
    examples = examples_of([row[:2] for row in rows], [row[2] for row in rows])
    model = ContrastiveModel(bert, "mean", seed=9, classifier=(1, 5 if phrases else 3)).eval()
    metrics, gradients = run_step(CrossTrainStep(examples), model, ROWS)
    assert gradients["classifier.weight"].isfinite().all()
    assert "encoder.tk_type_embedding.weight" in gradients

    tokenizer = BertTokenizer.from_pretrained(tiny)
    transformers_bert = TransformersBert.from_pretrained(tiny).eval()
    losses = []
    right = 0
    for row in ROWS:
        first, second, label = rows[row]
        tokens = tokenizer(*[text for text in (first, second) if text], return_tensors="pt")
        logits = model.classifier(transformers_bert(**tokens).last_hidden_state.mean(1)).double()
        # a row's softmax is over the classes of its kind
        logits = logits[:, :3] if label < 3 else logits[:, 3:]
        gold = torch.tensor([label % 3])
        losses.append(torch.nn.functional.cross_entropy(logits, gold))
        right += int(logits.argmax() == gold)
    assert metrics["loss"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    assert metrics["accuracy"].item() == right / len(ROWS)


def read(files: PhraseFileSettings, initial: InitialEncoder) -> TrainingRows:
    return read_pairs(find_pairs(files), find_phrases(files), files.data, initial)


def test_pairs_without_label_are_listed(initial: InitialEncoder, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "pairs.tsv", PAIRS)
    examples, entry = read(PhraseFileSettings(nli_pairs=str(path)), initial)
    assert texts_of(examples) == [row[:2] for row in PAIRS if row[2] != "-"]
    assert examples.labels.tolist() == [0, 1, 2]
    assert entry["skipped"] == [{"line": 3, "why": "no gold label"}]
    assert entry["read"] == entry["kept"] + len(entry["skipped"]) == len(PAIRS)


def test_phrases_are_two_further_classes(initial: InitialEncoder, tmp_path: Path) -> None:
    pairs = str(write_pairs(tmp_path / "pairs.tsv", PAIRS))
    phrases = write(tmp_path / "SST/binary/sentiment-train", "a fine film \t1\n \t0\ndull\t0\n")
    alone, _ = read(PhraseFileSettings(nli_pairs=pairs), initial)
    for name in (str(phrases), "sst"):
        examples, entry = read(PhraseFileSettings(nli_pairs=pairs, phrases=name, data=str(tmp_path)), initial)
        assert texts_of(examples) == [*texts_of(alone), ("a fine film", ""), ("dull", "")]
        assert examples.labels.tolist() == [*alone.labels.tolist(), 4.0, 3.0]
        assert [file["file"] for file in entry["files"]] == [pairs, str(phrases)]
        assert entry["skipped"][-1] == {"line": 2, "why": "sentiment-train: sentence: empty"}
        assert entry["read"] == entry["kept"] + len(entry["skipped"]) == len(PAIRS) + 3
        assert examples.cache.sha256 != alone.cache.sha256
    with pytest.raises(UserError, match="sentiment-trains: no such file"):
        find_phrases(PhraseFileSettings(phrases=f"{phrases}s"))
    write(phrases, "a fine film\t2\n")
    with pytest.raises(UserError, match="sentiment-train:1: label: '2'"):
        read(PhraseFileSettings(nli_pairs=pairs, phrases=str(phrases)), initial)


def test_phrases_of_scored_sets_are_skipped(
    initial: InitialEncoder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Letters and digits alone decide: the course's files are spaced and cased differently from SentEval's."""
    pairs = str(write_pairs(tmp_path / "pairs.tsv", PAIRS))
    write(tmp_path / "SST/binary/sentiment-train", "a fine film \t1\nDull , and long .\t0\nthe end\t0\n")
    write(tmp_path / "course/ids-sst-dev.csv", "\tid\tsentence\tsentiment\n0\ta\t Dull and long\t1\n")
    test_set = write(tmp_path / "ids-sst-test-student.csv", "0\t\tid\tsentence\n1\t0\tb\t The end .\n")
    files = PhraseFileSettings(nli_pairs=pairs, data=str(tmp_path), phrases="sst")
    examples, entry = read(files, initial)
    assert texts_of(examples)[-1] == ("a fine film", "")
    assert entry["skipped"][-2:] == [
        {"line": 2, "why": "sentiment-train: equals a sentence of ids-sst-dev.csv"},
        {"line": 3, "why": "sentiment-train: equals a sentence of ids-sst-test-student.csv"},
    ]
    test_set.unlink()
    assert texts_of(read(files, initial).examples)[-1] == ("the end", ""), "not from the cache"
    assert "has no ids-sst-test-student.csv" in capfd.readouterr().err


@pytest.mark.parametrize("folders", [("snli_1.0",), ("multinli_1.0",), ("snli_1.0", "multinli_1.0")])
def test_original_files_are_the_default(initial: InitialEncoder, tmp_path: Path, folders: tuple[str, ...]) -> None:
    for folder in folders:
        lines = []
        for premise, hypothesis, label in PAIRS[2:]:
            lines.append(json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis}))
        write(tmp_path / "nli" / folder / f"{folder}_train.jsonl", "\n".join(lines) + "\n")
    files = NliFileSettings(data=str(tmp_path))
    paths = find_pairs(files)
    assert [path.parent.name for path in paths] == [*folders]
    assert texts_of(read_pairs(paths, [], "", initial).examples) == [row[:2] for row in PAIRS[2:]] * len(folders)
    joined = write_pairs(tmp_path / "nli/nli-pairs.tsv", PAIRS)
    assert find_pairs(files) == [joined], "the joined file comes first"


def test_a_split_column_keeps_training_rows(initial: InitialEncoder, tmp_path: Path) -> None:
    pairs = write(tmp_path / "p.csv", "premise,hypothesis,label,split\na,b,neutral,train\nc,d,neutral,test\n")
    phrases = write(tmp_path / "s.csv", "text,label,split\ne,1,dev\nf,1,train\n")
    examples, entry = read_pairs([pairs], [phrases], str(tmp_path), initial)
    assert texts_of(examples) == [("a", "b"), ("f", "")]
    assert (entry["read"], entry["kept"], entry["left_out"]) == (4, 2, 2)
