"""Guards: weights of any spelling load whole or not at all, and saved folders open elsewhere with equal outputs.

python -m pytest --import-mode=importlib tests/minbert/test_weights.py
"""

import argparse
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from minbert import BertConfig, BertModel, Encoder, UserError, convert, pooling, weights
from minbert.convert import convert_checkpoint
from minbert.tokenizer import Tokenizer
from minbert.weights import saved_pooler
from tests.minbert.conftest import Harmful, same

Tensors = dict[str, Tensor]
Copy = Callable[..., Path]


def rewrite(folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(tensors), path)
    return folder


# The names of the course's code, spelled out here: the table of the code is what is tested.
COURSE = {"word_embedding", "pos_embedding", "tk_type_embedding", "embed_layer_norm", "pooler_dense"}
LAYER = ["attention_dense", "attention_layer_norm", "interm_dense", "out_dense", "out_layer_norm"]
LAYER += [f"self_attention.{part}" for part in ("query", "key", "value")]
COURSE |= {f"bert_layers.{number}.{part}" for number in (0, 1) for part in LAYER}


def test_one_table_names_every_tensor_of_transformers_both_ways(tiny: Path) -> None:
    from transformers import BertModel as Theirs

    keys = list(Theirs.from_pretrained(tiny).state_dict())
    ours = [weights.our_name(key) for key in keys]
    assert [weights.their_name(name) for name in ours] == keys
    assert set(ours) == set(BertModel(BertConfig.read(tiny)).state_dict())
    assert [weights.our_name(name) for name in ours] == ours
    assert {name.rpartition(".")[0] for name in ours} == COURSE
    assert weights.our_name("bert.encoder.layer.11.attention.output.LayerNorm.gamma") == (
        "bert_layers.11.attention_layer_norm.weight"
    )


def test_a_checkpoint_of_pre_training_with_old_names_loads_the_same_weights(tiny: Path, tiny_copy: Copy) -> None:
    def respelled(tensors: Tensors) -> Tensors:
        old = {name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): name for name in tensors}
        heads = ("predictions.bias", "predictions.transform.dense.weight", "seq_relationship.weight")
        return {
            **{f"bert.{spelling}": tensors[name] for spelling, name in old.items()},
            **{f"cls.{name}": torch.zeros(3) for name in heads},
            "bert.embeddings.position_ids": torch.arange(64)[None],
        }

    assert same(rewrite(tiny_copy(), respelled), tiny)


def test_half_precision_files_load_in_fp32(tiny_copy: Copy) -> None:
    half = rewrite(tiny_copy(), lambda tensors: {name: tensor.half() for name, tensor in tensors.items()})
    assert {p.dtype for p in BertModel.from_pretrained(half).parameters()} == {torch.float32}


def test_unknown_missing_and_misshapen_keys_are_all_listed(tiny_copy: Copy) -> None:
    def spoil(tensors: Tensors) -> Tensors:
        del tensors["encoder.layer.1.output.dense.bias"], tensors["pooler.dense.weight"]
        tensors["embeddings.LayerNorm.bias"] = torch.zeros(31)
        tensors["embeddings.LayerNorm.weight"][3] = float("inf")
        more = ("classifier.weight", "encoder.layer.2.output.dense.bias", "bert.pooler.dense.bias")
        return tensors | {name: torch.zeros(32) for name in more}

    folder = rewrite(tiny_copy(), spoil)
    with pytest.raises(UserError) as caught:
        BertModel.from_pretrained(folder)
    names = "classifier.weight encoder.layer.2.output.dense.bias encoder.layer.1.output.dense.bias pooler.dense.weight"
    more = "unknown missing duplicate NaN embeddings.LayerNorm.weight embeddings.LayerNorm.bias [31] [32]"
    message = str(caught.value)
    assert all(word in message for word in f"model.safetensors {names} {more}".split()) and "\n" not in message


