"""What an encoder folder says besides weights and vocabulary, in sentence-transformers' files.

`modules.json` lists the modules that a text passes: the transformer, the pooling, and layers over the pooled vector.
`config_sentence_transformers.json` holds prompts, `sentence_bert_config.json` the longest input.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minbert.config import BertConfig
from minbert.errors import UserError, short_repr
from minbert.files import load_safetensors, read_json, read_optional_json, sha256_of
from minbert.pooling import AVERAGES

RECORD = "minbert.json"  # in a folder that `weights.save` wrote: the pooler, and the SHA-256 of weights and other files
_POOLING_MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
"""Our poolers that sentence-transformers' Pooling has, with its older names for them."""
_MODULES = re.compile("Transformer( WeightedLayerPooling)? Pooling( Dense| LayerNorm| Normalize| Dropout)*")
"""The modules that are computed here, in the order of `modules.json`."""
_SUPPORTED = {
    "model_type": "SentenceTransformer",  # not a SparseEncoder, which has no sentence vectors
    "transformer_task": "feature-extraction",
    "module_input_name": "sentence_embedding",  # what a layer reads: the pooled vector
    "processing_kwargs": {},  # arguments of the tokenizer's call, such as a longest input
}
"""Settings that have one value here; where a file names another one, its vectors would be different."""
_ARGUMENTS = ("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs")
_ACCEPTED = {"output_hidden_states", "model_max_length", "torch_dtype", "dtype", "attn_implementation"}
"""Arguments of transformers that are read here, or that change no vector beyond rounding."""


class Dense(nn.Module):
    """sentence-transformers' Dense: f(W x + b) of a vector x, plus x (or R x, where sizes differ) if it is residual."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        size_in = config["in_features"]
        size_out = config["out_features"]
        self.linear = nn.Linear(size_in, size_out, bias=config.get("bias", True))
        activation = config.get("activation_function", "torch.nn.Tanh").rpartition(".")[2]
        self.activation_function = getattr(nn, activation)()  # of which a PReLU has a weight
        self.is_residual = config.get("use_residual", False)
        self.residual: nn.Module = nn.Identity()
        if self.is_residual and size_in != size_out:
            self.residual = nn.Linear(size_in, size_out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, in_features] to [B, out_features]."""
        y = self.activation_function(self.linear(x))
        if self.is_residual:
            y = y + self.residual(x)
        return y


class LayerNorm(nn.Module):
    """sentence-transformers' LayerNorm of a vector."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.norm = nn.LayerNorm(config["dimension"])

    def forward(self, x: Tensor) -> Tensor:
        """[B, dimension] to [B, dimension]."""
        return self.norm(x)


class Normalize(nn.Module):
    """sentence-transformers' Normalize: scales vectors to length 1."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.config: dict[str, Any] = config or {}

    def forward(self, x: Tensor) -> Tensor:
        """[B, D] to [B, D]."""
        return F.normalize(x, dim=1)


LAYERS: dict[str, type[Dense] | type[LayerNorm] | type[Normalize]] = {
    "Dense": Dense,
    "LayerNorm": LayerNorm,
    "Normalize": Normalize,
}
"""The modules over a pooled vector that are computed here."""


_PROMPTS = {"query": "", "document": ""}
"""The prompts that sentence-transformers has for every encoder."""


@dataclass(frozen=True)
class Pipeline:
    """How texts become vectors, apart from transformer and vocabulary."""

    pooler: str | None = None  # None if the folder does not say
    layers: nn.Sequential = field(default_factory=nn.Sequential)  # over the pooled vector
    max_length: int | None = None  # longest input in tokens
    lowercase: bool = False  # texts before the tokenizer, which may do so too
    prompts: dict[str, str] = field(default_factory=lambda: dict(_PROMPTS))  # texts before a sentence, by name
    default_prompt_name: str | None = None
    pools_prompt: bool = True  # whether the pooling includes the tokens of a prompt
    truncate_dim: int | None = None  # first dimensions of a vector that are kept
    similarity_fn_name: str | None = None  # for sentence-transformers; `Encoder.similarity` is the cosine

    @property
    def normalizes(self) -> bool:
        """Whether vectors are scaled to length 1 at the end."""
        return len(self.layers) > 0 and isinstance(self.layers[-1], Normalize)


class ListedModule(NamedTuple):
    """A module of `modules.json`."""

    kind: str  # such as Pooling
    folder: Path


