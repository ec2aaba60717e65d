"""Convert a checkpoint of the course's code to an encoder folder.

This is the only file that calls `torch.load`, with its restricted reader: tensors, and the few harmless types that a
checkpoint of the course's code holds besides them. `.bin` files are left to transformers, which restricts them too.

python -m minbert.convert FILE --like DIR --to DIR
"""

import argparse
import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray
from torch import Tensor

from minbert import weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError, reason
from minbert.files import expand_user, require_file
from minbert.tokenizer import Tokenizer
from minbert.train import cli

# The types that the course's save_model pickles besides tensors: options, a config, and random generators' states.
_HARMLESS: list[Any] = [
    argparse.Namespace,
    types.SimpleNamespace,
    np.ndarray,
    np.dtype,
    *[type(np.dtype(name)) for name in ("uint8", "uint32", "int64", "float32", "float64")],
    multiarray._reconstruct,
    multiarray.scalar,
    # under the names that they had before NumPy 2
    (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
    (multiarray.scalar, "numpy.core.multiarray.scalar"),
]


def run(arguments: Sequence[str]) -> None:
    """The command line. Raises `UserError`."""
    parser = cli.Parser(prog="python -m minbert.convert", doc=__doc__)
    parser.add_argument("file", type=expand_user, help="a checkpoint of the course's code")
    like = "weights whose config and vocabulary it has (default: %(default)s)"
    parser.add_argument("--like", default="bert-base-uncased", help=like)
    parser.add_argument("--to", type=expand_user, help="folder to write (default: FILE without its suffix)")
    options = parser.parse_args(arguments)
    file = require_file(options.file)
    to = options.to or file.with_suffix("")
    print(f"wrote {convert_checkpoint(file, options.like, to)}")


def convert_checkpoint(source: Path, like: str, to: Path) -> Path:
    """Convert the encoder in a checkpoint of the course's code, without its heads, to the new encoder folder `to`.

    Config and vocabulary are copied from the weights `like`. Raises `UserError` if the checkpoint cannot be read or
    does not fit, and if it pickles types other than tensors, plain Python values, and the course's namespaces and
    NumPy arrays.
    """
    if to.exists():
        raise UserError(f"--to {to}: exists already")
    content = _unpickle(source)
    tensors = content.get("model", content) if isinstance(content, dict) else content
    if not _is_state_dict(tensors):
        raise UserError(f"{source}: holds no tensors by name, as the course's code saves them")
    encoder = {name: tensor for name, tensor in tensors.items() if name.startswith("bert.")}
    folder = weights.resolve(like, "--like")
    config = BertConfig.read(folder)
    with weights.shapes_only():
        model = BertModel(config)
    # a checkpoint of the encoder alone has no prefix
    state = weights.to_state_dict(encoder or tensors, model, source)
    weights.save(to, state, config, Tokenizer.load(folder), "pooler")
    return to


def _is_state_dict(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    return all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items())


def _unpickle(path: Path) -> Any:
    """The content of a pickled checkpoint, read by torch's restricted reader: only `_HARMLESS` types."""
    try:
        with torch.serialization.safe_globals(_HARMLESS):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything in torch's reader
        refused = re.search(r"GLOBAL (\S+)", str(error))
        cause = reason(error)
        if refused:
            cause = f"it holds the type {refused.group(1)}, which is refused"
        raise UserError(f"{path}: not a checkpoint that can be read: {cause}") from error


if __name__ == "__main__":
    cli.run(lambda: run(sys.argv[1:]))
