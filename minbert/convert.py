"""The command of `python -m minbert.weights`: convert weights of other forms to an encoder folder.

This is the only file that opens pickles, by torch's restricted reader: tensors, and the few harmless types that a
checkpoint of the course's code holds besides them.

python -m minbert.weights convert DIR                        pytorch_model.bin, or weights in several parts, in DIR
python -m minbert.weights convert NAME --to DIR              the same, from the hub
python -m minbert.weights convert FILE --like DIR --to DIR   a checkpoint of the course's code
"""

import argparse
import io
import pickle
import re
import sys
import types
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy._core import multiarray
from torch import Tensor

from minbert import weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError, quoted, reason
from minbert.files import expanded, write_atomic
from minbert.tokenizer import Tokenizer
from minbert.training import cli

_ANY_WEIGHTS = ("pytorch_model*.bin", "model*.safetensors")
_MOST_OPERATIONS = 2_000_000  # of a pickle; a bert-large with its optimizer has some 100,000
# The types that the course's save_model pickles besides tensors: options, a config, and random generators' states.
_HARMLESS: list[Any] = [
    *(argparse.Namespace, types.SimpleNamespace, np.ndarray, np.dtype, multiarray._reconstruct, multiarray.scalar),
    *(type(np.dtype(kind)) for kind in ("uint8", "uint32", "int64", "float32", "float64")),
    (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
    (multiarray.scalar, "numpy.core.multiarray.scalar"),
]


def run(arguments: Sequence[str]) -> None:
    """The command `convert`. Raises `UserError`."""
    parser = cli.Parser(prog="python -m minbert.weights", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="convert")
    convert = commands.add_parser("convert", help="pickled weights, or weights in several parts, to an encoder folder")
    convert.add_argument("source", help="a folder of weights, a hub name, or a checkpoint file of the course's code")
    like = "weights whose config and vocabulary a file takes (default: %(default)s)"
    convert.add_argument("--like", default="bert-base-uncased", help=like)
    convert.add_argument("--to", type=Path, help="folder to write (default: the folder itself, or beside the file)")
    given = parser.parse_args(arguments)
    source = expanded(given.source)
    if source.is_file():
        written = convert_checkpoint(source, given.like, given.to or source.with_suffix(""))
    elif source.is_dir() or given.to:
        written = convert_weights(given.source, given.to or source)
    else:
        raise UserError(f"{given.source}: no such file or folder; for a hub name, --to is required")
    print(f"wrote {written}")


def main() -> None:
    """The command line of `python -m minbert.weights`."""
    cli.run(lambda: run(sys.argv[1:]))


def convert_weights(source: str, to: Path) -> Path:
    """Convert pickled weights, or weights in several parts, in a folder or on the hub. Returns the path written.

    `to` is a new encoder folder, or the source folder, which then gets a `model.safetensors`. Raises `UserError` if
    the weights are missing or do not fit their config exactly.
    """
    folder = weights.find(source, files=(*weights.DESCRIPTION, *_ANY_WEIGHTS))
    config = BertConfig.read(folder)
    state = _fit(_parts(folder), config, folder)
    if to.resolve() != folder.resolve():
        return _write(state, config, Tokenizer.load(folder), to)
    tensors = {weights.their_name(name): tensor.contiguous() for name, tensor in state.items()}
    write_atomic(folder / "model.safetensors", safetensors.torch.save(tensors, metadata={"format": "pt"}))
    return folder / "model.safetensors"


def convert_checkpoint(source: Path, like: str, to: Path) -> Path:
    """Convert the encoder in a checkpoint of the course's code, without its heads, to the new encoder folder `to`.

    Config and vocabulary are copied from the weights `like`. Raises `UserError` if the checkpoint cannot be read or
    does not fit, and if it pickles types other than tensors, plain Python values, and the course's namespaces and
    NumPy arrays.
    """
    content = _unpickle(source)
    tensors = content.get("model", content)
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise UserError(f"{source}: holds no dict of tensors by their names")
    tensors = {name: tensor for name, tensor in tensors.items() if name.startswith("bert.")} or tensors
    folder = weights.resolve(like, "--like")
    config = BertConfig.read(folder)
    return _write(_fit(tensors, config, source), config, Tokenizer.load(folder), to)


def _write(state: dict[str, Tensor], config: BertConfig, tokenizer: Tokenizer, to: Path) -> Path:
    if to.exists():
        raise UserError(f"--to {to}: exists already")
    weights.save(to, state, config, tokenizer, "cls")
    return to


def _fit(tensors: dict[str, Tensor], config: BertConfig, source: Path) -> dict[str, Tensor]:
    with weights.shapes_only():
        model = BertModel(config)
    return weights.fit(tensors, model, source)


def _parts(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's safetensors files, else of its pickles."""
    tensors: dict[str, Tensor] = {}
    parts = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    for part in parts:
        found = weights.load_safetensors(part) if part.suffix == ".safetensors" else _unpickle(part)
        if twice := tensors.keys() & found.keys():
            raise UserError(f"{part}: {quoted(min(twice))} is in another part too")
        tensors |= found
    if not parts:
        raise UserError(f"{folder}: neither model*.safetensors nor pytorch_model*.bin")
    return tensors


class _Pickle(io.FileIO):
    """A file with a limit on its number of reads: torch's reader reads once or more for each operation of a pickle.

    A small pickle of endless operations would otherwise keep it busy for hours. In a zip archive torch reads the
    pickle as a whole, so its bytes, at least as many as its operations, count as reads.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._left = _MOST_OPERATIONS
        if zipfile.is_zipfile(self):
            with zipfile.ZipFile(self) as archive:
                self._left -= sum(one.file_size for one in archive.infolist() if one.filename.endswith(".pkl"))
        self.seek(0)

    def read(self, size: int | None = -1) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"it has more than {_MOST_OPERATIONS} operations")
        return super().read(size)


def _unpickle(path: Path) -> dict[str, Any]:
    """The content of a pickled checkpoint, read by torch's restricted reader: only `_HARMLESS` types."""
    try:
        with _Pickle(path) as file, torch.serialization.safe_globals(_HARMLESS):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything in torch's reader
        raise UserError(f"{path}: not a checkpoint that can be read{_why(error)}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise UserError(f"{path}: holds no dict of tensors by their names")
    return content


def _why(error: Exception) -> str:
    """A reader's error in one line: the refused type, if any. torch's advice on unpickling is left out."""
    refused = re.search(r"GLOBAL (\S+)", str(error))
    if refused:
        return f": it holds the type {refused.group(1)}, which is refused"
    if isinstance(error, pickle.UnpicklingError) or not str(error).strip():
        return ""
    return f" ({reason(error)})"


if __name__ == "__main__":
    main()
