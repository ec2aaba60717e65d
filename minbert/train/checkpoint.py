"""Checkpoints: safetensors and JSON with hashes, written atomically and verified when a run is resumed.

A finished run needs only the loop state of its newest checkpoint and the model of the kept one, which may be older.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minbert.files import load_safetensors, new_folder, read_json, save_safetensors, sha256_of, write_json
from minbert.optimizer import AdamW

_NAME = re.compile(r"step-(\d{8})")
_MODEL = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
_STATE = "state.json"
_TENSORS = ("exp_avg", "exp_avg_sq", "mean")  # of the optimizer's state of a parameter


def folder_of(parent: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return parent / f"step-{step:08d}"


def steps(parent: Path) -> list[int]:
    """Steps of the checkpoints in a folder, ascending."""
    matches = [_NAME.fullmatch(path.name) for path in parent.glob("*")]
    return sorted(int(match[1]) for match in matches if match)


def save(parent: Path, step: int, model: nn.Module, optimizer: AdamW, state: dict[str, Any]) -> None:
    """Write the checkpoint of `step`: the model, the optimizer's state by parameter name, and the loop's state."""
    counts = {}  # of the updates of each parameter with a state
    for name, parameter in model.named_parameters():
        if parameter_state := optimizer.state.get(parameter):
            counts[name] = int(parameter_state["step"])
    with new_folder(folder_of(parent, step)) as folder:
        save_safetensors(folder / _MODEL, model.state_dict())
        save_safetensors(folder / _OPTIMIZER, _optimizer_tensors(model, optimizer))
        hashes = {name: sha256_of(folder / name) for name in (_MODEL, _OPTIMIZER)}
        _write_state(folder, {"step": step, "state": state, "counts": counts}, hashes)


def load(parent: Path, step: int, model: nn.Module, optimizer: AdamW | None = None) -> None:
    """Load a checkpoint into `model`, and into `optimizer` if given. Hashes are not compared, see `newest_whole`."""
    folder = folder_of(parent, step)
    model.load_state_dict(load_safetensors(folder / _MODEL))
    if optimizer is None:
        return
    tensors = load_safetensors(folder / _OPTIMIZER)
    counts = read_json(folder / _STATE)["counts"]
    optimizer.state.clear()
    for name, parameter in model.named_parameters():
        if name in counts:
            state: dict[str, Any] = {"step": counts[name]}
            for key in _TENSORS:
                if f"{key}/{name}" in tensors:
                    # a copy: network file systems cannot delete the folder of a file that is still mapped
                    state[key] = tensors[f"{key}/{name}"].to(parameter.device, copy=True)
            optimizer.state[parameter] = state


def state_of(parent: Path, step: int) -> dict[str, Any]:
    """The loop's state in a checkpoint."""
    return read_json(folder_of(parent, step) / _STATE)["state"]


def newest_whole(parent: Path) -> tuple[int | None, list[str]]:
    """The step of the newest whole checkpoint, None if there is none; and what is wrong with newer ones.

    A checkpoint is whole if the files that a resumed run reads have the recorded hashes: its own, and the model of the
    step that it keeps. The model that an older checkpoint keeps may be missing: if the evaluation after that
    checkpoint was the best so far, the next save deleted the model kept until then. A resumed run does not need it, as
    it begins with that evaluation, which is the best again.
    """
    damages: list[str] = []
    for step in reversed(steps(parent)):
        damaged = _damaged_file(parent, step)
        if damaged is None:
            return step, damages
        damages.append(f"{damaged} is damaged")
    return None, damages


def _damaged_file(parent: Path, step: int) -> Path | None:
    """The damaged or missing file that a run resumed at `step` would read, or None."""
    folder = folder_of(parent, step)
    if not _is_whole(folder / _STATE):
        return folder / _STATE
    state = state_of(parent, step)
    kept = folder_of(parent, state["kept_step"])
    needed = []
    if kept.is_dir() or step == steps(parent)[-1]:
        needed += [kept / _STATE, kept / _MODEL]
    # a finished run trains no more
    if not state["finished"]:
        needed += [folder / _MODEL, folder / _OPTIMIZER]
    for path in needed:
        if not _is_whole(path):
            return path
    return None


def _is_whole(path: Path) -> bool:
    """Whether a checkpoint's file has the hash that the `state.json` beside it records."""
    try:
        content = read_json(path.parent / _STATE)
        recorded = content.pop("sha256")[path.name]
        # state.json holds the hashes, so its own is that of its other content
        actual = _digest(content) if path.name == _STATE else sha256_of(path)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return actual == recorded


def _write_state(folder: Path, content: dict[str, Any], hashes: dict[str, str]) -> None:
    write_json(folder / _STATE, content | {"sha256": hashes | {_STATE: _digest(content)}})


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def rotate(parent: Path, keep: set[int]) -> None:
    """Delete every checkpoint but those of the steps in `keep`."""
    for step in steps(parent):
        if step not in keep:
            shutil.rmtree(folder_of(parent, step))


def finish(parent: Path, state: dict[str, Any]) -> None:
    """Save the loop's state after the last evaluation in the newest checkpoint, and delete what is not needed any more.

    The model of `kept_step` stays. A kill in between does no harm, as a resumed run does the same.
    """
    newest = folder_of(parent, state["step"])
    content = read_json(newest / _STATE)
    hashes = content.pop("sha256")
    _write_state(newest, content | {"state": state}, hashes)
    rotate(parent, {state["step"], state["kept_step"]})
    for step in steps(parent):
        folder = folder_of(parent, step)
        (folder / _OPTIMIZER).unlink(missing_ok=True)
        if step != state["kept_step"]:
            (folder / _MODEL).unlink(missing_ok=True)


def not_finite(model: nn.Module, optimizer: AdamW) -> str | None:
    """The name of the first tensor to be saved that is not finite, or None. One device sync."""
    tensors = {**model.state_dict(), **_optimizer_tensors(model, optimizer)}
    finite = []
    for tensor in tensors.values():
        # both are NaN if an element is; a mask of all elements would need memory of their number
        finite.append(torch.stack(tensor.aminmax()).isfinite().all())
    for name, is_finite in zip(tensors, torch.stack(finite).tolist(), strict=True):
        if not is_finite:
            return name
    return None


def _optimizer_tensors(model: nn.Module, optimizer: AdamW) -> dict[str, Tensor]:
    """The optimizer's state by kind and name of the parameter, such as `exp_avg/bert.weight`."""
    tensors = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        for key in _TENSORS:
            if key in state:
                tensors[f"{key}/{name}"] = state[key]
    return tensors
