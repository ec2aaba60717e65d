"""Guards: a Chinese BERT goes the whole way: corpus, EdaCSE's training, STS evaluation, an encoder that others open.

python -m pytest --import-mode=importlib tests/e2e/test_chinese.py
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from transformers import BertConfig, BertModel
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from minbert.encoder import Encoder
from tests.e2e.conftest import SAMPLE, Script

SETS = SAMPLE / "zh"
SCORED = [line.split("||") for line in (SETS / "STS-B/cnsd-sts-dev.txt").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A random BERT in transformers' layout; every character of the sample has an entry but 狗, which is unknown."""
    folder = tmp_path / "bert-chinese"
    texts = "".join(path.read_text(encoding="utf-8") for path in sorted(SETS.glob("*/*")))
    characters = dict.fromkeys("".join(texts.replace("狗", "").split()) + ".,!?;:")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters]
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, initializer_range=0.2, **sizes)
    BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}), encoding="utf-8")
    return folder


def transformers_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    """[CLS] of each text by transformers' model and its tokenizer in Python: [N, D]."""
    model = BertModel.from_pretrained(folder).eval()
    tokenizer = BertTokenizerLegacy(str(folder / "vocab.txt"))
    vectors = []
    for text in texts:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
        vectors.append(states[0, 0].numpy())
    return np.stack(vectors)


def test_edacse_trains_on_chinese_sets(script: Script, bert: Path) -> None:
    flags = ("--max-steps", 8, "--batch-size", 6, "--lr", 1e-3, "--evaluate-every", 3, "--keep", "last")
    run = script("tasks/contrastive/simcse.py", "--preset", "edacse-bert", "--weights", bert, *flags, weights=False)
    assert run.code == 0, run.err
    files = [file["file"] for file in run.manifest()["data"]["train"]["files"]]
    assert len(files) == 5 and all("train" in Path(file).name for file in files)

    encoder = Encoder.load(run.folder / "encoder", precision="fp32")
    assert encoder.pooler == "cls"
    name = "embeddings.word_embeddings.weight"
    started = load_file(bert / "model.safetensors")[name]
    trained = load_file(run.folder / "encoder" / "model.safetensors")[name]
    assert not torch.equal(trained, started)
    first = transformers_vectors(run.folder / "encoder", [row[1] for row in SCORED])
    second = transformers_vectors(run.folder / "encoder", [row[2] for row in SCORED])
    np.testing.assert_allclose(encoder.encode([row[1] for row in SCORED]), first, atol=1e-5)
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    expected = spearmanr(cosines, [float(row[3]) for row in SCORED]).statistic
    rho = json.loads((run.folder / "scores.json").read_text())["sts_b_dev_spearman"]
    assert rho["after"] == pytest.approx(expected, abs=1e-6)
