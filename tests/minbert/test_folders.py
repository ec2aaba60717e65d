"""Guards: a folder of any kind gives the vectors of sentence-transformers within 1e-5 in fp32, or a refusal.

python -m pytest --import-mode=importlib tests/minbert/test_folders.py
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, models
from tokenizers import models as token_models
from tokenizers import pre_tokenizers, processors

from minbert import Encoder, UserError

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéèü"
PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "Cat",
    "café",
    "cafe",
    "北",
    "京",
    "北京",
    ".",
    "!",
]
PIECES += [*LETTERS, *(f"##{letter}" for letter in LETTERS), "<", ">", ":", "1"]
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


def with_vocabulary(folder: Path, content: str = "\n".join(PIECES) + "\n", **config: Any) -> Path:
    """With vocab.txt in place of tokenizer.json."""
    plain(folder)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_bytes(content.encode())
    return folder


def pickled(folder: Path) -> None:
    plain(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def sharded(folder: Path) -> None:
    plain(folder)
    transformers.BertModel.from_pretrained(folder).save_pretrained(folder, max_shard_size="20KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert len(list(folder.glob("model-*.safetensors"))) > 1


def half(folder: Path) -> None:
    plain(folder)
    transformers.BertModel.from_pretrained(folder).half().save_pretrained(folder)


def old_names(folder: Path) -> None:
    plain(folder)
    path = folder / "model.safetensors"
    old = {}
    for name, tensor in load_file(path).items():
        old["bert." + name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(64)[None]
    save_file(old, path)


def rules(folder: Path, **changes: Any) -> None:
    """tokenizer_config.json says otherwise than tokenizer.json."""
    plain(folder)
    edit(folder / "tokenizer_config.json", **changes)


def cased(folder: Path, config: str, name: str) -> None:
    """tokenizer.json is cased, and tokenizer_config.json is not; which counts depends on the class that is named."""
    plain(folder)
    pieces = {piece: number for number, piece in enumerate(PIECES)}
    transformers.BertTokenizer(pieces, do_lower_case=False).save_pretrained(folder)
    content = json.loads((folder / "tokenizer_config.json").read_text())
    del content["tokenizer_class"]
    (folder / "tokenizer_config.json").write_text(json.dumps(content | {"do_lower_case": True}))
    edit(folder / config, tokenizer_class=name)


def other_vocabulary(folder: Path, model: Any, special: dict[str, str], prefix: Any) -> None:
    """Another kind of tokenizer, whose template puts two special tokens around a text."""
    plain(folder)
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = prefix
    first, last = special["cls_token"], special["sep_token"]
    library.add_special_tokens(list(special.values()))
    ids = [(token, library.token_to_id(token)) for token in (first, last)]
    library.post_processor = processors.TemplateProcessing(f"{first} $A {last}", special_tokens=ids)
    transformers.PreTrainedTokenizerFast(tokenizer_object=library, **special).save_pretrained(folder)


def bpe(folder: Path) -> None:
    vocabulary = {piece: n for n, piece in enumerate(["[UNK]", "[CLS]", "[SEP]", "[PAD]", *"thecasT.", "th", "the"])}
    model = token_models.BPE(vocab=vocabulary, merges=[("t", "h"), ("th", "e")], unk_token="[UNK]")
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    other_vocabulary(folder, model, special, pre_tokenizers.Whitespace())


def unigram(folder: Path) -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁the", -1.0), ("▁", -2.0), ("cat", -2.5)]
    model = token_models.Unigram([*pieces, *((letter, -4.0) for letter in "abcehst.")], unk_id=3)
    special = {"cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    other_vocabulary(folder, model, special, pre_tokenizers.Metaspace())


def added_tokens(folder: Path) -> None:
    with_vocabulary(folder)
    edit(folder / "added_tokens.json", **{"<e1>": len(PIECES), "[unused]": len(PIECES) + 1})


def more_special_tokens(folder: Path) -> None:
    with_vocabulary(folder)
    edit(folder / "special_tokens_map.json", additional_special_tokens=["<e1>", "<E1>"], unk_token="[UNK]")


def added_by_transformers(folder: Path) -> None:
    plain(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<e1>", "cat sat"])
    tokenizer.save_pretrained(folder)


def library(folder: Path, *later: Any, pooling: str = "mean", **options: Any) -> Path:
    """A folder saved by sentence-transformers."""
    source = plain(folder.with_name("source"))
    modules = [models.Transformer(str(source)), models.Pooling(32, pooling), *later]
    SentenceTransformer(modules=modules, device="cpu", **options).save(str(folder), create_model_card=False)
    return folder


def names_of_version_2(folder: Path, **config: Any) -> Path:
    """As sentence-transformers 2 wrote it: sentence_bert_config.json, flags for the pooling mode."""
    library(folder)
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 32, "do_lower_case": False} | config)
    )
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def lowercased(folder: Path) -> None:
    names_of_version_2(folder, do_lower_case=True)
    edit(folder / "tokenizer_config.json", do_lower_case=False)


def old_layout(folder: Path) -> None:
    names_of_version_2(folder)
    inner = folder / "0_Transformer"
    inner.mkdir()
    for path in list(folder.iterdir()):
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json", "README.md"):
            path.rename(inner / path.name)
    rows = json.loads((folder / "modules.json").read_text())
    rows[0] |= {"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    rows[1]["type"] = "sentence_transformers.models.Pooling"
    (folder / "modules.json").write_text(json.dumps(rows))


def dense(folder: Path, size: int = 16, **options: Any) -> models.Dense:
    del folder
    torch.manual_seed(5)
    return models.Dense(32, size, **options)


def pickled_dense(folder: Path) -> None:
    library(folder, dense(folder))
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


def exported(folder: Path, pooler: str) -> None:
    """A folder that this project saved, with all that sentence-transformers' folder named."""
    prompts = {"prompts": {"q": "the: "}, "default_prompt_name": "q"}
    library(folder.with_name("their"), dense(folder), models.Normalize(), truncate_dim=12, **prompts)
    encoder = Encoder.load(folder.with_name("their"), pooler=pooler)
    encoder.max_seq_length = 20
    encoder.save(folder)


