"""What the suites share: flags, encoders with their poolers, the vectors of texts, scores and their differences, files.

Axes: N texts, B sentences of a batch, T its tokens, D hidden, R bootstrap resamples.
"""

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from minbert import pooling, weights
from minbert.bert import BertModel
from minbert.encoder import Encoder, pool
from minbert.errors import one_of
from minbert.fast import packed_weights
from minbert.files import distinct_names, write_atomic, write_json
from minbert.precision import autocast
from minbert.ragged import Ragged
from minbert.train.cli import Parser, require_writable, say
from minbert.train.settings import require_range
from tasks.contrastive.evaluation import unit
from tasks.intervals import Interval, interval, verdict
from tasks.manifests import MINILM_DATA, data_entries, files_of, manifests_behind, starts_from_minilm
from tasks.tables import Table, interval_texts, numbers, records

AVERAGE = "avg."
COLUMNS = ["encoder", "pooler"]
"""The columns of a frame of scores that name a `NamedEncoder`."""

Pool = Callable[[BertModel, Sequence[Tensor], Ragged], Tensor]
"""Hidden states (the embedding layer's and every layer's, [T, D]) to one vector a sentence: [B, D]."""
K = TypeVar("K")


# Flags


def parser(suite: str, description: str) -> argparse.ArgumentParser:
    """The flags of every suite; its results are `SUITE.json` and `SUITE.md`."""
    flags = Parser(prog=f"python -m tasks.benchmarks.{suite}", description=description)
    flags.set_defaults(module=suite, suite=suite.removesuffix("_suite"))
    flags.add_argument(
        "--encoder",
        nargs="+",
        required=True,
        metavar="DIR|NAME",
        help="a folder, a run, minilm or a hub name; others are compared with the first, by paired intervals",
    )
    flags.add_argument(
        "--pooler",
        default="",
        metavar="NAMES",
        help="mean, cls and so on, several with commas, or `every` (default: each encoder's own)",
    )
    flags.add_argument(
        "--data",
        default="",
        metavar="DIR",
        help="the data folder, or one in SentEval's layout (default: $DATA_DIR or data/)",
    )
    flags.add_argument("--out", type=Path, metavar="DIR", help="results folder (default: runs/benchmarks/ENCODER)")
    flags.add_argument(
        "--precision",
        default="fp32",
        choices=("fp32", "bf16", "fp16", "auto"),
        help="number format (default: fp32)",
    )
    flags.add_argument("--device", default=None, help="where the encoder runs (default: a GPU if there is one)")
    flags.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random numbers (default: 0)")
    flags.add_argument(
        "--resamples",
        type=int,
        default=1000,
        metavar="N",
        help="bootstrap resamples of an interval, 0 for none (default: 1000)",
    )
    return flags


