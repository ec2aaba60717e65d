"""What the tests of weights from elsewhere share: a comparison of two folders, and a pickle that would do harm."""

from pathlib import Path
from typing import Any

import torch

from minbert import BertModel


def same(folder: Path, other: Path) -> bool:
    """Whether two folders hold the same weights."""
    expected = BertModel.from_pretrained(other).state_dict()
    return all(torch.equal(x, expected[name]) for name, x in BertModel.from_pretrained(folder).state_dict().items())


class Harmful:
    """Unpickling it would create a file."""

    path = ""

    def __reduce__(self) -> Any:
        return open, (self.path, "w")
