"""The encoders of a suite, and the vectors of many texts by several poolers at once.

Axes: M distinct texts, B sentences of a batch, T its tokens, D hidden.
"""

import argparse
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from minbert import pooling, weights
from minbert.bert import BertModel
from minbert.encoder import Encoder, pool
from minbert.errors import UserError
from minbert.fast import packed_weights
from minbert.precision import autocast
from minbert.ragged import Ragged
from tasks.benchmarks.options import chosen
from tasks.contrastive.evaluation import unit

Pool = Callable[[BertModel, Sequence[Tensor], Ragged], Tensor]
"""Hidden states (the embedding layer's and every layer's, [T, D]) to one vector a sentence: [B, D]."""


@dataclass(frozen=True)
class System:
    """One encoder with one pooler."""

    encoder: str
    pooler: str

    @property
    def name(self) -> str:
        """Encoder and pooler, as shown in tables."""
        return f"{self.encoder}, {self.pooler}"


@dataclass(frozen=True)
class Loaded:
    """An encoder with its name in tables, its folder, and the poolers that are applied to it."""

    name: str
    folder: Path
    encoder: Encoder
    poolers: tuple[str, ...]

    @property
    def systems(self) -> list[System]:
        """The encoder with each of its poolers, in order."""
        return [System(self.name, pooler) for pooler in self.poolers]


def load(options: argparse.Namespace) -> list[Loaded]:
    """Every encoder of `--encoder`; `UserError` where one cannot be loaded."""
    names = ",".join(pooling.NAMES) if options.pooler.lower() in ("every", "all") else options.pooler
    poolers = chosen(names, pooling.NAMES, "--pooler") if names else []
    sources = list(dict.fromkeys(options.encoder))
    try:
        torch.empty(0, device=options.device or None)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {options.device}: not a device of this machine") from error
    loaded = []
    for source, name in zip(sources, short_names(sources), strict=True):
        folder = weights.resolve(source, "--encoder")
        encoder = Encoder.load(folder, device=options.device or None, precision=options.precision)
        loaded.append(Loaded(name, folder, encoder, tuple(poolers) or (encoder.pooler,)))
    return loaded


def short_names(sources: list[str]) -> list[str]:
    """Distinct short names: `cbcl` for `runs/cbcl/encoder`, or the whole path where two short names are equal."""
    paths = [Path(source).resolve() for source in sources]
    short = [path.parent.name if path.is_dir() and path.name == "encoder" else path.name for path in paths]
    return [one if short.count(one) == 1 else source for one, source in zip(short, sources, strict=True)]


class Bank:
    """The vectors of distinct texts, float32 [M, D], by system or by whatever else `add` encodes them for."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.index = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        self.vectors: dict[Hashable, np.ndarray] = {}

    @torch.inference_mode()
    def add(self, loaded: Loaded, pools: Mapping[Hashable, Pool] | None = None) -> "Bank":
        """Encode every distinct text once, by each of `pools` (default: the encoder's systems); returns the bank.

        The number of truncated texts is printed to standard error.
        """
        pools = pools or {system: partial(pool, pooler=system.pooler) for system in loaded.systems}
        encoder, model = loaded.encoder, loaded.encoder.model
        rows, cut = encoder.rows(list(self.index))
        if cut:
            note = f"{cut} of {len(rows)} texts are over {encoder.max_length} tokens and are truncated"
            print(f"{loaded.name}: {note}", file=sys.stderr)
        self.vectors |= {key: np.empty((len(rows), model.config.hidden_size), dtype=np.float32) for key in pools}
        with packed_weights(model, encoder.precision, sum(map(len, rows))):
            for batch, ragged in encoder.batches(rows):
                with autocast(encoder.precision, model.device):
                    states = model.encode(model.embed(ragged), ragged)
                    for key, pooled in pools.items():
                        self.vectors[key][batch] = pooled(model, states, ragged).float().cpu().numpy()
        return self

    def raw(self, key: Hashable, texts: Iterable[str]) -> np.ndarray:
        """Vectors of some texts: float32 [texts, D]."""
        return self.vectors[key][[self.index[text] for text in texts]]

    def unit(self, key: Hashable, texts: Iterable[str]) -> np.ndarray:
        """Vectors of some texts, scaled to length 1, in float64: [texts, D]; zero vectors stay zero."""
        return unit(self.raw(key, texts))

    def cosines(self, key: Hashable, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Cosine of each pair in float64, 0 where a vector is zero: [pairs]."""
        first, second = (self.unit(key, [pair[side] for pair in pairs]) for side in (0, 1))
        return (first * second).sum(1)
