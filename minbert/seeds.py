"""Counter-based randomness: every random number is a pure function of a seed, a purpose and an index."""

import hashlib
from operator import index

import numpy as np


def digest(seed: int, *counter: int | str) -> bytes:
    """A 32-byte hash of the seed and of every part of the counter, with its type, so that 1 and "1" differ.

    NumPy integers count as Python's. Raises `TypeError` for a float.
    """
    parts = [str(index(seed))]
    for part in counter:
        parts.append(f"str:{part}" if isinstance(part, str) else f"int:{index(part)}")
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8"), digest_size=32).digest()


def numpy_generator(seed: int, *counter: int | str) -> np.random.Generator:
    """A NumPy generator seeded by a counter, such as `(seed, "order", task, epoch)`."""
    key = np.frombuffer(digest(seed, *counter)[:16], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def torch_seed(seed: int, *counter: int | str) -> int:
    """A 32-bit seed for torch's generators, hashed from a counter.

    32 bits, because the CPU generator ignores the higher bits of a seed.
    """
    return int.from_bytes(digest(seed, *counter)[:4], "little")
