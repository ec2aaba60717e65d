"""Turn a pickled checkpoint into an encoder folder: the one place that unpickles, and only tensors.

python -m minbert.weights convert DIR                        pytorch_model.bin beside its config.json and vocabulary
python -m minbert.weights convert FILE --like DIR --to DIR   a checkpoint of the course's code
"""

import pickle
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from minbert import weights
from minbert.config import BertConfig
from minbert.errors import UserError
from minbert.files import present, write_atomic
from minbert.tokenizer import Tokenizer
from minbert.training import cli


def run(arguments: Sequence[str]) -> int:
    """The `convert` command: exit code 0, or 2 with one sentence."""
    parser = cli.Parser(prog="python -m minbert.weights", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="convert")
    convert = commands.add_parser("convert", help="a pickled checkpoint to an encoder folder")
    convert.add_argument("source", type=Path, help="folder with pytorch_model.bin, or a checkpoint file")
    like = "weights whose config and vocabulary a file takes (default: %(default)s)"
    convert.add_argument("--like", default="bert-base-uncased", help=like)
    convert.add_argument("--to", type=Path, help="folder to write (default: the folder itself, or FILE without suffix)")
    try:
        options = parser.parse_args(arguments)
        if options.source.is_dir():
            written = convert_folder(options.source, options.to or options.source)
        else:
            written = convert_checkpoint(options.source, options.like, options.to or options.source.with_suffix(""))
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    except OSError as error:
        parser.exit(2, f"error: {error.filename}: {error.strerror}\n")
    print(f"wrote {written}")
    return 0


def convert_folder(folder: Path, to: Path) -> Path:
    """`pytorch_model.bin` of a weights folder to `model.safetensors`, in transformers' names."""
    source = folder / "pytorch_model.bin"
    if not source.is_file():
        raise UserError(f"{folder}: no pytorch_model.bin")
    if to.resolve() == folder.resolve():
        renamed = _encoder_tensors(_unpickle(source), BertConfig.read(folder), source)
        content = safetensors.torch.save(renamed, metadata={"format": "pt"})
        write_atomic(to / "model.safetensors", content)
        return to / "model.safetensors"
    return _write(_unpickle(source), BertConfig.read(folder), Tokenizer.load(folder), source, to)


def convert_checkpoint(source: Path, like: str, to: Path) -> Path:
    """The encoder inside a checkpoint of the course's code, whose heads are left out, as an encoder folder."""
    content = _unpickle(present(source))
    tensors = _named(content.get("model", content), source, " under 'model'")
    encoder = {key: tensor for key, tensor in tensors.items() if key.startswith("bert.")} or tensors
    folder = weights.resolve(like, "--like")
    return _write(encoder, BertConfig.read(folder), Tokenizer.load(folder), source, to)


def _write(tensors: dict[str, Tensor], config: BertConfig, tokenizer: Tokenizer, source: Path, to: Path) -> Path:
    if to.exists():
        raise UserError(f"--to {to}: exists already")
    from minbert.bert import BertModel

    state = weights.fit(tensors, BertModel(config), source)
    weights.save(to, state, config, tokenizer, "cls")
    return to


def _encoder_tensors(tensors: dict[str, Tensor], config: BertConfig, source: Path) -> dict[str, Tensor]:
    from minbert.bert import BertModel

    state = weights.fit(tensors, BertModel(config), source)
    return {weights.their_name(name): tensor.contiguous() for name, tensor in state.items()}


def _unpickle(path: Path) -> dict[str, Any]:
    """Load tensors only. Beside them, the plain types that a course checkpoint holds are allowed by name."""
    with open(path, "rb") as file, torch.serialization.safe_globals(_harmless_types()):
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file may raise anything in torch's reader
            refused = re.search(r"GLOBAL (\S+)", str(error))
            plain = f"it is not a checkpoint of torch{_why(error)}"
            reason = f"it holds the type {refused.group(1)}" if refused else plain
            raise UserError(f"{path}: refused, because {reason}") from error
    return _named(content, path)


def _named(content: Any, source: Path, where: str = "") -> dict[str, Any]:
    """`content`, which is a dict by names; `UserError` where it is not."""
    if not isinstance(content, dict):
        raise UserError(f"{source}: holds a {type(content).__name__}{where}, not a dict of tensors")
    for key in content:
        if not isinstance(key, str):
            raise UserError(f"{source}: holds {key!r}{where}, which is no name of a tensor")
    return content


def _why(error: Exception) -> str:
    """What torch says of a file it cannot read; of what it won't unpickle it says pages."""
    if isinstance(error, pickle.UnpicklingError) or not str(error).strip():
        return ""
    return f" ({str(error).strip().splitlines()[0]})"


def _harmless_types() -> list[Any]:
    import argparse as arguments

    import numpy as np
    from numpy._core import multiarray

    scalars = [type(np.dtype(kind)) for kind in ("uint8", "uint32", "int64", "float32", "float64")]
    return [
        arguments.Namespace,
        types.SimpleNamespace,
        np.ndarray,
        np.dtype,
        multiarray._reconstruct,
        (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
        multiarray.scalar,
        (multiarray.scalar, "numpy.core.multiarray.scalar"),
        *scalars,
    ]
