"""Guards: a Chinese BERT goes the whole way: corpus, EdaCSE's training, STS evaluation, an encoder that others open.

python -m pytest --import-mode=importlib tests/e2e/test_chinese.py
"""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr

from minbert.encoder import Encoder
from tests.e2e.conftest import script_of

SIMCSE = script_of("-m tasks.contrastive.simcse")
SENTENCES = (
    "猫在窗台上睡觉。 小狗追着球跑。 今天的天气很好。 明天可能会下雨。 他在厨房里做饭。 她喜欢听老歌。 "
    "孩子们在公园里玩。 火车晚点了十分钟。 这本书写得真好。 我们坐车去海边。 怎么办理新卡？ 新卡怎么办？ "
    "如何修改密码？ 密码忘了怎么找回？ 他把门关上了。 门没有关。 水开了。 茶很香。 路上车很多。 "
    "桥下有两只鸭子。 老人在树下下棋。 学校离家不远。 她买了3个苹果。 苹果又红又大。"
)
TEXTS = SENTENCES.split()


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two of the Chinese sets: questions with a label, and scored pairs for training and evaluation."""
    folder = tmp_path / "data"
    questions, statements = TEXTS[:12], TEXTS[12:]
    pairs = [
        f"{number}\t{a}\t{b}\t0" for number, (a, b) in enumerate(zip(questions[::2], questions[1::2], strict=True))
    ]
    write(folder / "zh/ATEC/atec_nlp_sim_train.csv", pairs)
    for split in ("train", "dev"):
        texts = statements if split == "train" else TEXTS
        scored = [f"{split}-{n}||{a}||{b}||{n % 6}" for n, (a, b) in enumerate(combinations(texts[:8], 2))]
        write(folder / f"zh/STS-B/cnsd-sts-{split}.txt", scored)
    return folder


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A random BERT in transformers' layout; every character has an entry but 鸭, which is unknown."""
    from transformers import BertConfig, BertModel

    folder = tmp_path / "bert-chinese"
    characters = dict.fromkeys("".join(TEXTS).replace("鸭", "") + ".,!?;:")
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
    from transformers import BertModel
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    model, tokenizer = BertModel.from_pretrained(folder).eval(), BertTokenizerLegacy(str(folder / "vocab.txt"))
    with torch.no_grad():
        return np.stack(
            [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 0].numpy() for text in texts]
        )


def test_edacse_trains_on_chinese_sets(script: Callable[..., Any], data: Path, bert: Path) -> None:
    flags = ("--epochs", 2, "--batch-size", 6, "--lr", 1e-3, "--evaluate-every", 3, "--keep", "last")
    preset = ("--preset", "edacse-bert", "--weights", bert, "--data", data)
    run = script(SIMCSE, *preset, *flags, weights=False, data=False)
    assert run.code == 0, run.err
    entry = run.manifest()["data"]["train"]
    assert (entry["texts"], entry["kept"]) == (12 + 2 * 28, 12 + 8), "28 pairs of eight texts"
    assert run.manifest()["plan"]["steps"] == 2 * 4

    encoder = Encoder.load(run.folder / "encoder", precision="fp32")
    assert encoder.pooler == "cls"
    assert not torch.equal(
        load_file(bert / "model.safetensors")["embeddings.word_embeddings.weight"],
        load_file(run.folder / "encoder" / "model.safetensors")["embeddings.word_embeddings.weight"],
    )
    np.testing.assert_allclose(encoder.encode(TEXTS), transformers_vectors(run.folder / "encoder", TEXTS), atol=1e-5)

    rows = [line.split("||") for line in (data / "zh/STS-B/cnsd-sts-dev.txt").read_text(encoding="utf-8").splitlines()]
    sides = [
        transformers_vectors(run.folder / "encoder", [row[side] for row in rows]).astype(np.float64) for side in (1, 2)
    ]
    cosines = (sides[0] * sides[1]).sum(1) / np.prod([np.linalg.norm(side, axis=1) for side in sides], axis=0)
    expected = spearmanr(cosines, [float(row[3]) for row in rows]).statistic
    rho = json.loads((run.folder / "scores.json").read_text())["sts_dev_spearman"]
    assert rho["after"] == pytest.approx(expected, abs=1e-6)
