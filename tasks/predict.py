"""Predict your own sentences with the heads of a finished run: one per line, pairs separated by a TAB; writes TSV.

python -m tasks.predict runs/multitask --task sst reviews.txt
printf 'A man is eating.\\tSomeone eats.\\n' | python -m tasks.predict runs/multitask --task sts
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from minbert.errors import UserError
from minbert.files import present, read_json_object
from minbert.training import cli

if TYPE_CHECKING:  # at run time torch would delay `--help`
    import numpy as np

    from minbert.token_cache import TokenCache
    from minbert.tokenizer import Tokenizer
    from tasks.model import MultitaskModel
    from tasks.task import Task

_CHUNK = 1024  # inputs predicted together
Texts = tuple[str, ...]


@dataclass(frozen=True)
class Predictor:
    """The model that a run has kept, with what is needed to encode its inputs."""

    model: "MultitaskModel"
    tokenizer: "Tokenizer"
    max_length: int
    precision: str

    def recorded(self, run: Path, task: "Task", split: str, data: Path | None = None) -> Any:
        """The examples of a task in a file of the run's data, as `recorded_file` finds it. Raises `UserError`."""
        path, columns = recorded_file(run, task.name, split, data)
        return task.open(path, split, self.tokenizer, self.max_length, columns)

    def examples(self, task: "Task", texts: Sequence[Texts]) -> Any:
        """Sentences or pairs as examples of a task (`Single` or `Pair`), preprocessed as in the course."""
        from tasks import readers

        clean = readers.clean_sentence if task.kind == "single" else readers.clean_pair
        cache = _in_memory([tuple(map(clean, row)) for row in texts], task.columns, self.tokenizer)
        return task.examples(cache, self.tokenizer.cls, self.tokenizer.sep, self.max_length)


def _in_memory(rows: Sequence[Texts], columns: int, tokenizer: "Tokenizer") -> "TokenCache":
    """A token cache of texts that is not written to disk; it does not hold the texts themselves."""
    import numpy as np

    from minbert.token_cache import TokenCache

    ids = tokenizer.encode([text for row in rows for text in row])
    ends = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    flat = np.array([one for text in ids for one in text], dtype=np.int32)
    none = np.zeros(0, dtype=np.uint8)
    labels, text_ends = np.full(len(rows), np.nan), np.zeros(len(rows) * (columns + 1) + 1, dtype=np.int64)
    return TokenCache(Path("-"), "", columns, (), (), labels, flat, ends, none, text_ends)


def table(task: "Task", outputs: "np.ndarray", texts: Sequence[Texts]) -> Iterator[Texts]:
    """An output row for each input, in order; the input's texts are its last columns.

    Before them: class, class name and probability of the class (sentiment); 0.0 or 1.0, and the probability of that
    class (paraphrase); or the similarity from 0 to 5.
    """
    shares = task.probabilities(outputs)
    for row, value in enumerate(task.predict(outputs).tolist()):
        if shares is None:
            yield (f"{value:.4f}", *texts[row])
            continue
        named = [task.classes[int(value)]] if len(task.classes) > 2 else []
        yield (task.written(value), *named, f"{shares[row, int(value)]:.4f}", *texts[row])


def header(task: "Task") -> Texts:
    """The names of the columns of `table`."""
    texts = ("sentence",) if task.columns == 1 else ("sentence1", "sentence2")
    if not task.classes:
        return (task.title, *texts)
    if len(task.classes) == 2:
        return (f"is_{task.classes[1].replace(' ', '_')}", "probability", *texts)
    return ("class", "name", "probability", *texts)


def load(run: Path) -> Predictor:
    """Load the model that a run has kept, to predict in the precision of the run.

    Raises `UserError` if `run` is not a finished fine-tuning run.
    """
    settings, step = kept(run)
    from minbert import weights
    from minbert.bert import BertModel
    from minbert.config import BertConfig
    from minbert.cpu import accelerate
    from minbert.precision import choose, default_device
    from minbert.tokenizer import Tokenizer
    from minbert.training import checkpoint, start
    from tasks import registry
    from tasks.model import MultitaskModel

    device = default_device()
    config, tokenizer = BertConfig.read(run / "encoder"), Tokenizer.load(run / "encoder")
    tasks = registry.build(settings["tasks"], settings["pairs"])
    pooler = weights.saved_pooler(run / "encoder") or "cls"
    model = MultitaskModel(accelerate(BertModel(config)), tasks, dropout=0.0, pooler=pooler)
    if not checkpoint.folder_of(run / "checkpoints", step).is_dir():
        raise UserError(f"{run / 'checkpoints'}: the checkpoint that was kept, of step {step}, is not there")
    checkpoint.load(run / "checkpoints", step, model)
    length = start.max_length(settings["max_length"], config)
    precision = choose(str(read_json_object(run / "manifest.json").get("precision")), device)
    return Predictor(model.to(device).eval(), tokenizer, length, precision)