def saved_again(folder: Path, pooler: str) -> None:
    """A folder that this project saved, and sentence-transformers saved again."""
    exported(folder.with_name("ours"), pooler)
    again = SentenceTransformer(str(folder.with_name("ours")), device="cpu")
    again.save(str(folder), create_model_card=False)
    if pooler.startswith("avg"):
        edit(folder / "config.json", output_hidden_states=True)


KINDS: dict[str, Callable[[Path], Any]] = {
    "transformers: safetensors, tokenizer.json": plain,
    "transformers: pytorch_model.bin": pickled,
    "transformers: safetensors in shards": sharded,
    "transformers: fp16": half,
    "transformers: prefix bert., gamma and beta, position_ids": old_names,
    "transformers: with a classifier": lambda folder: plain(folder, transformers.BertForSequenceClassification),
    "transformers: with both heads of pre-training": lambda folder: plain(folder, transformers.BertForPreTraining),
    "transformers: without pooling layer": lambda folder: plain(folder, add_pooling_layer=False),
    "do_lower_case false beside tokenizer.json": lambda folder: rules(folder, do_lower_case=False),
    "strip_accents and tokenize_chinese_chars false beside tokenizer.json": lambda folder: rules(
        folder, strip_accents=False, tokenize_chinese_chars=False
    ),
    "vocab.txt, cased": lambda folder: with_vocabulary(folder, do_lower_case=False),
    "PreTrainedTokenizerFast in tokenizer_config.json": lambda folder: cased(
        folder, "tokenizer_config.json", "PreTrainedTokenizerFast"
    ),
    "ElectraTokenizerFast in config.json": lambda folder: cased(folder, "config.json", "ElectraTokenizerFast"),
    "byte-pair encoding": bpe,
    "unigrams with <s> and </s>": unigram,
    "added_tokens.json": added_tokens,
    "additional_special_tokens": more_special_tokens,
    "added tokens in tokenizer.json": added_by_transformers,
    "model_max_length": lambda folder: rules(folder, model_max_length=16),
    "vocab.txt with CRLF": lambda folder: with_vocabulary(folder, "\r\n".join(PIECES) + "\r\n"),
    "vocab.txt with a piece twice": lambda folder: with_vocabulary(folder, "\n".join([*PIECES, "cat"]) + "\n"),
    "sentence-transformers: mean": library,
    "sentence-transformers: cls": lambda folder: library(folder, pooling="cls"),
    "sentence-transformers: max": lambda folder: library(folder, pooling="max"),
    "sentence-transformers 2: max_seq_length": names_of_version_2,
    "sentence-transformers 2: 0_Transformer": old_layout,
    "do_lower_case in sentence_bert_config.json": lowercased,
    "default prompt": lambda folder: library(folder, prompts={"query": "The cat: "}, default_prompt_name="query"),
    "truncate_dim": lambda folder: library(folder, truncate_dim=10),
    "Normalize, truncate_dim": lambda folder: library(folder, models.Normalize(), truncate_dim=10),
    "Dense in pytorch_model.bin": pickled_dense,
    "Dense without bias and activation, Normalize": lambda folder: library(
        folder, dense(folder, bias=False, activation_function=None), models.Normalize()
    ),
    "Dense with a residual connection": lambda folder: library(folder, dense(folder, use_residual=True)),
    "Dense, LayerNorm, Dense": lambda folder: library(
        folder, dense(folder, 32), models.LayerNorm(32), dense(folder, activation_function=torch.nn.GELU())
    ),
    "Dropout, Normalize": lambda folder: library(folder, models.Dropout(0.5), models.Normalize()),
    "WeightedLayerPooling of the last two layers": lambda folder: layers(folder, (1.0, 1.0)),
    "saved here: pooler": lambda folder: exported(folder, "pooler"),
    "saved here: avg-first-last": lambda folder: exported(folder, "avg-first-last"),
    "saved here, then by sentence-transformers: pooler": lambda folder: saved_again(folder, "pooler"),
    "saved here, then by sentence-transformers: avg-static-last": lambda folder: saved_again(folder, "avg-static-last"),
}

