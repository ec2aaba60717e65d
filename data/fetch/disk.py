"""Room on the disk, looked at before it is needed."""

import shutil
from pathlib import Path

from minbert.errors import UserError

_SPARE = 16 << 20


def room(folder: Path, wanted: int, what: str) -> None:
    """Raise `UserError` where `folder` has no room for `wanted` bytes more and some to spare."""
    free = shutil.disk_usage(folder).free
    if wanted > free - _SPARE:
        raise UserError(f"{what}: {wanted >> 20} MiB are needed in {folder}, {free >> 20} MiB are free")
