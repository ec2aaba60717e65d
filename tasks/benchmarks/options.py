"""The flags that all suites share, and the encoders that they name. Importing this module loads no torch."""

import argparse
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.errors import UserError, one_of
from minbert.training.cli import Parser

if TYPE_CHECKING:
    from minbert.encode import Encoder

RESAMPLES = 1000
PROTOCOLS = {
    "all": "one correlation over all pairs of a set (SimCSE, appendix B; ConSERT and SelfCCL follow it)",
    "mean": "a correlation for each subset, then their mean (SentEval)",
    "wmean": "a correlation for each subset, then their mean weighted by pairs (SentEval)",
}


def parser(suite: str, about: str, differences: str = "differences to the first") -> argparse.ArgumentParser:
    """The flags of every suite: `--encoder`, `--pooler`, `--data`, `--compare`, `--out` and a few more."""
    made = Parser(prog=f"python -m tasks.benchmarks.{suite}", description=about, allow_abbrev=False)
    help_ = {
        "encoder": "a folder, a run, minilm or a hub name; several are shown side by side",
        "pooler": "mean, cls and so on, several with commas, or `every` (default: each encoder's own)",
        "data": "folder in SentEval's layout (default: $DATA_DIR/senteval, $DATA_DIR or data/)",
        "compare": f"another encoder: {differences}, with paired intervals",
        "out": "results folder (default: runs/benchmarks/ENCODER)",
        "resamples": f"bootstrap resamples of an interval, 0 for none (default: {RESAMPLES})",
    }
    names = ("--encoder", "--encoders")
    made.add_argument(*names, dest="encoder", nargs="+", required=True, metavar="DIR|NAME", help=help_["encoder"])
    made.add_argument("--pooler", metavar="NAMES", default="", help=help_["pooler"])
    made.add_argument("--data", metavar="DIR", default="", help=help_["data"])
    made.add_argument("--compare", metavar="OTHER", help=help_["compare"])
    made.add_argument("--out", metavar="DIR", type=Path, help=help_["out"])
    formats = ("fp32", "bf16", "auto")
    made.add_argument("--precision", default="fp32", choices=formats, help="number format (default: fp32)")
    made.add_argument("--device", default="", help="where the encoder runs (default: a GPU if there is one)")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="seed of every random draw (default: 0)")
    made.add_argument("--resamples", type=int, default=RESAMPLES, metavar="N", help=help_["resamples"])
    return made


@dataclass(frozen=True)
class Loaded:
    """An encoder with its name in tables, its folder, and the poolers that are applied to it."""

    name: str
    folder: Path
    encoder: "Encoder"
    poolers: tuple[str, ...]


@dataclass(frozen=True)
class System:
    """One encoder with one pooler."""

    encoder: str
    pooler: str

    @property
    def name(self) -> str:
        """Encoder and pooler in one phrase."""
        return f"{self.encoder}, {self.pooler}"


Pairing = tuple[System, System]
"""Two systems that are compared: (first, other)."""


def check(given: argparse.Namespace) -> None:
    """Check the shared flags before any weights are read, and replace `given.pooler` by a list of names."""
    from minbert.pooling import NAMES

    if given.resamples < 0:
        raise UserError(f"--resamples: {given.resamples} is less than 0")
    if given.out is not None and given.out.exists() and not given.out.is_dir():
        raise UserError(f"--out {given.out}: is a file, not a folder")
    every = given.pooler.lower() in ("every", "all")
    given.pooler = list(NAMES) if every else chosen(given.pooler, NAMES, "--pooler")


def chosen(text: str, known: Iterable[str], flag: str) -> list[str]:
    """The names of a comma-separated list without repetitions, spelled as in `known`; `UserError` for any other."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return list(dict.fromkeys(one_of(word, known, flag) for word in words))


def load(given: argparse.Namespace) -> list[Loaded]:
    """Every encoder of `--encoder`, then that of `--compare`; `UserError` where one cannot be loaded."""
    from minbert import weights
    from minbert.encode import Encoder

    places = [*given.encoder, *([given.compare] if given.compare else [])]
    if len(set(places)) < len(places):
        raise UserError(f"--encoder, --compare: {', '.join(places)}: an encoder is named twice")
    found = []
    for number, (place, name) in enumerate(zip(places, names(places), strict=True)):
        flag = "--encoder" if number < len(given.encoder) else "--compare"
        folder = weights.resolve(weights.of_run(place), flag)
        encoder = Encoder.load(folder, device=_device(given.device), precision=given.precision)
        found.append(Loaded(name, folder, encoder, tuple(given.pooler) or (encoder.pooler,)))
    return found


def _device(name: str) -> str | None:
    import torch

    try:
        torch.empty(0, device=name or None)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {name}: not a device of this machine") from error
    return name or None


def names(places: list[str]) -> list[str]:
    """Distinct short names: `cbcl` for `runs/cbcl/encoder`, or the whole path where two short names are equal."""
    short = []
    for place in places:
        path = Path(place)
        name = path.resolve().parent.name if path.is_dir() and path.resolve().name == "encoder" else path.name
        short.append(name or place)
    return [one if short.count(one) == 1 else place for one, place in zip(short, places, strict=True)]


def systems(loaded: list[Loaded]) -> list[System]:
    """Every encoder with each of its poolers, in order."""
    return [System(one.name, pooler) for one in loaded for pooler in one.poolers]


def references(loaded: list[Loaded]) -> list[Pairing]:
    """(first, other) for every encoder after the first: by common poolers, or else with the first pooler of each."""
    pairs = []
    for other in loaded[1:]:
        shared = [pooler for pooler in loaded[0].poolers if pooler in other.poolers]
        both = [(name, name) for name in shared] or [(loaded[0].poolers[0], other.poolers[0])]
        pairs += [(System(loaded[0].name, one), System(other.name, two)) for one, two in both]
    return pairs


def out_folder(given: argparse.Namespace, loaded: list[Loaded]) -> Path:
    """The folder of the results."""
    return given.out or Path("runs/benchmarks") / loaded[0].name.strip("/.").replace("/", "-")


def account(
    suite: str, words: list[str], given: argparse.Namespace, loaded: list[Loaded], data: Path | None
) -> dict[str, Any]:
    """The fields that every suite's JSON begins with; `words` are the arguments of the command."""
    return {
        "suite": suite.removesuffix("_suite"),
        "command": shlex.join(["python", "-m", f"tasks.benchmarks.{suite}", *words]),
        "data": None if data is None else str(data),
        "precision": loaded[0].encoder.precision,
        "seed": given.seed,
        "resamples": given.resamples,
        "encoders": {one.name: str(one.folder) for one in loaded},
    }
