"""Fine-tuning from Python: data frames in, a run out, by the same function as `multitask_train.py`.

import pandas as pd, tasks

reviews = {"kind": "classification", "train": pd.read_csv("reviews.csv"), "text": "comment", "label": "mood"}
run = tasks.train({"reviews": reviews}, encoder="minilm", epochs=4, run_dir="runs/reviews")
run.predict("reviews", ["What a lovely shop."])
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from minbert import Encoder
from minbert.errors import UserError
from minbert.files import cache_entry, cache_folder, expand_user, key_hash, write_atomic
from minbert.modules import RECORD
from minbert.train import start
from minbert.train.settings import flag_name, parse
from multitask_train import train as train_run
from tasks import predict
from tasks.manifests import fine_tuned
from tasks.presets import PRESETS
from tasks.readers.rows import SPLITS
from tasks.settings import MultitaskSettings, resolve_defaults

Tasks = str | Mapping[str, Mapping[str, Any] | None]
"""What `--tasks` takes ("sst,reviews.toml"), or the keys of a task's TOML file by the task's name: `train`, `dev` and
`test` may be data frames. A course task, such as sst, has None in place of keys."""


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its folder, each task's dev scores as in `scores.json`, and its model."""

    folder: Path
    scores: Mapping[str, Any]
    predictor: predict.Predictor = field(repr=False)

    def predict(self, task: str, inputs: Sequence[Any]) -> pd.DataFrame:
        """A row for each text or pair of texts: `prediction`, a class or a score, and each `p(class)`.

        Classes are texts: "1" of a label 1, "true" of True.
        The rows have the index of `inputs` if it is a Series.
        Raises `UserError` for a task that the run has no head for, and for other inputs.
        """
        head = self.predictor.task(task)
        if isinstance(inputs, str):
            inputs = [inputs]
        index = inputs.index if isinstance(inputs, pd.Series) else None
        if not head.classes:
            return pd.DataFrame({"prediction": self.predictor.predict(task, inputs)}, index)
        probabilities = self.predictor.predict_proba(task, inputs)
        table = pd.DataFrame(probabilities, index, [f"p({name})" for name in head.classes])
        table.insert(0, "prediction", [head.classes[best] for best in probabilities.argmax(1)])
        return table


def train(tasks: Tasks, encoder: str | Path | Encoder = "minilm", **settings: Any) -> TrainedRun:
    """Fine-tune an encoder, by its name, folder or itself, and return the finished run.

    `settings` are the flags of `multitask_train.py`, such as `run_dir`, `preset`, `epochs`, `lr`, `resume` and
    `from_run`, whose encoder takes the place of `encoder`. Data frames, and the weights of an `Encoder`, are kept in
    the cache, where the run finds them again. Raises `UserError` as the command does.
    """
    if "weights" in settings:
        raise UserError("weights: an encoder is given as `encoder`")
    words = []
    if isinstance(tasks, str):
        words.append(tasks)
    else:
        for name, keys in tasks.items():
            words.append(name if keys is None else _task_file(name, keys))
    flags = {"tasks": ",".join(words), **settings}
    # a run to go on with has an encoder
    if not settings.get("from_run"):
        flags["weights"] = _encoder_folder(encoder) if isinstance(encoder, Encoder) else encoder
    arguments = [f"{flag_name(name)}={value}" for name, value in flags.items() if value is not None]
    parsed = parse(MultitaskSettings, PRESETS, arguments, program="multitask_train.py", default="default")
    # a run turns torch's deterministic algorithms on; the caller gets the former settings back
    debug_mode = torch.get_deterministic_debug_mode()
    fill_memory = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        with start.open_run(resolve_defaults(parsed)) as run:
            train_run(run)
    finally:
        torch.set_deterministic_debug_mode(debug_mode)
        torch.utils.deterministic.fill_uninitialized_memory = fill_memory  # type: ignore[attr-defined]
    return load(run.folder.path)


def load(folder: str | Path) -> TrainedRun:
    """A finished run of `multitask_train.py`. Raises `UserError` if `folder` is none."""
    folder = expand_user(folder)
    _, scores = fine_tuned(folder)
    return TrainedRun(folder, scores["tasks"], predict.load(folder))


def _task_file(name: str, keys: Mapping[str, Any]) -> str:
    """The TOML file of a task in the cache, with its data frames beside it; its folder is named by their content."""
    frames = {}
    values = {key: value for key, value in keys.items() if value is not None}
    for split in SPLITS:
        if isinstance(values.get(split), pd.DataFrame):
            frames[split] = values[split].to_json(
                orient="records", lines=True, force_ascii=False, double_precision=15, date_format="iso"
            )
            values[split] = f"{name}-{split}.jsonl"
        elif split in values:
            values[split] = str(expand_user(values[split]).absolute())
    lines = []
    for key, value in values.items():
        text = json.dumps(value, ensure_ascii=False, default=_plain)
        lines.append(f"{key} = {text}\n")
    content = "".join(lines)
    folder = cache_folder() / "tasks" / key_hash([name, content, *frames.values()])[:16]
    with cache_entry(folder):
        folder.mkdir(exist_ok=True)
        for split, rows in frames.items():
            write_atomic(folder / values[split], rows)
        write_atomic(folder / f"{name}.toml", content)
    return str(folder / f"{name}.toml")


def _plain(value: Any) -> Any:
    """An array as a list, one of NumPy's numbers as Python's; any other value as its text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _encoder_folder(encoder: Encoder) -> Path:
    """An encoder as a folder in the cache, named by its settings and the bits of its weights."""
    settings = [
        encoder.model.config,
        encoder.pooler,
        encoder.tokenizer.fingerprint,
        encoder.max_length,
        encoder.pipeline,
    ]
    digest = hashlib.sha256(repr(settings).encode())
    tensors = encoder.model.state_dict() | encoder.pipeline.layers.state_dict(prefix="layers.")
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.float().cpu().numpy().tobytes())
    folder = cache_folder() / "encoders" / digest.hexdigest()[:16]
    with cache_entry(folder):
        if not (folder / RECORD).is_file():
            encoder.save(folder)
    return folder
