"""Runs of the two scripts for the tests of this folder: small, in real processes, each with its own output."""

import csv
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from minbert.files import sha256_of
from tasks.presets import PRESETS

ROOT = Path(__file__).parent.parent.parent
TIMED = ("metrics.jsonl", "manifest.json")  # they hold times, speeds and commands
SAMPLE = ROOT / "data" / "sample"


@dataclass(frozen=True)
class Run:
    """How a script ended."""

    code: int
    codes: list[int]  # of every rank
    out: str
    err: str
    errs: list[str]  # of every rank
    folder: Path
    changes: int = 0  # of files, if they were counted

    @property
    def errors(self) -> list[str]:
        """The lines of stderr that aren't notes."""
        return [line for line in self.err.splitlines() if not line.startswith("note: ")]

    def rows(self) -> list[dict[str, Any]]:
        """metrics.jsonl without its times."""
        rows = []
        for line in (self.folder / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            for name in ("seconds", "time", "examples_per_second"):
                row.pop(name, None)
            rows.append(row)
        return rows

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())

    def bits(self) -> dict[str, str]:
        """The hash of every file of the run folder but those with times in them."""
        hashes = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.name not in TIMED:
                hashes[str(path.relative_to(self.folder))] = sha256_of(path)
        return hashes


Script = Callable[..., Run]


@pytest.fixture(scope="session")
def forks(_own_folders_and_threads: None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "forks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
    ) as process:
        yield process
        process.kill()  # its own end, with all that it has imported, takes seconds


@pytest.fixture(scope="session")
def runner(forks: subprocess.Popen[str], tiny: Path) -> Script:
    """A function that runs a script in a folder, with flags, by default on the sample corpus from the tiny random BERT.

    `run_dir` names the run folder inside the given one. `signal` is (number, step) and `kill` a number of changes of
    files, as in forks.py. With `unread` the reader of the output has gone. Only with `report` does the run write its
    page, which takes seconds. `argv` takes the place of all flags.
    """
    numbers = count()

    def run(
        parent: Path,
        name: str,
        *flags: str | int | float | Path,
        run_dir: str = "run",
        weights: bool = True,
        data: bool = True,
        signal: tuple[int, int] | None = None,
        kill: int | None = None,
        ranks: int = 1,
        unread: bool = False,
        report: bool = False,
        argv: Sequence[str] = (),
        **environment: str,
    ) -> Run:
        folder = parent / run_dir
        usual = ["--run-dir", folder, "--precision", "fp32", "--max-length", 24]
        if weights:
            usual += ["--weights", tiny]
        if data:
            usual += ["--data", SAMPLE]
        number = next(numbers)
        request: dict[str, Any] = {
            "argv": list(argv) or [str(ROOT / name), *map(str, (*usual, *flags))],
            "cwd": str(parent),
            "env": environment,
            "signal": signal,
            "kill": kill,
            "unread": unread,
            "report": report,
            "out": str(parent / f"{number}.out"),
            "err": str(parent / f"{number}.err"),
        }
        if ranks > 1:
            request["env"] |= _group(ranks)
        assert forks.stdin is not None and forks.stdout is not None
        forks.stdin.write(json.dumps(request) + "\n")
        forks.stdin.flush()
        codes = json.loads(forks.stdout.readline())
        out = Path(request["out"]).read_text()
        errs = [Path(f"{request['err']}{rank or ''}").read_text() for rank in range(ranks)]
        changes = Path(f"{request['out']}.changes")
        number_of_changes = int(changes.read_text()) if changes.exists() else 0
        return Run(codes[0], codes, out, errs[0], errs, folder, number_of_changes)

    return run


@pytest.fixture
def script(runner: Script, tmp_path: Path) -> Script:
    """The runner, in this test's own folder."""
    return partial(runner, tmp_path)


def _free_port() -> int:
    """A free port below Linux's range for outgoing connections, which no other program is given meanwhile."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 200):
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


def _group(ranks: int) -> dict[str, str]:
    """What torchrun would tell each of its processes."""
    return {
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, labelled pairs and phrases, made from the sample's triplets."""
    folder = tmp_path_factory.mktemp("corpora")
    with open(SAMPLE / "nli" / "nli-triplets.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:40]
    texts = ""
    phrases = ""
    pairs = "premise\thypothesis\tlabel\n"
    for number, row in enumerate(rows):
        texts += f"{row['sent0']}\n"
        phrases += f"{row['sent1']}\t{number % 2}\n"
        pairs += f"{row['sent0']}\t{row['sent1']}\tentailment\n"
        pairs += f"{row['sent0']}\t{row['hard_neg']}\tcontradiction\n"
    (folder / "texts.txt").write_text(texts, encoding="utf-8")
    (folder / "phrases.tsv").write_text(phrases, encoding="utf-8")
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    return folder


def script_of(command: str) -> str:
    """The file of a command, such as `tasks/contrastive/nli.py` of `-m tasks.contrastive.nli`."""
    module = command.removeprefix("-m ")
    return command if module == command else f"{module.replace('.', '/')}.py"


def small_data(command: str, preset: str, corpora: Path) -> list[Any]:
    """Flags for a preset: small data in place of those that it names, and MiniLM's vector, which its folder names."""
    values = PRESETS[command][preset].values
    flags: list[Any] = ["--preset", preset]
    if command == "multitask_train.py":
        if preset == "best":
            flags += ["--pooler", "mean"]
        return flags
    if values.get("weights") == "minilm":
        flags += ["--pooler", "mean"]
    flags += ["--sts-dev", SAMPLE / "course" / "sts-dev.csv"]
    if "texts" in values:
        flags += ["--texts", corpora / "texts.txt"]
    if values.get("objective") in ("softmax", "cross", "joint"):
        flags += ["--nli-pairs", corpora / "pairs.tsv"]
    if "phrases" in values:
        flags += ["--phrases", corpora / "phrases.tsv"]
    if "synonyms" in values:
        flags += ["--synonyms", "none"]  # WordNet is not on every machine
    return flags
