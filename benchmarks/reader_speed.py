"""Speed and peak memory of reading files and of tokenising them into the cache.

    DATA_DIR=... python -m benchmarks.reader_speed                 our readers and pandas, then 10 million rows
    python -m benchmarks.reader_speed --rows 500000 --part cache   the streaming alone, on generated pairs

Part `readers`: each file is read completely, alternately by our reader (every row checked, labelled and then dropped)
and by `pandas.read_csv` (one table of text columns, no checks), --repeats times; shown is the median CPU time of the
process, with quartiles. The last file is generated. Part `cache`: a generated file of --rows pairs is read by
`readers.tokenised` in a new process; shown are rows per second of wall-clock time, CPU time of all threads, and peak
resident memory, also for a hundredth of the rows. Files and caches are temporary (in --folder) and are removed.
"""

import argparse
import csv
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import cell, in_own_process, peak
from minbert import weights
from minbert.token_cache import Row, Skipped
from minbert.tokenizer import Tokenizer
from minbert.training import cli
from tasks import readers
from tasks.readers.layouts import NLI_CLASSES

Rows = Iterator[Row | Skipped]
UNQUOTED = {"sep": "\t", "quoting": csv.QUOTE_NONE}

# File under $DATA_DIR -> kind of its rows, options for pandas.
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "course/ids-sst-train.csv": ("single", {"sep": "\t"}),
    "course/quora-train.csv": ("pair-class", {"sep": "\t"}),
    "nli/nli-triplets.csv": ("triplet", {}),
    "nli/nli-pairs.tsv": ("nli", UNQUOTED),
    "senteval/downstream/SST/binary/sentiment-train": ("single", UNQUOTED | {"header": None}),
    "senteval/downstream/STS/STSBenchmark/sts-train.csv": ("pair-score", UNQUOTED | {"header": None}),
    "zh/ATEC/atec_nlp_sim_train.csv": ("pair-score", {"sep": "\t", "header": None}),
    "zh/BQ/dev.csv": ("pair-score", {}),
}

_TEXT = (
    "the a one our every small old green careful river boat teacher window garden song train letter kitchen story bird "
    "road market winter morning reads finds paints carries watches leaves near under behind with without again "
)
WORDS = _TEXT.split()


def sentence(number: int) -> str:
    """A sentence of four to eleven words, depending on `number`."""
    length = 4 + number % 8
    return " ".join(WORDS[(number // (place + 1) + 7 * place) % len(WORDS)] for place in range(length))


def generate(path: Path, count: int) -> None:
    """Write a tab-separated file of `count` NLI pairs: premise, hypothesis, label."""
    with path.open("w", encoding="utf-8") as file:
        file.write("premise\thypothesis\tlabel\n")
        for number in range(count):
            label = NLI_CLASSES[number % 3]
            file.write(f"{sentence(number)}\t{sentence(5 * number + 3)}\t{label}\n")


def processor_time(action: Callable[[], Any]) -> float:
    """CPU time of `action` in this process, in seconds."""
    start = time.process_time()
    action()
    return time.process_time() - start


def beside_pandas(name: str, path: Path, kind: str, options: dict[str, Any], repeats: int) -> None:
    """One row of the table: our reader and pandas on the same file, alternately."""
    import pandas  # not at the top: it would add to the peak memory of the other part

    def read() -> Rows:
        return readers.open_as(path, kind).rows

    count = sum(1 for _ in read())
    assert count == len(pandas.read_csv(path, dtype=str, **options)), f"{name}: pandas reads another number of rows"
    times: list[tuple[float, float]] = []
    for _ in range(repeats):
        ours = processor_time(lambda: deque(read(), maxlen=0))
        times.append((ours, processor_time(lambda: pandas.read_csv(path, dtype=str, **options))))
    mine, other = torch.tensor(times, dtype=torch.float64).T
    speeds = [cell(count / seconds / 1000, 0) for seconds in (mine, other)]
    print(f"| {name} | {count:,} | {' | '.join(speeds)} | {cell(mine / other, 2)} |", flush=True)


def reader_table(folder: Path, repeats: int, generated: int) -> None:
    """Print thousands of rows per second of CPU time, ours and pandas', on the real files and a generated one."""
    print("| file | rows | our reader, 1,000 rows/s | pandas.read_csv, 1,000 rows/s | our time / pandas' |")
    print("|---|---|---|---|---|")
    data = os.environ.get("DATA_DIR")
    for name, (kind, options) in FILES.items() if data else ():
        beside_pandas(name, Path(str(data)) / name, kind, options, repeats)
    path = folder / "speed.tsv"
    generate(path, generated)
    beside_pandas("generated NLI pairs", path, "nli", UNQUOTED, repeats)
    path.unlink()


def build(path: Path) -> tuple[float, ...]:
    """Build the cache of a generated file; returns rows, seconds, CPU seconds, and peak MiB at the end and before."""
    tokenizer = Tokenizer.load(weights.resolve("minilm"))
    before = peak()
    start, used = time.perf_counter(), time.process_time()
    cache = readers.tokenised(path, "nli", tokenizer)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    return len(cache), seconds, used, peak(), before


def cache_table(folder: Path, count: int) -> None:
    """Print rows per second into the token cache, and peak memory, for `count` rows and for a hundredth of them."""
    print("\n| rows into the token cache | file, MB | s | rows/s | processor us/row | peak MiB | MiB before row 1 |")
    print("|---|---|---|---|---|---|---|")
    for rows in (max(count // 100, 1), count):
        path = folder / "pairs.tsv"
        generate(path, rows)
        found, seconds, used, most, before = in_own_process(build, path)
        assert found == rows
        speed = f"{seconds:.1f} | {rows / max(seconds, 0.1):,.0f} | {used / rows * 1e6:.1f}"
        print(f"| {rows:,} | {path.stat().st_size / 1e6:.0f} | {speed} | {most:.0f} | {before:.0f} |", flush=True)
        path.unlink()


def main() -> None:
    """Run both parts, or the one given by --part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="generated rows into the token cache (default: %(default)s)"
    )
    parser.add_argument("--part", choices=("all", "readers", "cache"), default="all", help="(default: all)")
    parser.add_argument("--repeats", type=int, default=7, help="times each reader runs (default: %(default)s)")
    parser.add_argument(
        "--generated", type=int, default=200_000, help="rows of the generated file beside pandas (default: %(default)s)"
    )
    parser.add_argument("--folder", type=Path, help="where files and caches go (about 500 bytes a row)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        os.environ["MINBERT_CACHE"] = f"{folder}/cache"
        if given.part != "cache":
            reader_table(Path(folder), given.repeats, given.generated)
        if given.part != "readers":
            cache_table(Path(folder), given.rows)


if __name__ == "__main__":
    cli.run(main)
