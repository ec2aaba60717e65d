"""The scored pairs for evaluation during training, and how many of them are also in the sets of the final evaluation.

| name | pairs | chosen by |
|---|---|---|
| `stsb` | STS-B's own dev set, 1,500 pairs, in SentEval's layout | ConSERT (section 4.1), SimCSE, SBERT's scripts |
| `course` | the course's dev set, 863 pairs of STS-B in the course's own split | |
| `zh` | the Chinese dev sets that are there, of ATEC, BQ, LCQMC, PAWS-X and STS-B | EdaCSE's average, on dev sets |
| a path | any file of scored pairs that `tasks.readers` reads | |
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from minbert.errors import UserError, suggestion
from minbert.files import present
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from minbert.training import start
from tasks.contrastive import corpus
from tasks.examples import Pair
from tasks.readers import key, open_as, senteval
from tasks.sts import Similarity

ONE = "sts"
"""The name of a single set in `DevSets.pairs`; the Chinese sets go by their own names."""


@dataclass(frozen=True)
class DevSets:
    """The dev pairs of a run, by set. `name` is that of `--sts-dev`; `also_in` counts pairs by scored set."""

    name: str
    pairs: Mapping[str, Pair]
    absent: tuple[str, ...] = ()
    also_in: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.pairs.values()))

    @property
    def sha256(self) -> str:
        """The hash of the only file, or that of the hashes of all."""
        each = [one.cache.sha256 for one in self.pairs.values()]
        return each[0] if len(each) == 1 else hashlib.sha256(" ".join(each).encode()).hexdigest()

    @property
    def shown(self) -> str:
        """How many pairs of which files, for people to read."""
        if len(self.pairs) == 1:
            (only,) = self.pairs.values()
            named = f" (--sts-dev {self.name})" if self.name in NAMES else ""
            return f"{len(only):,} pairs of {only.cache.source}{named}"
        sets = ", ".join(f"{name} {len(one):,}" for name, one in self.pairs.items())
        return f"{len(self):,} pairs, by the mean over {sets} (--sts-dev {self.name})"

    def account(self) -> dict[str, Any]:
        """For the manifest: what was read of each file, and how many pairs are also in scored sets."""
        about = {"name": self.name, "absent": list(self.absent), "also_in": dict(self.also_in)}
        if len(self.pairs) == 1:
            (only,) = self.pairs.values()
            return only.cache.account() | about
        return about | {"kept": len(self)} | {name: one.cache.account() for name, one in self.pairs.items()}


def find(given: str, data: Callable[[], Path]) -> tuple[str, dict[str, Path]]:
    """The name that `--sts-dev` says, and the file of each set; `data` gives the data folder where a name needs it.

    Raises `UserError` for a set that is not there, with the alternatives, and for a header that cannot be used.
    """
    name = given.lower() if given.lower() in NAMES else given
    if name in NAMES:
        folder = data()
        paths = NAMES[name].find(folder)
        if not paths:
            raise UserError(_missing(name, folder))
    elif not Path(given).exists():
        near = suggestion(given, NAMES)
        raise UserError(f"--sts-dev {given}: no such file, and none of the sets {', '.join(NAMES)}{near}")
    else:
        paths = {ONE: present(Path(given), "--sts-dev")}
    for path in paths.values():
        open_as(present(path), Similarity.kind, "dev")
    return name, paths


def read(given: str, data: Callable[[], Path], tokenizer: Tokenizer, length: int) -> DevSets:
    """The pairs that `--sts-dev` names. Raises `UserError` as `find` does, and for what cannot be read."""
    name, paths = find(given, data)
    absent = [one for one in corpus.CHINESE if one not in paths] if name == "zh" else []
    if len(paths) == 1:
        paths = {ONE: next(iter(paths.values()))}
    task = Similarity("bi")
    return DevSets(name, {one: task.open(path, "dev", tokenizer, length) for one, path in paths.items()}, tuple(absent))


def also_in(dev: DevSets, folder: Path) -> dict[str, int]:
    """How many of the dev pairs are, in either order, in each scored set of the data folder.

    Two texts are the same by `tasks.readers.key`. The seven English sets and STS-B's dev set are looked into, or for
    `zh` the five Chinese test sets. A set that is there but cannot be read is left out with a warning.
    """
    every = [
        frozenset((key(one.cache.text(row, 0)), key(one.cache.text(row, 1))))
        for one in dev.pairs.values()
        for row in range(len(one))
    ]
    found = {}
    for name, paths in _scored(folder, dev.name).items():
        if not any(path.is_file() for path in paths):
            continue
        try:
            rows = [row for path in paths for row in open_as(present(path), "pair-score").rows]
        except UserError as error:  # a damaged set does not keep an encoder from being trained
            start.warn(f"{error} (so it is not known how many dev pairs are also in {name})")
            continue
        known = {frozenset(map(key, row.texts)) for row in rows if isinstance(row, Row)}
        found[name] = sum(pair in known for pair in every)
    return found


def _scored(folder: Path, name: str) -> dict[str, list[Path]]:
    """The files of the scored sets by the names that the STS suite shows; not all of them need exist."""
    if name == "zh":
        tests = {one: path for (one, split), path in corpus.chinese_files(folder).items() if split == "test"}
        return {"zh-STS-B" if one == "STS-B" else one: [path] for one, path in tests.items()}
    found = {}
    for base in _roots(folder):
        if (base / "STS").is_dir() or (base / "SICK").is_dir():
            for one, (place, subsets) in senteval.STS.items():
                found[one] = [base / place / f"STS.input.{subset}.txt" for subset in subsets]
            found["SICK-R"] = [base / "SICK" / senteval.SICK["test"]]
            break
    found["STS-B"] = list(_stsb(folder, "test").values())
    return found | ({"STS-B dev": list(_stsb(folder).values())} if name != "stsb" else {})


def _roots(data: Path) -> tuple[Path, ...]:
    return data / "downstream", data / "senteval" / "downstream", data


def _stsb(data: Path, split: str = "dev") -> dict[str, Path]:
    return _first(root / place / f"sts-{split}.csv" for root in _roots(data) for place in senteval.STSB)


def _course(data: Path) -> dict[str, Path]:
    return _first((data / "course" / "sts-dev.csv", data / "sts-dev.csv"))


def _first(places: Iterable[Path]) -> dict[str, Path]:
    return next(({ONE: path} for path in places if path.is_file()), {})


def _chinese(data: Path) -> dict[str, Path]:
    return {name: path for (name, split), path in corpus.chinese_files(data).items() if split == "dev"}


class _Named(NamedTuple):
    find: Callable[[Path], dict[str, Path]]
    what: str
    command: str  # of data/get_data.py


NAMES = {
    "stsb": _Named(
        _stsb,
        "STS-B's own dev set (STS/STSBenchmark/sts-dev.csv or stsbenchmark/sts-dev.csv, as SentEval has it)",
        "senteval",
    ),
    "course": _Named(_course, "the course's dev set (course/sts-dev.csv)", "course"),
    "zh": _Named(_chinese, f"a dev file of {', '.join(corpus.CHINESE)} (in zh/)", "chinese"),
}
"""What `--sts-dev` may name beside a file."""


def _missing(name: str, folder: Path) -> str:
    others = [f"{one} (which is there)" if NAMES[one].find(folder) else one for one in NAMES if one != name]
    return (
        f"--sts-dev {name}: {folder} does not hold {NAMES[name].what}; python data/get_data.py "
        f"{NAMES[name].command} fetches the usual files into data/; or choose other pairs with --sts-dev: "
        f"{', '.join(others)}, or a file of scored pairs"
    )