def parse(flags: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The flags, with the shared ones checked; `command` is the whole command line. None reads sys.argv."""
    words = sys.argv[1:] if arguments is None else arguments
    options = flags.parse_args(words)
    require_range(options, "resamples", 0)
    options.command = shlex.join(["python", "-m", f"tasks.benchmarks.{options.module}", *words])
    if options.out is None:
        options.out = Path("runs/benchmarks") / options.encoder[0].strip("/.").replace("/", "-")
    require_writable(options.out / f"{options.suite}.json")
    return options


def choose(text: str, names: Iterable[str], flag: str) -> list[str]:
    """The names of a comma-separated list without repetitions, spelled as in `names`; `UserError` for another name."""
    return list(dict.fromkeys(one_of(word.strip(), names, flag) for word in text.split(",")))


# Encoders


@dataclass(frozen=True)
class NamedEncoder:
    """An encoder with one pooler, and its name in tables."""

    name: str
    pooler: str
    folder: Path
    encoder: Encoder

    @property
    def label(self) -> str:
        """Name and pooler, as shown in tables."""
        return f"{self.name}, {self.pooler}"


def load_encoders(options: argparse.Namespace) -> list[NamedEncoder]:
    """Every encoder of `--encoder` with each pooler of `--pooler`; `UserError` where one cannot be loaded."""
    poolers = []
    if options.pooler == "every":
        poolers = list(pooling.NAMES)
    elif options.pooler:
        poolers = choose(options.pooler, pooling.NAMES, "--pooler")
    sources = list(dict.fromkeys(options.encoder))
    encoders = []
    for source, name in zip(sources, short_names(sources), strict=True):
        folder = weights.resolve(source, "--encoder")
        encoder = Encoder.load(folder, device=options.device, precision=options.precision)
        encoders += [NamedEncoder(name, pooler, folder, encoder) for pooler in poolers or [encoder.pooler]]
    return encoders


def short_names(sources: Sequence[str]) -> list[str]:
    """Distinct short names: `cbcl` for `runs/cbcl/encoder`, with more of the path where two short names are equal."""
    paths = []
    for source in sources:
        path = Path(source).resolve()
        is_part_of_run = path.is_dir() and path.name == "encoder"
        paths.append(path.parent if is_part_of_run else path)
    return distinct_names(paths)


def comparisons(encoders: Sequence[NamedEncoder]) -> list[tuple[NamedEncoder, NamedEncoder]]:
    """(first, other) for every encoder after the first, pooler by pooler."""
    first = [encoder for encoder in encoders if encoder.name == encoders[0].name]
    rest = [encoder for encoder in encoders if encoder.name != encoders[0].name]
    pairs = []
    for index, other in enumerate(rest):
        # every encoder has the same poolers in the same order
        pairs.append((first[index % len(first)], other))
    return pairs


def training_data(encoder: NamedEncoder) -> str:
    """The files that the encoder's run and the runs before it trained on and selected by, in a line; "" if unknown."""
    files: dict[str, list[str]] = {"train": [], "dev": []}
    for _, manifest in manifests_behind(encoder.folder):
        for data_set, entry in data_entries(manifest).items():
            split, _, _ = data_set.partition(" ")
            if split == "test":
                continue
            of_use = files["train" if split == "train" else "dev"]
            for file in files_of(entry):
                name = Path(file["file"]).name
                if name not in of_use:
                    of_use.append(name)
    facts = []
    if files["train"]:
        facts.append(f"trained on {', '.join(files['train'])}")
    if files["dev"]:
        facts.append(f"evaluated during training on {', '.join(files['dev'])}")
    if starts_from_minilm(encoder.folder):
        facts.append(f"all-MiniLM-L6-v2 saw {MINILM_DATA}")
    return "; ".join(facts)


# Vectors


@torch.inference_mode()
def encode_with_pools(encoder: Encoder, texts: Sequence[str], pools: Mapping[K, Pool]) -> dict[K, np.ndarray]:
    """Vectors of texts by each of `pools`, from one pass through the encoder: float32 [N, D]."""
    model = encoder.model
    rows, truncated = encoder.rows(texts, encoder.prompt())
    if truncated:
        say(f"{truncated} of {len(rows)} texts cut to {encoder.max_length} tokens", sys.stderr)
    vectors = {key: np.empty((len(rows), model.config.hidden_size), dtype=np.float32) for key in pools}
    with packed_weights(model, encoder.precision, sum(map(len, rows))):
        for batch, ragged in encoder.batches(rows):
            with autocast(encoder.precision, model.device):
                states = model.encode(model.embed(ragged), ragged)
                for key, pool_states in pools.items():
                    pooled = pool_states(model, states, ragged)[: len(batch)]
                    vectors[key][batch] = pooled.float().cpu().numpy()
    return vectors


class EmbeddingCache:
    """The vectors of texts by several encoders: a text is encoded once, for all poolers of an encoder."""

    def __init__(self, encoders: Sequence[NamedEncoder]) -> None:
        self.vectors: dict[NamedEncoder, dict[str, np.ndarray]] = {encoder: {} for encoder in encoders}

    def raw(self, encoder: NamedEncoder, texts: Iterable[str]) -> np.ndarray:
        """Vectors of texts: float32 [N, D]."""
        texts = list(texts)
        vectors = self.vectors[encoder]
        missing = [text for text in dict.fromkeys(texts) if text not in vectors]
        if missing:
            self._encode(encoder.encoder, missing)
        return np.stack([vectors[text] for text in texts])

    def _encode(self, encoder: Encoder, texts: Sequence[str]) -> None:
        pools: dict[NamedEncoder, Pool] = {}
        for named in self.vectors:
            if named.encoder is encoder:
                pools[named] = partial(pool, pooler=named.pooler)
        for named, vectors in encode_with_pools(encoder, texts, pools).items():
            if named.pooler == encoder.pooler:
                # a folder's Dense layers; lengths are left, as classifiers see them
                vectors = encoder.finish(vectors, normalize_embeddings=False)
            self.vectors[named].update(zip(texts, vectors, strict=True))

    def unit(self, encoder: NamedEncoder, texts: Iterable[str]) -> np.ndarray:
        """Vectors of texts scaled to length 1, in float64: [N, D]; zero vectors stay zero."""
        return unit(self.raw(encoder, texts))

    def cosines(self, encoder: NamedEncoder, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Cosine of each pair in float64, 0 where a vector is zero: [pairs]."""
        first = self.raw(encoder, [pair[0] for pair in pairs])
        second = self.raw(encoder, [pair[1] for pair in pairs])
        return pair_cosines(first, second)


def pair_cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine of each row of [N, D] with the same row of the other [N, D], in float64, 0 where one is zero: [N]."""
    return (unit(first) * unit(second)).sum(1)


# Scores


@dataclass(frozen=True)
class Score:
    """One number of an encoder: `measure` on `set`, NaN if undefined, and its bootstrap `samples` [R] if any.

    The samples of a measure on a set are of the same rows for every encoder, so differences are paired.
    """

    encoder: NamedEncoder
    measure: str
    set: str
    value: float
    samples: np.ndarray = field(default_factory=lambda: np.empty(0))
    details: Mapping[str, Any] = field(default_factory=dict)


def nan_if_none(value: float | None) -> float:
    """The value, NaN for None."""
    return math.nan if value is None else value


def averages(scores: Sequence[Score], measure: str) -> list[Score]:
    """The mean of a measure over the sets of each encoder with several; undefined if one of them is."""
    means = []
    for encoder in dict.fromkeys(score.encoder for score in scores):
        chosen = [score for score in scores if score.encoder == encoder and score.measure == measure]
        if len(chosen) > 1:
            value = float(np.mean([score.value for score in chosen]))
            samples = np.mean([score.samples for score in chosen], axis=0)
            means.append(Score(encoder, measure, AVERAGE, value, samples))
    return means


def bounds(samples: np.ndarray) -> dict[str, float]:
    """The ends `low` and `high` of the interval of bootstrap samples [R], NaN if there is none."""
    ends = interval(samples) or Interval(math.nan, math.nan)
    return ends._asdict()


def frame_of(scores: Iterable[Score], measure: str = "") -> pd.DataFrame:
    """A row for each score, or those of one measure: encoder, pooler, measure, set, value, low, high, and details."""
    rows = []
    for score in scores:
        if score.measure == measure or not measure:
            names = {"encoder": score.encoder.name, "pooler": score.encoder.pooler, "label": score.encoder.label}
            value = {"measure": score.measure, "set": score.set, "value": score.value}
            rows.append({**names, **value, **bounds(score.samples), **score.details})
    # as objects, numbers of rows stay integers beside a mean, which has none
    return pd.DataFrame(rows, dtype=object)


def differences(scores: Sequence[Score], encoders: Sequence[NamedEncoder], measure: str) -> pd.DataFrame:
    """The value of every other encoder minus the first's on each set, and the paired interval of this difference."""
    by_key = {}
    for score in scores:
        if score.measure == measure:
            by_key[score.encoder, score.set] = score
    names = list(dict.fromkeys(name for _, name in by_key))
    rows = []
    for first, other in comparisons(encoders):
        for name in names:
            before = by_key[first, name]
            after = by_key[other, name]
            ends = bounds(after.samples - before.samples)
            rows.append(
                {
                    "first": first.label,
                    "second": other.label,
                    "measure": measure,
                    "set": name,
                    "first_value": before.value,
                    "second_value": after.value,
                    "difference": after.value - before.value,
                    **ends,
                }
            )
    return pd.DataFrame(rows)


def as_json(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows for JSON: an undefined value or bound of an interval is None, any other empty cell is left out."""
    always = {"value", "low", "high", "difference"}
    rows = []
    for record in records(frame.drop(columns="label", errors="ignore")):
        row = {}
        for key, cell in record.items():
            # a column of other scores' details is empty in this row
            if cell is not None or key in always:
                row[key] = cell
        rows.append(row)
    return rows


def difference_tables(
    title: str,
    frame: pd.DataFrame,
    *,
    digits: int = 2,
    times: float = 1.0,
    higher_is_better: bool = True,
    column: str = "set",
) -> list[Table]:
    """A table of the rows of `differences` for each two encoders; `column` heads the sets."""
    tables: list[Table] = []
    if frame.empty:
        return tables
    for (first, second), rows in frame.groupby(["first", "second"], sort=False):
        columns = {
            column: rows["set"],
            "first": numbers(rows["first_value"], digits, times=times),
            "second": numbers(rows["second_value"], digits, times=times),
            "difference": numbers(rows["difference"], digits, times=times, sign=True),
            "95% interval, paired": interval_texts(rows, digits, times=times, sign=True),
        }
        if higher_is_better:
            columns["the second is"] = [verdict(low, high) for low, high in zip(rows["low"], rows["high"], strict=True)]
        tables.append(Table(f"{title}: {second} (second) minus {first} (first)", pd.DataFrame(columns)))
    return tables


# Files


def save(
    options: argparse.Namespace, data: Path | None, encoders: Sequence[NamedEncoder], *, complete: bool, **content: Any
) -> None:
    """Write `OUT/SUITE.json`; of a suite that is still running, with `complete` false and the results so far."""
    options.out.mkdir(parents=True, exist_ok=True)
    head = {
        "suite": options.suite,
        "command": options.command,
        "complete": complete,
        "data": None if data is None else str(data),
        "precision": encoders[0].encoder.precision,
        "seed": options.seed,
        "resamples": options.resamples,
        "encoders": {encoder.name: str(encoder.folder) for encoder in encoders},
        "training_data": {encoder.name: training_data(encoder) for encoder in encoders},
    }
    write_json(options.out / f"{options.suite}.json", head | content)


def show(
    options: argparse.Namespace,
    encoders: Sequence[NamedEncoder],
    title: str,
    tables: Sequence[Table],
    figures: Sequence[str] = (),
) -> None:
    """Write `OUT/SUITE.md` with the tables and the figures (names of SVG files), and print the tables."""
    notes = []
    for name, text in {encoder.name: training_data(encoder) for encoder in encoders}.items():
        if text:
            notes.append(f"{name}: {text}. docs/data.md lists the overlaps.")
    files = [f"{options.suite}.json", f"{options.suite}.md", *figures]
    parts = [f"# {title}\n", f"`{options.command}`\n"]
    parts += [table.markdown() for table in tables]
    parts += [f"{note}\n" for note in notes]
    parts += [f"![{Path(figure).stem}]({figure})\n" for figure in figures]
    write_atomic(options.out / f"{options.suite}.md", "\n".join(parts).rstrip() + "\n")
    for table in tables:
        say(f"\n{table.terminal()}")
    say("\n".join(["", *notes, f"{options.out}: {', '.join(files)}"]))