OTHER_FILES = {
    *("transformers: pytorch_model.bin", "transformers: safetensors in shards"),
    *("transformers: fp16", "transformers: prefix bert., gamma and beta, position_ids"),
    *("transformers: with a classifier", "transformers: with both heads of pre-training"),
    *("ElectraTokenizerFast in config.json", "vocab.txt with CRLF", "sentence-transformers: mean"),
    *("sentence-transformers 2: max_seq_length", "sentence-transformers 2: 0_Transformer"),
    *("Dense in pytorch_model.bin", "saved here, then by sentence-transformers: pooler"),
    "saved here, then by sentence-transformers: avg-static-last",
}
"""Kinds that differ from another one in their files only: what is saved here of them is saved of the other one, too."""
assert KINDS.keys() > OTHER_FILES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore")
def test_vectors_equal_sentence_transformers(kind: str, tmp_path: Path, record_property: Callable[..., None]) -> None:
    folder = tmp_path / "folder"
    KINDS[kind](folder)
    theirs = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
    mine = Encoder.load(folder, precision="fp32")
    expected = theirs.encode(TEXTS)
    actual = mine.encode(TEXTS)
    assert actual.shape == expected.shape
    difference = float(np.abs(actual - expected).max())
    record_property("greatest difference", difference)
    assert difference <= 1e-5
    assert mine.max_length == theirs.max_seq_length
    assert mine.get_sentence_embedding_dimension() == theirs.get_embedding_dimension()
    if kind in OTHER_FILES:
        return
    # what is saved here of it gives the same vectors there
    mine.save(tmp_path / "saved")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=1e-5)


def relative(folder: Path) -> None:
    plain(folder)
    edit(folder / "config.json", position_embedding_type="relative_key")


def of_another_size(folder: Path, **changes: Any) -> None:
    plain(folder)
    edit(folder / "config.json", **changes)