def kept(run: Path) -> tuple[dict[str, Any], int]:
    """A run's settings, and the step of the checkpoint that it has kept. Raises `UserError` if it is not finished."""
    if not (run / "manifest.json").is_file():
        raise UserError(f"{run}: not a run folder: it holds no manifest.json")
    settings = read_json_object(run / "manifest.json").get("all_settings")
    if not isinstance(settings, dict) or not {"tasks", "pairs", "max_length"} <= settings.keys():
        raise UserError(f"{run}: holds no heads: only runs of multitask_train.py can predict")
    if not (run / "scores.json").is_file():
        raise UserError(f"{run}: has no scores.json that names the step it keeps: let the run finish first (--resume)")
    step = read_json_object(run / "scores.json").get("step")
    if not isinstance(step, int):
        raise UserError(f"{run / 'scores.json'}: names no step that the run keeps")
    return settings, step


def recorded_file(run: Path, task: str, split: str, data: Path | None = None) -> tuple[Path, str]:
    """The file that a run read for a task and a split, and the columns that `--columns` named in it.

    It is the file of the recorded name in `data/course` or `data`, or else the recorded one. Raises `UserError` if
    there is none, or if its hash is not the recorded one.
    """
    from tasks import readers
    from tasks.settings import MultitaskSettings

    manifest = read_json_object(run / "manifest.json")
    account = ((manifest.get("data") or {}).get(split) or {}).get(task)
    if not isinstance(account, dict) or not {"file", "sha256"} <= account.keys():
        raise UserError(f"{run / 'manifest.json'}: names no {split} file of {task}")
    recorded = Path(account["file"])
    places = [data / "course" / recorded.name, data / recorded.name, recorded] if data else [recorded]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(f"{recorded}: no such file; give the folder that holds {recorded.name} with --data DIR")
    if readers.digest(path) != account["sha256"]:
        raise UserError(f"{path}: not the file that {run} was made with (its hash is not the recorded one)")
    known = manifest["all_settings"]
    settings = {name: known[name] for name in ("tasks", "columns") if name in known}
    return path, MultitaskSettings.of(**settings).data.columns_of(task)


def lines_of(lines: Iterable[bytes], source: str, columns: int) -> Iterator[Texts]:
    """The inputs of a file: one sentence per line, or two separated by a TAB. Blank lines are skipped and counted.

    Raises `UserError` with the line number if a line is not UTF-8, or does not hold `columns` texts.
    """
    blank = 0
    for number, raw in enumerate(lines, start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise UserError(f"{source}:{number}: not UTF-8") from error
        if not line.strip():
            blank += 1
            continue
        texts = tuple(" ".join(text.split()) for text in (line.split("\t") if columns > 1 else [line]))
        if len(texts) != columns or not all(texts):
            raise UserError(f"{source}:{number}: not two sentences with one TAB between them")
        yield texts
    if blank:
        print(f"note: {source}: {blank:,} blank line{'s' * (blank > 1)} left out", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Command line: load the model and write predictions to standard output while input is read."""
    about = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.predict", description=about, allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run of multitask_train.py")
    parser.add_argument("--task", required=True, metavar="NAME", help="which head: sst, para, sts or one of your own")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="the sentences (default: standard input)")
    given = parser.parse_intermixed_args(arguments)
    from tasks.registry import named  # here because it imports torch

    name = named(given.task)
    source = "standard input" if given.file == "-" else given.file
    with nullcontext(sys.stdin.buffer) if given.file == "-" else open(present(Path(given.file)), "rb") as lines:
        predictor = load(given.run)
        if name not in predictor.model.tasks:
            trained = ", ".join(predictor.model.tasks)
            raise UserError(f"{given.run}: has no head for {name}: it was trained on {trained}")
        task = predictor.model.tasks[name]
        _write(predictor, task, lines_of(lines, source, task.columns), source)


def _write(predictor: Predictor, task: "Task", inputs: Iterator[Texts], source: str) -> None:
    from tasks import evaluate

    chunk = list(islice(inputs, _CHUNK))  # read before the header, so that an error in these lines leaves no output
    print("\t".join(header(task)))
    cut = count = 0
    while chunk:
        examples = predictor.examples(task, chunk)
        outputs = evaluate.outputs(predictor.model, task, examples, predictor.precision)
        for row in table(task, outputs, chunk):
            print("\t".join(row))
        sys.stdout.flush()
        cut, count = (total + more for total, more in zip((cut, count), examples.truncated(task.pairs), strict=True))
        chunk = list(islice(inputs, _CHUNK))
    if cut:
        longer = f"longer than {predictor.max_length} tokens and are truncated"
        print(f"note: {source}: {cut:,} of {count:,} inputs are {longer}", file=sys.stderr)


def command() -> NoReturn:
    """The console command `minbert-predict`: run `main`, and exit with its code."""
    cli.run(main)


if __name__ == "__main__":
    command()
