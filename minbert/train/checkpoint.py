"""Checkpoints: safetensors and JSON with hashes, written atomically and verified when loaded.

A finished run needs only the loop state of its newest checkpoint and the model of the kept one, which may be older.
`strip` deletes the rest.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from minbert import weights
from minbert.errors import UserError
from minbert.files import new_folder, read_json, sha256_of, write_json
from minbert.optimizer import AdamW

_NAME = re.compile(r"step-(\d{8})")
_MODEL, _OPTIMIZER = "model.safetensors", "optimizer.safetensors"
_TENSORS = ("exp_avg", "exp_avg_sq", "mean")  # of the optimizer's state of a parameter


def folder_of(parent: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return parent / f"step-{step:08d}"


def steps(parent: Path) -> list[int]:
    """Steps of the complete checkpoints in a folder, ascending."""
    matches = (_NAME.fullmatch(path.name) for path in parent.iterdir()) if parent.is_dir() else ()
    return sorted(int(match.group(1)) for match in matches if match)


def save(parent: Path, step: int, model: nn.Module, optimizer: AdamW, state: dict[str, Any]) -> None:
    """Write the checkpoint of `step`: the model, the optimizer's state by parameter name, and the loop's state."""
    content = {"step": step, "state": state, "counts": _counts(model, optimizer)}
    with new_folder(folder_of(parent, step)) as folder:
        weights.write(folder / _MODEL, model.state_dict())
        weights.write(folder / _OPTIMIZER, dict(_tensors(model, optimizer)))
        hashes = {name: sha256_of(folder / name) for name in (_MODEL, _OPTIMIZER)}
        write_json(folder / "state.json", content | {"sha256": {"state.json": _digest(content), **hashes}})


def load(parent: Path, step: int, model: nn.Module, optimizer: AdamW | None = None) -> dict[str, Any]:
    """Load a checkpoint into `model`, and into `optimizer` if given; returns the loop's state.

    Raises `UserError` if the hash of a file that is read differs from the recorded one.
    """
    folder = folder_of(parent, step)
    content = _verified(folder, _MODEL, *([] if optimizer is None else [_OPTIMIZER]))
    model.load_state_dict(weights.load_safetensors(folder / _MODEL))
    if optimizer is not None:
        tensors, counts = weights.load_safetensors(folder / _OPTIMIZER), content["counts"]
        optimizer.state.clear()
        for name, parameter in model.named_parameters():
            if name in counts:
                moments = {key: tensors[f"{key}/{name}"] for key in _TENSORS if f"{key}/{name}" in tensors}
                on_device = {key: x.to(parameter.device) for key, x in moments.items()}
                optimizer.state[parameter] = {"step": counts[name], **on_device}
    return content["state"]


def state_of(parent: Path, step: int) -> dict[str, Any]:
    """The loop's state in a checkpoint. Raises `UserError` if its hash differs from the recorded one."""
    return _verified(folder_of(parent, step))["state"]


def set_damaged_aside(parent: Path) -> list[str]:
    """Rename every damaged checkpoint that a resumed run would read: the newest, and the one whose model is kept.

    Returns a message for each; the last one says from which step the run goes on. The kept checkpoint may be missing
    afterwards, which `loop._restore` handles.
    """
    messages: list[str] = []

    def sound(step: int, *names: str) -> bool:
        try:
            _verified(folder_of(parent, step), *names)
        except UserError as error:
            messages.append(_set_aside(folder_of(parent, step), error))
            return False
        return True

    while left := steps(parent):
        newest = left[-1]
        if not sound(newest):
            continue
        state = state_of(parent, newest)
        kept_is_sound = state["kept_step"] != newest and sound(state["kept_step"], _MODEL)
        needed = [] if state["finished"] else [_OPTIMIZER]
        if sound(newest, *needed, *([] if kept_is_sound and state["finished"] else [_MODEL])):
            break
    if messages:
        outcome = f"the run goes on from step {left[-1]:,}" if left else "none is left, so the run starts again"
        messages[-1] += f"; {outcome}"
    return messages


def _set_aside(folder: Path, damage: UserError) -> str:
    """Rename a checkpoint, if it is there, so that it is never used again."""
    if not folder.exists():
        return str(damage)
    names = (folder.with_name(f"damaged-{folder.name}{f'-{number}' * (number > 1)}") for number in count(1))
    target = next(path for path in names if not path.exists())
    folder.rename(target)
    return f"{damage}; set aside as {target.name}"


def _verified(folder: Path, *names: str) -> dict[str, Any]:
    """The content of `state.json` without its hashes.

    Raises `UserError` if its hash, or that of one of the files `names`, differs from the recorded one.
    """
    try:
        content = read_json(folder / "state.json")
        recorded = content.pop("sha256")
        wrong = [] if recorded["state.json"] == _digest(content) else ["state.json"]
        wrong += [name for name in names if sha256_of(folder / name) != recorded[name]]
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise UserError(f"{error.filename}: damaged (missing)") from error
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{folder / 'state.json'}: damaged (not the record of a checkpoint)") from error
    if wrong:
        raise UserError(f"{folder / wrong[0]}: damaged (its hash is not the recorded one)")
    return dict(content)


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def rotate(parent: Path, keep: set[int]) -> None:
    """Delete every checkpoint but those of the steps in `keep`."""
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


def not_finite(model: nn.Module, optimizer: AdamW) -> str | None:
    """The name of the first tensor to be saved that is not finite, or None. One device sync."""
    named = [(name, x) for name, x in (*model.state_dict().items(), *_tensors(model, optimizer)) if x.numel()]
    finite = torch.stack([torch.stack(x.aminmax()).isfinite().all() for _, x in named]).tolist()
    return next((name for (name, _), sound in zip(named, finite, strict=True) if not sound), None)


def _counts(model: nn.Module, optimizer: AdamW) -> dict[str, int]:
    """The number of updates of each parameter that has had one."""
    states = ((name, optimizer.state.get(parameter)) for name, parameter in model.named_parameters())
    return {name: int(state["step"]) for name, state in states if state}


def _tensors(model: nn.Module, optimizer: AdamW) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        yield from ((f"{key}/{name}", state[key]) for key in _TENSORS if key in state)