def list_modules(folder: Path) -> list[ListedModule]:
    """The modules in `modules.json`, in order; empty without this file."""
    if not (folder / "modules.json").is_file():
        return []
    modules = []
    for module in read_json(folder / "modules.json"):
        # the package before the kind depends on the version that wrote it
        kind = module["type"].rpartition(".")[2]
        modules.append(ListedModule(kind, folder / module["path"]))
    return modules


def read_record(folder: Path) -> dict[str, Any]:
    """What `weights.save` has recorded of a folder; empty if another program has changed files beside the weights."""
    record = read_optional_json(folder / RECORD)
    for name, expected in record.get("files", {}).items():
        if not (folder / name).is_file() or sha256_of(folder / name) != expected:
            return {}
    return record


def read_pipeline(folder: Path) -> Pipeline:
    """Read sentence-transformers' files of a folder, as it does: without `modules.json` the others do not count.

    Raises `UserError` for a module or a setting with which vectors would differ from sentence-transformers'.
    """
    modules = list_modules(folder)
    recorded = read_record(folder).get("pooler")
    if not modules:
        return Pipeline(recorded, max_length=_tokenizer_length(folder))
    kinds = [module.kind for module in modules]
    if not _MODULES.fullmatch(" ".join(kinds)):
        raise UserError(
            f"{folder / 'modules.json'}: the modules {', '.join(kinds)} are not supported; after a Transformer and its "
            f"Pooling there may be {', '.join(LAYERS)}"
        )
    transformer = _transformer_settings(modules[0].folder)
    index = kinds.index("Pooling")
    pooling = read_json(modules[index].folder / "config.json")
    later = modules[index + 1 :]
    # what sentence-transformers says counts: it may have changed the folder since the record was written
    pooler = _pooler(modules[1 : index + 1], transformer)
    if recorded == "pooler" and pooler == "cls" and kinds[2:3] == ["Dense"]:
        later = later[1:]  # its Dense module is the encoder's own pooling layer
        pooler = recorded
    elif recorded in AVERAGES and pooler in AVERAGES:
        pooler = recorded  # in an encoder of one or two layers several names mean the same
    layers = [_layer(module) for module in later if module.kind != "Dropout"]
    settings = _read_settings(folder / "config_sentence_transformers.json")
    prompts = dict(_PROMPTS)
    for name, prompt in (settings.get("prompts") or {}).items():
        prompts[name] = prompt or ""
    return Pipeline(
        pooler,
        nn.Sequential(*layers).requires_grad_(False),
        max_length=transformer.get("max_seq_length") or _tokenizer_length(modules[0].folder),
        lowercase=transformer.get("do_lower_case", False),
        prompts=prompts,
        default_prompt_name=settings.get("default_prompt_name"),
        pools_prompt=pooling.get("include_prompt", True),
        truncate_dim=settings.get("truncate_dim"),
        similarity_fn_name=settings.get("similarity_fn_name"),
    )


def _tokenizer_length(folder: Path) -> int | None:
    """The longest input that the tokenizer's settings name, which may be above the number of positions."""
    return read_optional_json(folder / "tokenizer_config.json").get("model_max_length")


def _read_settings(path: Path) -> dict[str, Any]:
    """The settings in a file; empty without it. Raises `UserError` for a value that `_SUPPORTED` excludes."""
    settings = read_optional_json(path)
    for name, expected in _SUPPORTED.items():
        if settings.get(name, expected) != expected:
            raise UserError(f"{path}: {name} is {short_repr(settings[name])}; only {expected!r} is supported")
    return settings


def _transformer_settings(folder: Path) -> dict[str, Any]:
    """The settings of the Transformer module in `folder`; the file's name depends on the version that wrote it."""
    path = folder / "sentence_bert_config.json"
    others = sorted(folder.glob("sentence_*_config.json"))
    if not path.is_file() and others:
        path = others[0]
    settings = _read_settings(path)
    config = read_optional_json(folder / "config.json")
    # as soon as one of them asks for the hidden states, sentence-transformers has them
    returns_states = settings.get("output_hidden_states") or config.get("output_hidden_states")
    for name in _ARGUMENTS:
        arguments = settings.get(name) or {}
        unknown = arguments.keys() - _ACCEPTED
        if unknown:
            raise UserError(f"{path}: {name} sets {', '.join(sorted(unknown))}, which is not supported")
        if "model_max_length" in arguments:
            settings["max_seq_length"] = arguments["model_max_length"]
        returns_states = returns_states or arguments.get("output_hidden_states")
    return settings | {"output_hidden_states": returns_states, "num_hidden_layers": config.get("num_hidden_layers")}


