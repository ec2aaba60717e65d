"""Write the vectors of a file of texts, one a line, as a NumPy file.

python -m minbert.encode TEXTS --encoder minilm --out vectors.npy
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

from minbert.encode import Encoder
from minbert.errors import UserError
from minbert.files import expanded, present, replacing
from minbert.training import cli

BLOCK = 16_384  # lines that are tokenised, sorted by length and encoded together


def run(arguments: Sequence[str]) -> None:
    """The command. Raises `UserError`."""
    parser = cli.Parser(prog="python -m minbert.encode", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("texts", type=expanded, help="a UTF-8 file with one text a line")
    parser.add_argument("--encoder", required=True, help="an encoder's folder, a run's folder, minilm or a hub name")
    parser.add_argument("--out", type=expanded, required=True, metavar="FILE", help="the file to write, float32 [N, D]")
    parser.add_argument("--pooler", help="(default: the one that the folder names, else cls)")
    parser.add_argument("--precision", default="auto", help="auto, fp32, bf16 or fp16 (default: auto)")
    options = parser.parse_args(arguments)
    cli.demand_writable(options.out)
    encoder = Encoder.load(options.encoder, pooler=options.pooler, precision=options.precision)
    rows, truncated = encode_file(encoder, present(options.texts), options.out)
    note = f" ({truncated:,} texts of more than {encoder.max_length} tokens were truncated)" if truncated else ""
    cli.say(f"{options.out}: {rows:,} vectors{note}")


def encode_file(encoder: Encoder, source: Path, out: Path) -> tuple[int, int]:
    """Write the vector of each line of `source` to the NumPy file `out`; returns the numbers of lines and truncations.

    Reads lines in blocks and writes vectors to a memory map, so memory does not grow with the file. Replaces `out`
    only once it is complete. Raises `UserError` for a file without lines, and for a line that is not UTF-8.
    """
    with open(source, "rb") as file:
        count = sum(1 for _ in file)
    if not count:
        raise UserError(f"{source}: no line")
    shape, start, truncated = (count, encoder.model.config.hidden_size), 0, 0
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary, tqdm(total=count, desc="encoding", unit="text", disable=None) as bar:
        result = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
        texts = lines(source)
        while block := list(islice(texts, BLOCK)):
            rows, cut = encoder.rows(block)
            result[start : start + len(rows)] = encoder.encode_ids(rows)
            start, truncated = start + len(rows), truncated + cut
            bar.update(len(rows))
        result.flush()
    return count, truncated


def lines(source: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends. Raises `UserError`, with the number of the line."""
    with open(source, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(f"{source}: line {number}: not UTF-8: {error.reason}") from error


if __name__ == "__main__":
    cli.run(lambda: run(sys.argv[1:]))