def no_vocabulary(folder: Path) -> None:
    plain(folder)
    (folder / "tokenizer.json").unlink()


def without_template(folder: Path) -> None:
    plain(folder)
    backend = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    backend.post_processor = processors.TemplateProcessing("$A", special_tokens=[])
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]").save_pretrained(folder)
    edit(folder / "tokenizer_config.json", cls_token="[CLS]", sep_token="[SEP]")


def slow_for_long_words(folder: Path) -> None:
    cased(folder, "tokenizer_config.json", "PreTrainedTokenizerFast")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["max_input_chars_per_word"] = 100_000
    (folder / "tokenizer.json").write_text(json.dumps(content))


def with_module(folder: Path, kind: str) -> None:
    library(folder)
    rows = json.loads((folder / "modules.json").read_text())
    rows.append({"idx": 2, "name": "2", "path": f"2_{kind}", "type": f"sentence_transformers.models.{kind}"})
    (folder / "modules.json").write_text(json.dumps(rows))


def sentence_bert(folder: Path, **changes: Any) -> None:
    names_of_version_2(folder)
    edit(folder / "sentence_bert_config.json", **changes)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "RoBERTa": (lambda folder: of_another_size(folder, model_type="roberta"), "model_type is 'roberta'"),
    "relative positions": (relative, "position_embedding_type is 'relative_key'"),
    "ReLU": (lambda folder: of_another_size(folder, hidden_act="relu"), "hidden_act is 'relu'"),
    "weights of fewer layers": (lambda folder: of_another_size(folder, num_hidden_layers=4), "missing encoder.layer.3"),
    "weights of more layers": (lambda folder: of_another_size(folder, num_hidden_layers=2), "unknown encoder.layer.2"),
    "more pieces than rows": (
        lambda folder: with_vocabulary(folder, "\n".join(map(str, [*PIECES, *range(9)])) + "\n"),
        f"the vocabulary has {ROWS + 1} pieces but the weights embed only {ROWS}",
    ),
    "no vocabulary": (no_vocabulary, "no vocabulary"),
    "without [CLS] and [SEP]": (without_template, "adds other tokens than"),
    "truncates on the left": (lambda folder: rules(folder, truncation_side="left"), "truncates on the left"),
    "long words": (slow_for_long_words, "max_input_chars_per_word is 100,000"),
    "adapter": (lambda folder: edit(plain(folder) / "adapter_config.json", peft_type="LORA"), "an adapter over other"),
    "last token": (lambda folder: library(folder, pooling="lasttoken"), "pooling mode lasttoken"),
    "two pooling modes": (lambda folder: library(folder, pooling=("cls", "mean")), "pooling mode cls \\+ mean"),
    "weights of layers": (lambda folder: layers(folder, (1.0, 3.0)), "none of avg-first-last"),
    "CNN": (lambda folder: with_module(folder, "CNN"), "the module CNN is not supported"),
    "Dense over tokens": (
        lambda folder: library(folder, dense(folder, module_input_name="token_embeddings")),
        "reads token_embeddings",
    ),
    "sparse vectors": (
        lambda folder: edit(library(folder) / "config_sentence_transformers.json", model_type="SparseEncoder"),
        "a SparseEncoder",
    ),
    "unknown default prompt": (
        lambda folder: edit(library(folder) / "config_sentence_transformers.json", default_prompt_name="q"),
        "the default prompt 'q'",
    ),
    "another output": (lambda folder: sentence_bert(folder, transformer_task="fill-mask"), "output is other"),
    "arguments of the tokenizer": (
        lambda folder: sentence_bert(folder, tokenizer_args={"never_split": ["the"]}),
        "tokenizer_args sets never_split",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_other_folders_are_refused(kind: str, tmp_path: Path) -> None:
    make, why = REFUSED[kind]
    folder = tmp_path / "folder"
    make(folder)
    with pytest.raises(UserError, match=f"^{folder}: .*{why}") as caught:
        Encoder.load(folder)
    assert "\n" not in str(caught.value)
