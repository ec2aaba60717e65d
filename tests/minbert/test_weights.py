"""Guards: weights of any spelling load whole or not at all, and saved folders open elsewhere with equal outputs.

python -m pytest --import-mode=importlib tests/minbert/test_weights.py
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models
from tokenizers import normalizers
from transformers import AutoModel
from transformers import BertModel as Theirs

from minbert import BertConfig, BertModel, Encoder, UserError, modules, pooling, weights
from minbert.tokenizer import Tokenizer
from minbert.train.start import saved_pooler
from tests.minbert.conftest import cut, flip_last_bit

Copy = Callable[..., Path]


# The names of the course's code, spelled out here: the table of the code is what is tested.
COURSE = {"word_embedding", "pos_embedding", "tk_type_embedding", "embed_layer_norm", "pooler_dense"}
LAYER = ["attention_dense", "attention_layer_norm", "interm_dense", "out_dense", "out_layer_norm"]
LAYER += ["self_attention.query", "self_attention.key", "self_attention.value"]
COURSE |= {f"bert_layers.0.{part}" for part in LAYER}
COURSE |= {f"bert_layers.1.{part}" for part in LAYER}


def test_names_map_both_ways(tiny: Path) -> None:
    keys = list(Theirs.from_pretrained(tiny).state_dict())
    ours = [weights.our_name(key) for key in keys]
    assert [weights.their_name(name) for name in ours] == keys
    assert set(ours) == set(BertModel(BertConfig.read(tiny)).state_dict())
    assert [weights.our_name(name) for name in ours] == ours
    assert {name.rpartition(".")[0] for name in ours} == COURSE


def test_packaged_weights_need_no_cache(minilm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINBERT_CACHE", os.devnull)
    assert Encoder.load("minilm").encode("a cat").shape == (384,)


def test_unfit_keys_are_all_listed(tiny_copy: Copy) -> None:
    folder = tiny_copy()
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["pooler.dense.weight"]
    tensors["embeddings.LayerNorm.bias"] = torch.zeros(31)
    tensors["embeddings.LayerNorm.weight"] = torch.full((32,), float("inf"))
    for name in ("encoder.layer.2.output.dense.bias", "bert.pooler.dense.bias"):
        tensors[name] = torch.zeros(32)
    save_file(tensors, path)
    with pytest.raises(UserError) as caught:
        BertModel.with_weights(folder, BertConfig.read(folder))
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    for problem in (
        "missing 'pooler.dense.weight'",
        "'embeddings.LayerNorm.bias' has shape [31], the config asks for [32]",
        "'embeddings.LayerNorm.weight' holds NaN or infinity",
        "unknown 'encoder.layer.2.output.dense.bias'",
        "duplicate ",
    ):
        assert problem in message


@pytest.mark.parametrize("name", ["./nowhere", "~nobody-of-this-name/bert", "a/b/c"])
def test_missing_path_is_no_hub_name(name: str) -> None:
    with pytest.raises(UserError, match=f"^--like {name}: no such folder"):
        weights.resolve(name, "--like")
    with pytest.raises(UserError, match=f"^{name}: no such folder"):
        Encoder.load(name)


def test_relative_path_is_of_current_folder(tiny_copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = []
    for name in ("a", "b"):
        folder = tiny_copy(name=f"{name}/model")
        tensors = load_file(folder / "model.safetensors")
        if name == "b":
            tensors["embeddings.LayerNorm.bias"] += 1
        save_file(tensors, folder / "model.safetensors")
        for file in folder.iterdir():
            os.utime(file, ns=(0, 0))  # as of files that were unpacked
        monkeypatch.chdir(folder.parent)
        vectors.append(Encoder.load("model").encode("the cat"))
    assert not np.allclose(*vectors)


TEXTS = ["the cat sat on a mat!", "what?", "a dog runs under the tree, very happy"]


@pytest.fixture(scope="module")
def saved(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tiny encoder, saved by us with the named pooler."""

    def save(pooler: str) -> Path:
        folder = tmp_path_factory.mktemp("saved") / pooler
        model = BertModel.from_pretrained(tiny)
        weights.save(folder, model.state_dict(), model.config, Tokenizer.load(tiny), pooler)
        return folder

    return save


@pytest.mark.parametrize("pooler", pooling.NAMES)
def test_sentence_transformers_opens_saved_folder(saved: Callable[[str], Path], pooler: str) -> None:
    folder = saved(pooler)
    theirs = SentenceTransformer(str(folder), device="cpu")
    mine = Encoder.load(folder, precision="fp32")
    assert mine.pooler == pooler
    np.testing.assert_allclose(mine.encode(TEXTS), theirs.encode(TEXTS), atol=1e-5)
    assert theirs.max_seq_length == 64


def test_record_of_changed_folder_is_ignored(saved: Callable[[str], Path]) -> None:
    """By sentence-transformers, which knows nothing of our record: trained layers, another rule of the tokenizer."""
    folder = saved("pooler")
    theirs = SentenceTransformer(str(folder), device="cpu")
    theirs[0].model.encoder.layer[0].output.dense.weight.data.mul_(-0.5)
    theirs[2].linear.weight.data.mul_(-0.5)
    theirs.tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    theirs.save(str(folder), create_model_card=False)
    expected = SentenceTransformer(str(folder), device="cpu").encode(["The cat"])
    np.testing.assert_allclose(Encoder.load(folder, precision="fp32").encode(["The cat"]), expected, atol=1e-5)


def test_transformers_opens_saved_folder(saved: Callable[[str], Path], tiny: Path) -> None:
    folder = saved("pooler")
    theirs, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert type(theirs) is Theirs
    assert not info["missing_keys"] and not info["unexpected_keys"]
    expected = Theirs.from_pretrained(tiny).state_dict()
    torch.testing.assert_close(theirs.state_dict(), expected, atol=0, rtol=0)


def test_training_leaves_layers_and_prompts_out(
    saved: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An encoder trained from a folder keeps its longest input and Normalize, and a note says what it does not."""
    torch.manual_seed(3)
    theirs = SentenceTransformer(str(saved("mean")), device="cpu", prompts={"q": "the "}, default_prompt_name="q")
    theirs.truncate_dim = 5
    theirs.add_module("2", models.Dense(32, 8))
    theirs.add_module("3", models.Normalize())
    theirs.max_seq_length = 20
    theirs.save(str(tmp_path / "theirs"))
    folder = weights.resolve(str(tmp_path / "theirs"))
    assert saved_pooler(folder, "theirs") == "mean"
    left_out = "Dense, the prompt q, the truncation to 5 dimensions"
    assert f"theirs: training leaves out {left_out}, so" in capsys.readouterr().err
    model = BertModel.from_pretrained(folder)
    kept = modules.settings_kept_by_training(folder)
    weights.save(tmp_path / "run", model.state_dict(), model.config, Tokenizer.load(folder), "mean", kept)
    export = SentenceTransformer(str(tmp_path / "run"), device="cpu")
    assert export.max_seq_length == 20 and export.get_embedding_dimension() == 32
    encoder = Encoder.load(tmp_path / "run", precision="fp32")
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(TEXTS), axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(TEXTS), export.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize(("change", "why"), [(flip_last_bit, "damaged or replaced"), (cut, "not a readable")])
def test_changed_weights_are_refused(
    saved: Callable[[str], Path], tmp_path: Path, change: Callable[[bytes], bytes], why: str
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(saved("mean"), folder)
    Encoder.load(folder)
    path = folder / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=rf"model\.safetensors: {why}"):
        Encoder.load(folder)