def _pooler(modules: list[ListedModule], transformer: dict[str, Any]) -> str:
    """The pooler that computes the same as the modules between the transformer and the pooled vector."""
    pooler = _pooling_mode(modules[-1].folder / "config.json")
    # without all hidden states sentence-transformers has no layers to average
    if len(modules) == 1 or not transformer["output_hidden_states"]:
        return pooler
    folder = modules[0].folder
    layers = _averaged_layers(folder, transformer["num_hidden_layers"])
    if layers is None or pooler != "mean":
        raise UserError(f"{folder}: these weights of layers are none of {', '.join(AVERAGES)} over the mean")
    return layers


def _pooling_mode(path: Path) -> str:
    """The pooler of a Pooling module's config, which names its mode or, in older versions, has a flag for each."""
    content = read_json(path)
    modes = content.get("pooling_mode")
    if modes is None:
        prefix = "pooling_mode_"
        modes = [key.removeprefix(prefix) for key in content if key.startswith(prefix) and content[key]]
    if isinstance(modes, str):
        modes = [modes]
    if not modes:
        return "mean"
    for ours, theirs in _POOLING_MODES.items():
        if modes in ([ours], [theirs]):
            return ours
    raise UserError(f"{path}: pooling mode {' + '.join(modes)}; supported is one of {', '.join(_POOLING_MODES)}")


def _averaged_layers(folder: Path, num_layers: int) -> str | None:
    """The pooler that averages the hidden states as a WeightedLayerPooling module does; None if there is none."""
    start = read_json(folder / "config.json")["layer_start"]
    saved = _tensors(folder)["layer_weights"].float()
    for name in AVERAGES:
        expected = layer_weights(name, num_layers)
        if not expected[:start].any() and torch.allclose(saved / saved.sum(), expected[start:] / expected.sum()):
            return name
    return None


def layer_weights(pooler: str, num_layers: int) -> Tensor:
    """How often a pooler that averages hidden states counts each of them: [num_layers + 1], the embeddings first."""
    counts = torch.zeros(num_layers + 1)
    for layer in AVERAGES[pooler]:
        counts[layer] += 1
    return counts


def _layer(module: ListedModule) -> nn.Module:
    """A module over the pooled vector, with its weights."""
    layer = LAYERS[module.kind](_read_settings(module.folder / "config.json"))
    if layer.state_dict():
        layer.load_state_dict(_tensors(module.folder))
    return layer


def _tensors(folder: Path) -> dict[str, Tensor]:
    """The weights of a module."""
    if (folder / "model.safetensors").is_file():
        return load_safetensors(folder / "model.safetensors")
    from transformers.modeling_utils import load_state_dict  # a second that few starts need

    return load_state_dict(str(folder / "pytorch_model.bin"), weights_only=True)


def describe_modules(
    pooler: str, pipeline: Pipeline, tensors: dict[str, Tensor], config: BertConfig
) -> Iterator[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """The modules that sentence-transformers needs after its Transformer: kind, config and weights of each.

    `tensors` are the encoder's, by transformers' names.
    """
    width = config.hidden_size
    mode = pooler
    if pooler in AVERAGES:
        mode = "mean"
        weights = layer_weights(pooler, config.num_hidden_layers)
        # index 0 is the embedding layer's output, as in our own poolers
        layers = {"layer_start": 0, "num_hidden_layers": config.num_hidden_layers}
        yield "WeightedLayerPooling", {"word_embedding_dimension": width, **layers}, {"layer_weights": weights}
    if pooler == "pooler":
        mode = "cls"
    modes: dict[str, Any] = {f"pooling_mode_{theirs}": ours == mode for ours, theirs in _POOLING_MODES.items()}
    if not pipeline.pools_prompt:
        modes["include_prompt"] = False
    yield "Pooling", {"word_embedding_dimension": width, **modes}, {}
    if pooler == "pooler":
        # BERT's pooling layer: sentence-transformers has it as a Dense module over the first token's vector
        dense_config = {
            "in_features": width,
            "out_features": width,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        }
        parameters = {
            "linear.weight": tensors["pooler.dense.weight"],
            "linear.bias": tensors["pooler.dense.bias"],
        }
        yield "Dense", dense_config, parameters
    layer: Any
    for layer in pipeline.layers:
        yield type(layer).__name__, layer.config, layer.state_dict()


def settings_kept_by_training(folder: Path) -> Pipeline:
    """What a trained encoder keeps of the folder that training started from: longest input and normalisation."""
    pipeline = read_pipeline(folder)
    layers = nn.Sequential(Normalize()) if pipeline.normalizes else nn.Sequential()
    return Pipeline(layers=layers, max_length=pipeline.max_length)
