"""Checkpoints: safetensors and JSON with hashes, written atomically and verified when loaded.

A finished run needs only the loop state of its newest checkpoint and the model of the kept one, which may be older.
`strip` deletes the rest.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from minbert import weights
from minbert.errors import UserError
from minbert.files import new_folder, read_json, sha256_of, write_json
from minbert.optimizer import AdamW

_NAME = re.compile(r"step-(\d{8})")
_MODEL, _OPTIMIZER = "model.safetensors", "optimizer.safetensors"


def folder_of(parent: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return parent / f"step-{step:08d}"


def steps(parent: Path) -> list[int]:
    """Steps of the complete checkpoints in a folder, ascending."""
    found = (_NAME.fullmatch(path.name) for path in parent.iterdir()) if parent.is_dir() else ()
    return sorted(int(match.group(1)) for match in found if match)


def save(parent: Path, step: int, model: nn.Module, optimizer: AdamW, state: dict[str, Any]) -> None:
    """Write the checkpoint of `step`: the model, the optimizer's state by parameter name, and the loop's state."""
    moments, counts = _optimizer_tensors(model, optimizer)
    with new_folder(folder_of(parent, step)) as beside:
        weights.write(beside / _MODEL, _tensors(model))
        weights.write(beside / _OPTIMIZER, moments)
        content = {"step": step, "state": state, "counts": counts}
        write_json(beside / "state.json", content | {"sha256": _hashes(beside, content, (_MODEL, _OPTIMIZER))})


def load(parent: Path, step: int, model: nn.Module, optimizer: AdamW | None = None) -> dict[str, Any]:
    """Load a checkpoint into `model`, and into `optimizer` if given; returns the loop's state.

    Raises `UserError` if the hash of a file that is read differs from the recorded one.
    """
    folder = folder_of(parent, step)
    content = _verified(folder, _MODEL, *([] if optimizer is None else [_OPTIMIZER]))
    model.load_state_dict(safetensors.torch.load_file(folder / _MODEL))
    if optimizer is not None:
        _restore(model, optimizer, safetensors.torch.load_file(folder / _OPTIMIZER), content["counts"])
    state: dict[str, Any] = content["state"]
    return state


def state_of(parent: Path, step: int) -> dict[str, Any]:
    """The loop's state in a checkpoint. Raises `UserError` if its hash differs from the recorded one."""
    state: dict[str, Any] = _verified(folder_of(parent, step))["state"]
    return state


def check(parent: Path) -> None:
    """Raises `UserError`, with a remedy, if a run cannot resume from the newest checkpoint in a folder.

    For a finished run, only the files that it still needs are checked.
    """
    *older, newest = steps(parent) or [-1]
    if newest < 0:
        return
    folder = folder_of(parent, newest)
    try:
        state = state_of(parent, newest)
        alone = [_MODEL] if state["kept_step"] == newest else []
        _verified(folder, *(alone if state["finished"] else [_MODEL, _OPTIMIZER]))
    except UserError as error:
        raise UserError(f"{error}; delete {_way_out(parent, older, folder)}") from error
    if state["finished"] and not alone:
        _verified(folder_of(parent, state["kept_step"]), _MODEL)


def _way_out(parent: Path, older: list[int], damaged: Path) -> str:
    """What to delete if a checkpoint is damaged: that one if an older one has the optimizer's state, else all."""
    whole = [step for step in older if (folder_of(parent, step) / _OPTIMIZER).is_file()]
    if whole:
        return f"{damaged} to go back to step {whole[-1]}"
    return f"{parent if older else damaged} to start over"


def _verified(folder: Path, *names: str) -> dict[str, Any]:
    """The content of `state.json` without its hashes.

    Raises `UserError` if its hash, or that of one of the files `names`, differs from the recorded one.
    """
    path = folder / "state.json"
    if not path.is_file():
        raise UserError(f"{path}: damaged (missing)")
    try:
        content = read_json(path)
    except UserError as error:
        raise UserError(f"{path}: damaged (not a JSON file)") from error
    recorded = content.pop("sha256", None) if isinstance(content, dict) else None
    for name, found in _hashes(folder, content, names).items():
        if not isinstance(recorded, dict) or recorded.get(name) != found:
            raise UserError(f"{folder / name}: damaged (its hash is not the recorded one)")
    return dict(content)


def _hashes(folder: Path, content: Any, names: Iterable[str]) -> dict[str, str]:
    """Hex SHA-256 of `content`, under the name `state.json`, and of the files `names`; "" for a missing file."""
    files = {name: folder / name for name in names}
    state = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return {"state.json": state} | {name: sha256_of(path) if path.is_file() else "" for name, path in files.items()}


def rotate(parent: Path, keep: set[int]) -> None:
    """Delete every checkpoint but those of the steps in `keep`, and the partial checkpoints of a killed run."""
    for path in parent.glob(".step-*"):
        shutil.rmtree(path)
    for step in steps(parent):
        if step not in keep:
            shutil.rmtree(folder_of(parent, step))


def strip(parent: Path, kept: int) -> None:
    """Delete what a finished run no longer needs: the optimizer's state, and every model but that of step `kept`.

    None of the deleted files is needed to resume a finished run, so a kill in between does no harm.
    """
    for step in steps(parent):
        folder = folder_of(parent, step)
        (folder / _OPTIMIZER).unlink(missing_ok=True)
        if step != kept:
            (folder / _MODEL).unlink(missing_ok=True)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}


def _optimizer_tensors(model: nn.Module, optimizer: AdamW) -> tuple[dict[str, Tensor], dict[str, int]]:
    tensors, counts = {}, {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter)
        if state:
            counts[name] = int(state["step"])
            for key in ("exp_avg", "exp_avg_sq"):
                tensors[f"{key}/{name}"] = state[key].detach().cpu().contiguous()
    return tensors, counts


def _restore(model: nn.Module, optimizer: AdamW, tensors: dict[str, Tensor], counts: dict[str, int]) -> None:
    optimizer.state.clear()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in counts:
                moments = {key: tensors[f"{key}/{name}"].to(parameter.device) for key in ("exp_avg", "exp_avg_sq")}
                optimizer.state[parameter] = {"step": counts[name], **moments}
