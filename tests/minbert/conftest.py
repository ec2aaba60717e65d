"""What the tests of weights from elsewhere share: a comparison of two folders, and a pickle that would do harm."""

from pathlib import Path
from typing import Any

import torch

from minbert import BertModel


def same(folder: Path, other: Path) -> bool:
    """Whether two folders hold the same weights."""
    tensors = BertModel.from_pretrained(folder).state_dict()
    expected = BertModel.from_pretrained(other).state_dict()
    return all(torch.equal(tensor, expected[name]) for name, tensor in tensors.items())


def flip_last_bit(content: bytes) -> bytes:
    """Damage to the content of a file."""
    return content[:-1] + bytes([content[-1] ^ 1])


def cut(content: bytes) -> bytes:
    """The content of a file that was not written to its end."""
    return content[:-3]


class Harmful:
    """Unpickling it would create a file."""

    path = ""

    def __reduce__(self) -> Any:
        return open, (self.path, "w")