@pytest.mark.parametrize("content", [None, b"", b"not safetensors at all"])
def test_no_weights_or_broken_weights_are_a_users_error(tiny_copy: Copy, content: bytes | None) -> None:
    folder = tiny_copy("model.safetensors")
    if content is not None:
        (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        BertModel.from_pretrained(folder)


@pytest.mark.parametrize("name", ["./nowhere", "~nobody-of-this-name/bert", "a/b/c"])
def test_a_path_that_is_not_there_is_not_asked_of_the_hub(name: str) -> None:
    with pytest.raises(UserError, match=f"^--like {name}: no such folder"):
        weights.resolve(name, "--like")
    with pytest.raises(UserError, match=f"^{name}: no such folder"):
        Encoder.load(name)


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
def test_saved_folder_opens_in_sentence_transformers_with_equal_vectors(
    saved: Callable[[str], Path], pooler: str
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = saved(pooler)
    theirs = SentenceTransformer(str(folder), device="cpu")
    mine = Encoder.load(folder, precision="fp32")
    assert mine.pooler == pooler
    np.testing.assert_allclose(mine.encode(TEXTS), theirs.encode(TEXTS), atol=1e-5)
    assert theirs.max_seq_length == 64


def test_a_folder_that_sentence_transformers_has_saved_again_opens_here(
    saved: Callable[[str], Path], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(saved("mean")), device="cpu")
    theirs.max_seq_length = 8
    theirs.save(str(tmp_path / "again"))
    mine = Encoder.load(tmp_path / "again", precision="fp32")
    assert (mine.pooler, mine.max_length) == ("mean", 8)
    with pytest.warns(UserWarning, match="longer than 8 tokens"):
        np.testing.assert_allclose(mine.encode([" ".join(TEXTS)] * 2), theirs.encode([" ".join(TEXTS)] * 2), atol=1e-5)
    SentenceTransformer(str(saved("avg-first-last")), device="cpu").save(str(tmp_path / "layers"))
    with pytest.warns(UserWarning, match="WeightedLayerPooling is left out"):
        assert weights.saved_pooler(tmp_path / "layers") == "mean"


def test_saved_folder_opens_in_transformers_with_equal_outputs(saved: Callable[[str], Path], tiny: Path) -> None:
    from transformers import AutoModel, AutoTokenizer
    from transformers import BertModel as Theirs

    folder = saved("pooler")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 64
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert [
        row[1 : sum(m) - 1]
        for row, m in zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True)
    ] == (Tokenizer.load(tiny).encode(TEXTS))
    theirs, info = Theirs.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(AutoModel.from_pretrained(folder)) is Theirs
    with torch.no_grad():
        wanted = theirs.eval()(batch["input_ids"], attention_mask=batch["attention_mask"])
        mine = BertModel.from_pretrained(folder)(batch["input_ids"], batch["attention_mask"])
    torch.testing.assert_close(mine["pooler_output"], wanted.pooler_output, atol=1e-5, rtol=0)
    assert same(folder, tiny)


def test_pooler_of_folders_by_others(tmp_path: Path, minilm: Path) -> None:
    assert weights.saved_pooler(minilm) == "mean"
    assert weights.saved_pooler(tmp_path) is None
    (tmp_path / "1_Pooling").mkdir()
    flags = {"pooling_mode_max_tokens": True, "include_prompt": True}
    for content, pooler in ((flags, "max"), ({"pooling_mode": "mean"}, "mean")):
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(content))
        assert weights.saved_pooler(tmp_path) == pooler
    for modes in (["weightedmean_tokens"], ["cls_token", "mean_tokens"]):
        content = {"include_prompt": True} | {f"pooling_mode_{mode}": True for mode in modes}
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match="other than one of cls, mean and max"):
            weights.saved_pooler(tmp_path)
    for wrong in (["Pooling"], [{"type": "Pooling"}], [{"type": "Pooling", "path": "../elsewhere"}]):
        (tmp_path / "modules.json").write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=r"modules\.json: "):
            weights.saved_pooler(tmp_path)


def test_a_saved_encoder_whose_weights_have_changed_is_refused(saved: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(saved("mean"), folder)
    Encoder.load(folder)
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=r"model\.safetensors: damaged or replaced"):
        Encoder.load(folder)


@pytest.fixture
def course(tiny: Path, tmp_path: Path) -> Path:
    """What the course's save_model writes: weights, optimizer, options, config and the states of three generators."""
    model = BertModel.from_pretrained(tiny)
    state = {f"bert.{name}": tensor for name, tensor in model.state_dict().items()}
    state |= {"bert.position_ids": torch.arange(64)[None], "sentiment_classifier.weight": torch.zeros(5, 32)}
    path = tmp_path / "full-model-10-1e-05-multitask.pt"
    content = {
        "model": state,
        "optim": {"state": {0: {"step": 3, "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 1e-5}]},
        "args": argparse.Namespace(lr=1e-5, epochs=10, use_gpu=False, sst_train="data/x.csv"),
        "model_config": SimpleNamespace(hidden_dropout_prob=0.3, num_labels={0: 1, 2: 3}, fine_tune_mode="full-model"),
        "system_rng": random.getstate(),
        "numpy_rng": np.random.get_state(),
        "torch_rng": torch.random.get_rng_state(),
        "best": np.float64(0.5),
    }
    torch.save(content, path)
    return path


def test_course_checkpoint_becomes_an_encoder_without_its_heads(course: Path, tiny: Path, tmp_path: Path) -> None:
    convert.run([str(course), "--like", str(tiny), "--to", str(tmp_path / "new")])
    assert same(tmp_path / "new", tiny) and saved_pooler(tmp_path / "new") == "pooler", "the course's heads read it"
    with pytest.raises(UserError, match="exists already"):
        convert_checkpoint(course, str(tiny), tmp_path / "new")


REFUSED = [
    (b"", "not a checkpoint that can be read: ."),
    (b"PK\x03\x04 half a zip", "not a checkpoint that can be read: ."),
    ({"model": {}, "x": Harmful()}, r"it holds the type \w*\.?open, which is refused"),
    ([1, 2], "holds no dict of tensors"),
    ({"model": {}}, "missing 'embeddings.word_embeddings.weight'"),
]


@pytest.mark.parametrize(("content", "why"), REFUSED)
def test_anything_else_is_refused_in_a_sentence_and_nothing_in_it_runs(
    content: Any, why: str, tiny: Path, tmp_path: Path
) -> None:
    Harmful.path, source = str(tmp_path / "created"), tmp_path / "model.pt"
    source.write_bytes(content) if isinstance(content, bytes) else torch.save(content, source)
    with pytest.raises(UserError, match=rf"model\.pt: .*{why}") as caught:
        convert_checkpoint(source, str(tiny), tmp_path / "new")
    assert "\n" not in str(caught.value) and [path.name for path in tmp_path.iterdir()] == ["model.pt"]
