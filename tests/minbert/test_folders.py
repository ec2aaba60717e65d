"""Guards: a folder of any kind gives the vectors of sentence-transformers within 1e-5 in fp32, or a refusal.

python -m pytest --import-mode=importlib tests/minbert/test_folders.py
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models
from tokenizers import models as token_models
from tokenizers import pre_tokenizers, processors

from minbert import BertModel, Encoder, UserError
from tests.minbert.conftest import Harmful

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéèü"
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat Cat café cafe 北 京 北京 . ! < > : 1"
PIECES = [*WORDS.split(), *LETTERS, *(f"##{letter}" for letter in LETTERS)]
TEXTS = [
    "the cat sat.",
    "The Cat, THE CAFÉ!",
    "café cafe 北京",
    "a <e1> cat <E1> [unused] [MASK]",
    "",
    "Où est le thé? " * 3,
    "the cat " * 60,
]
ROWS = len(PIECES) + 8  # of the word embedding: some pieces are added


def edit(path: Path, **changes: Any) -> None:
    """Change entries of a JSON file, which need not exist."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | changes))


def plain(folder: Path, kind: Any = transformers.BertModel, **options: Any) -> Path:
    """A tiny BERT saved by transformers, with tokenizer.json."""
    torch.manual_seed(11)
    config = transformers.BertConfig(
        vocab_size=ROWS,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    kind(config, **options).save_pretrained(folder)
    pieces = {piece: number for number, piece in enumerate(PIECES)}
    transformers.BertTokenizer(pieces).save_pretrained(folder)
    return folder


def changed(folder: Path, name: str, save: Callable[[Path], Path] = plain, **changes: Any) -> None:
    """With other entries in one of its JSON files."""
    save(folder)
    edit(folder / name, **changes)


def changed_weights(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], pickled: bool = False) -> None:
    plain(folder)
    path = folder / "model.safetensors"
    tensors = change(load_file(path))
    path.unlink()
    if pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, path)


def half(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.half() for name, tensor in tensors.items()}


def without_bias(tensors: dict[str, Any]) -> dict[str, Any]:
    del tensors["pooler.dense.bias"]
    return tensors


