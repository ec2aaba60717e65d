"""Guards: the command that stage one names for stage two continues from its encoder, on its data.

The run around it: tests/e2e/test_pretrain_cbcl.py.

python -m pytest --import-mode=importlib tests/tasks/contrastive/test_training.py
"""

import sys
from pathlib import Path

import pytest

from tasks.contrastive.training import next_command


@pytest.mark.parametrize(
    ("encoder", "data", "command"),
    [
        ("runs/cbcl/encoder", "", "python multitask_train.py"),
        ("runs/a/encoder", "", "python multitask_train.py --encoder runs/a/encoder"),
        ("a b/encoder", "my data", "python multitask_train.py --encoder 'a b/encoder' --data 'my data'"),
    ],
)
def test_next_command_names_encoder_and_data(
    encoder: str, data: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["pretrain_cbcl.py"])
    assert next_command(Path(encoder), data) == command
