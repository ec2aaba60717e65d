"""A function that writes a small file, and one that returns the error message of a reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minbert import UserError


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def run(content: str | bytes, name: str = "file.csv", encoding: str = "utf-8") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return run


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[..., str]:
    """The one-line message of a reader that must raise `UserError`, without the folder."""

    def run(read: Callable[..., Any], *arguments: Any) -> str:
        with pytest.raises(UserError) as caught:
            read(*arguments)
        message = str(caught.value)
        assert "\n" not in message
        return message.replace(f"{tmp_path}/", "")

    return run