def with_vocabulary(folder: Path, pieces: list[str], **config: Any) -> None:
    """With vocab.txt in place of tokenizer.json."""
    plain(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")


def unigram(folder: Path) -> None:
    """A vocabulary such as that of multilingual MiniLM, with other special tokens."""
    plain(folder)
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁the", -1.0), ("▁", -2.0), ("cat", -2.5)]
    pieces += [(letter, -4.0) for letter in "abcehst."]
    library = tokenizers.Tokenizer(token_models.Unigram(pieces, unk_id=3))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    special = {"cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    library.add_special_tokens(list(special.values()))
    library.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    transformers.PreTrainedTokenizerFast(tokenizer_object=library, **special).save_pretrained(folder)


def lowercased_words(folder: Path) -> None:
    """A tokenizer without rules for characters, and lower case beside it."""
    version_2(folder, do_lower_case=True)
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "the": 5, "cat": 6, "sat": 7}
    library = tokenizers.Tokenizer(token_models.WordLevel(vocabulary, "[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=library, **special).save_pretrained(folder)


def added_tokens(folder: Path) -> None:
    plain(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<e1>", "cat sat"])
    tokenizer.save_pretrained(folder)


def without_template(folder: Path) -> None:
    plain(folder)
    backend = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    backend.post_processor = processors.TemplateProcessing("$A", special_tokens=[])
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]").save_pretrained(folder)
    edit(folder / "tokenizer_config.json", cls_token="[CLS]", sep_token="[SEP]")


def library(folder: Path, later: Sequence[torch.nn.Module] = (), pooling: Any = "mean", **options: Any) -> Path:
    """A folder saved by sentence-transformers, with the layers `later` over the pooled vector."""
    source = plain(folder.with_name("source"))
    modules = [models.Transformer(str(source)), models.Pooling(32, pooling), *later]
    SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder), create_model_card=False)
    return folder


def version_2(folder: Path, **config: Any) -> None:
    """As sentence-transformers 2 wrote it: sentence_bert_config.json, flags for the pooling mode."""
    library(folder)
    settings = {"max_seq_length": 32, "do_lower_case": False} | config
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def lowercased(folder: Path) -> None:
    version_2(folder, do_lower_case=True)
    edit(folder / "tokenizer_config.json", do_lower_case=False)


def old_layout(folder: Path) -> None:
    version_2(folder)
    inner = folder / "0_Transformer"
    inner.mkdir()
    outside = ("modules.json", "config_sentence_transformers.json", "README.md")
    for path in list(folder.iterdir()):
        if path.is_file() and path.name not in outside:
            path.rename(inner / path.name)
    rows = json.loads((folder / "modules.json").read_text())
    rows[0] |= {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    rows[1]["type"] = "sentence_transformers.models.Pooling"
    (folder / "modules.json").write_text(json.dumps(rows))


def dense(size: int = 16, **options: Any) -> models.Dense:
    torch.manual_seed(5)
    return models.Dense(32, size, **options)


def pickled_dense(folder: Path) -> None:
    library(folder, [dense()])
    path = folder / "2_Dense"
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


def layers(folder: Path, weights: tuple[float, ...]) -> None:
    source = plain(folder.with_name("source"))
    transformer = models.Transformer(str(source), config_args={"output_hidden_states": True})
    layer_weights = torch.nn.Parameter(torch.tensor(weights))
    pooling = models.WeightedLayerPooling(32, 3, layer_start=4 - len(weights), layer_weights=layer_weights)
    modules = [transformer, pooling, models.Pooling(32)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    edit(folder / "config.json", output_hidden_states=True)


def with_module(folder: Path, kind: str) -> None:
    library(folder)
    rows = json.loads((folder / "modules.json").read_text())
    rows.append({"idx": 2, "name": "2", "path": f"2_{kind}", "type": f"sentence_transformers.models.{kind}"})
    (folder / "modules.json").write_text(json.dumps(rows))


# the name of a kind, what makes it, and its arguments besides the folder
Kind = tuple[str, Callable[..., Any], dict[str, Any]]
KINDS: list[Kind] = [
    ("transformers", plain, {}),
    ("pytorch_model.bin", changed_weights, {"change": dict, "pickled": True}),
    ("fp16", changed_weights, {"change": half}),
    ("heads of pre-training", plain, {"kind": transformers.BertForPreTraining}),
    ("no pooling layer", plain, {"add_pooling_layer": False}),
    ("do_lower_case beside tokenizer.json", changed, {"name": "tokenizer_config.json", "do_lower_case": False}),
    ("model_max_length", changed, {"name": "tokenizer_config.json", "model_max_length": 16}),
    ("vocab.txt, cased", with_vocabulary, {"pieces": PIECES, "do_lower_case": False}),
    ("unigrams with <s> and </s>", unigram, {}),
    ("added tokens", added_tokens, {}),
    ("sentence-transformers, cls", library, {"pooling": "cls"}),
    ("sentence-transformers, max", library, {"pooling": "max"}),
    ("0_Transformer", old_layout, {}),
    ("do_lower_case in sentence_bert_config.json", lowercased, {}),
    ("do_lower_case beside words", lowercased_words, {}),
    ("default prompt", library, {"prompts": {"query": "The cat: "}, "default_prompt_name": "query"}),
    ("similarity by the dot product", library, {"similarity_fn_name": "dot"}),
    ("pickled Dense", pickled_dense, {}),
    ("Normalize", library, {"later": [models.Normalize()], "truncate_dim": 10}),
    ("Dropout", library, {"later": [models.Dropout(0.5), dense(bias=False, activation_function=None)]}),
    ("residual Dense", library, {"later": [dense(use_residual=True)], "truncate_dim": 10}),
    ("LayerNorm", library, {"later": [dense(32), models.LayerNorm(32), dense(activation_function=torch.nn.GELU())]}),
    ("weights of the last two layers", layers, {"weights": (1.0, 1.0)}),
]


def test_unigrams_have_an_unknown_token(tmp_path: Path) -> None:
    unigram(tmp_path)
    assert Encoder.load(tmp_path).tokenizer.unknown == 3


def test_model_needs_no_vocabulary(tmp_path: Path) -> None:
    """As `save_pretrained` of a model alone writes it."""
    plain(tmp_path)
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    ids = torch.tensor([[2, 5, 6, 3]])
    ours = BertModel.from_pretrained(tmp_path)(ids, torch.ones_like(ids))
    theirs = transformers.BertModel.from_pretrained(tmp_path)(ids)
    torch.testing.assert_close(ours["last_hidden_state"], theirs.last_hidden_state, atol=1e-5, rtol=0)
    with pytest.raises(UserError, match=f"^{tmp_path}: has no vocabulary"):
        Encoder.load(tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_config_without_type_of_model(tmp_path: Path) -> None:
    """As of BERT's first versions, which have a vocab.txt; sentence-transformers refuses it."""
    expected = tmp_path / "named"
    with_vocabulary(expected, PIECES, do_lower_case=True)
    shutil.copytree(expected, tmp_path / "unnamed")
    config = json.loads((expected / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "unnamed" / "config.json").write_text(json.dumps(config))
    (tmp_path / "unnamed" / "tokenizer_config.json").unlink()
    vectors = Encoder.load(tmp_path / "unnamed").encode(TEXTS)
    np.testing.assert_array_equal(vectors, Encoder.load(expected).encode(TEXTS))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.filterwarnings("ignore")
def test_vectors_equal_sentence_transformers(kind: Kind, tmp_path: Path) -> None:
    _, make, options = kind
    folder = tmp_path / "folder"
    make(folder, **options)
    theirs = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    mine = Encoder.load(folder, precision="fp32")
    expected = theirs.encode(TEXTS)
    np.testing.assert_allclose(mine.encode(TEXTS), expected, atol=1e-5, rtol=0)
    assert mine.max_length == theirs.max_seq_length
    assert mine.get_sentence_embedding_dimension() == theirs.get_embedding_dimension()
    # what is saved here of it gives the same vectors there
    mine.save(folder.with_name("saved"))
    again = SentenceTransformer(str(folder.with_name("saved")), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5, rtol=0)
    assert again.similarity_fn_name == theirs.similarity_fn_name


@pytest.mark.filterwarnings("ignore")
def test_saved_pooler_keeps_later_layers(tmp_path: Path) -> None:
    library(tmp_path / "theirs", [dense(), models.Normalize()], truncate_dim=12)
    encoder = Encoder.load(tmp_path / "theirs", pooler="pooler", precision="fp32")
    encoder.save(tmp_path / "ours")
    saved = Encoder.load(tmp_path / "ours", precision="fp32")
    np.testing.assert_array_equal(saved.encode(TEXTS), encoder.encode(TEXTS))
    theirs = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5, rtol=0)


MANY = [*PIECES, *map(str, range(9))]
REFUSED: list[Kind] = [
    ("model_type is 'roberta'", changed, {"name": "config.json", "model_type": "roberta"}),
    ("position_embedding_type is", changed, {"name": "config.json", "position_embedding_type": "relative_key"}),
    ("missing encoder.layer.3", changed, {"name": "config.json", "num_hidden_layers": 4}),
    ("unknown encoder.layer.2", changed, {"name": "config.json", "num_hidden_layers": 2}),
    ("missing pooler.dense.bias", changed_weights, {"change": without_bias}),
    ("transformers cannot open it", changed_weights, {"change": lambda _: {"x": Harmful()}, "pickled": True}),
    ("an adapter over other", changed, {"name": "adapter_config.json", "peft_type": "LORA"}),
    (f"vocabulary has {ROWS + 1} pieces but the weights embed only {ROWS}", with_vocabulary, {"pieces": MANY}),
    ("does not put exactly", without_template, {}),
    ("truncates on the left", changed, {"name": "tokenizer_config.json", "truncation_side": "left"}),
    ("pooling mode lasttoken", library, {"pooling": "lasttoken"}),
    ("pooling mode cls \\+ mean", library, {"pooling": ("cls", "mean")}),
    ("none of avg-first-last", layers, {"weights": (1.0, 3.0)}),
    ("modules Transformer, Pooling, CNN are not supported", with_module, {"kind": "CNN"}),
    (
        "model_type is 'SparseEncoder'",
        changed,
        {"name": "config_sentence_transformers.json", "save": library, "model_type": "SparseEncoder"},
    ),
    ("processing_kwargs is", version_2, {"processing_kwargs": {"text": {"max_length": 8}}}),
    ("transformer_task is 'fill-mask'", version_2, {"transformer_task": "fill-mask"}),
    ("tokenizer_args sets never_split", version_2, {"tokenizer_args": {"never_split": ["the"]}}),
]


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind[0])
@pytest.mark.filterwarnings("ignore")
def test_other_folders_are_refused(kind: Kind, tmp_path: Path) -> None:
    why, make, options = kind
    folder = tmp_path / "folder"
    Harmful.path = str(tmp_path / "created")
    make(folder, **options)
    with pytest.raises(UserError, match=f"^{folder}: .*{why}") as caught:
        Encoder.load(folder)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "created").exists()
