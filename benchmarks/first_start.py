"""Memory and time of what stage one does before its first step, on generated triplets.

    python -m benchmarks.first_start --rows 1000000                  reading, reading again from the cache, scoring
    python -m benchmarks.first_start --rows 10000000 --part plan     the plan of an epoch, of both stages

Each line of the table is a process of its own. The file is a CSV file with `sent0,sent1,hard_neg`; every text is
different and has 5 to 14 words. It is tokenised with MiniLM's vocabulary and scored by a BERT of MiniLM's width with
one layer and random weights. MiB is the peak of resident memory above that of the imported libraries. File and cache
are temporary (in --folder, about 900 bytes a row) and are removed.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import tasks.contrastive.triplets  # noqa: F401  a first start imports it, with pandas; they count as libraries
from benchmarks.harness import SAMPLE, in_own_process, peak
from benchmarks.reader_speed import WORDS
from minbert import weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.encode import Encoder
from minbert.tokenizer import Tokenizer
from minbert.training import cli
from tasks import schedule
from tasks.contrastive import curriculum, data, scoring
from tasks.contrastive.settings import ContrastiveSettings

LENGTH = 32  # tokens
PLANS: dict[str, dict[str, object]] = {
    "without a curriculum": {"power": 0.0},
    "paced by epoch": {"power": 0.5},
    "paced by step": {"power": 0.5, "pacing": "step"},
}


def generate(path: Path, count: int) -> None:
    """Write a CSV file of `count` triplets, all of different texts."""
    with path.open("w", encoding="utf-8") as file:
        file.write("sent0,sent1,hard_neg\n")
        for number in range(3 * count):
            words = [WORDS[(number * (place + 3) + place) % len(WORDS)] for place in range(4 + number % 10)]
            file.write(f"{' '.join(words)} {number}{',' if number % 3 < 2 else chr(10)}")


def read(path: Path) -> data.Data:
    """The triplets as stage one reads them."""
    settings = ContrastiveSettings.of(triplets=str(path), sts_dev=str(SAMPLE / "course" / "sts-dev.csv"))
    return data.read(settings, Tokenizer.load(weights.resolve("minilm")), LENGTH)


def score(path: Path) -> Callable[[], object]:
    """Scoring the triplets of a file that is in the cache."""
    torch.manual_seed(0)
    source = weights.resolve("minilm")
    config = BertConfig.read(source)
    small = BertModel(BertConfig(**{**vars(config), "num_hidden_layers": 1}))
    encoder = Encoder(small, Tokenizer.load(source), "mean")
    examples = read(path).train
    return lambda: scoring.similarities(encoder, examples, "")


def plan(name: str, rows: int) -> Callable[[], object]:
    """The plan of the last epoch of two, in batches of 64 triplets or of 16 examples of stage two."""
    if name == "stage two":
        made = schedule.plan("proportional", {"quora": rows}, epochs=2, batch_size=16, seed=0)
    else:
        how = {"epochs": 2, "batch_size": 64, "seed": 0, **PLANS[name]}
        made = curriculum.plan(np.arange(rows), **how)  # type: ignore[arg-type]
    return lambda: made.at(made.total - 1)


def measure(part: str, path: Path, rows: int) -> tuple[float, float]:
    """The MiB and the seconds that one part takes."""
    action = (
        plan(part, rows) if part in (*PLANS, "stage two") else score(path) if part == "score" else lambda: read(path)
    )
    before, start = peak(), time.perf_counter()
    action()
    return peak() - before, time.perf_counter() - start


def main() -> None:
    """Run the parts, each in its own process, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="triplets of the file (default: %(default)s)")
    parser.add_argument("--part", choices=("read", "score", "plan"), default="score", help="score reads, too")
    parser.add_argument("--folder", type=Path, help="where file and cache go")
    given = parser.parse_args()
    parts = {"read": ["read", "read again"], "score": ["read", "read again", "score"], "plan": [*PLANS, "stage two"]}
    print("| part | rows | MiB | s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path, os.environ["MINBERT_CACHE"] = Path(folder) / "triplets.csv", f"{folder}/cache"
        generate(path, 0 if given.part == "plan" else given.rows)
        for part in parts[given.part]:
            found, seconds = in_own_process(measure, part, path, given.rows)
            print(f"| {part} | {given.rows:,} | {found:,.0f} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    cli.run(main)
