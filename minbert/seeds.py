"""Randomness by counter: every draw is a pure function of a seed, a purpose and an index."""

import hashlib
from operator import index

import numpy as np


def digest(seed: int, *counter: int | str) -> bytes:
    """32 bytes that depend on the seed and on every part of the counter, and on nothing else."""
    text = "\x1f".join([str(index(seed)), *map(_tagged, counter)])
    return hashlib.blake2b(text.encode("utf-8"), digest_size=32).digest()


def _tagged(part: int | str) -> str:
    """The number 1 and the text "1" differ; 1 of Python and 1 of NumPy do not. A fraction is a `TypeError`."""
    return f"str:{part}" if isinstance(part, str) else f"int:{index(part)}"


def numpy_generator(seed: int, *counter: int | str) -> np.random.Generator:
    """A NumPy generator for one counter, such as `(seed, "order", task, epoch)`."""
    key = np.frombuffer(digest(seed, *counter)[:16], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def torch_seed(seed: int, *counter: int | str) -> int:
    """A seed of 32 bits for torch's generators.

    The CPU generator uses only the low 32 bits of a seed, so the counter is hashed into them.
    """
    return int.from_bytes(digest(seed, *counter)[:4], "little")
