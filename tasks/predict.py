"""Predict your own sentences with the heads of a finished run: one per line, pairs separated by a TAB; writes TSV.

python -m tasks.predict runs/multitask --task sst reviews.txt
printf 'A man is eating.\\tSomeone eats.\\n' | python -m tasks.predict runs/multitask --task sts
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from minbert.errors import UserError
from minbert.files import present, read_json
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
    """The model that a run has kept, with what is needed to encode inputs of one task.

    `seen` counts the inputs so far: `all` of them, and those `cut` to `max_length`.
    """

    model: "MultitaskModel"
    task: "Task[Any]"
    tokenizer: "Tokenizer"
    max_length: int
    precision: str
    seen: Counter[str] = field(default_factory=Counter)

    def outputs(self, texts: Sequence[Texts]) -> "np.ndarray":
        """The head's outputs for sentences or pairs, preprocessed as in the course: float32 [rows] or [rows, C]."""
        from tasks import evaluate, readers

        clean = readers.clean_sentence if self.task.kind == "single" else readers.clean_pair
        cache = _cache([tuple(map(clean, row)) for row in texts], self.task.columns, self.tokenizer)
        examples: Any = self.task.examples(cache, self.tokenizer.cls, self.tokenizer.sep, self.max_length)
        cut, inputs = self.task.truncated(examples)
        self.seen.update(cut=cut, all=inputs)
        return evaluate.outputs(self.model, self.task, examples, self.precision)

    def table(self, texts: Sequence[Texts]) -> Iterator[tuple[str, ...]]:
        """An output row for each input, in order; the input's texts are its last columns.

        Before them: class, class name and probability of the class (sentiment); 0.0 or 1.0, and the probability of
        that class (paraphrase); or the similarity from 0 to 5.
        """
        from tasks import evaluate

        outputs = self.outputs(texts)
        shares = evaluate.probabilities(self.task, outputs)
        for row, value in enumerate(self.task.predict(outputs).tolist()):
            found = [self.task.written(value) if shares is not None else f"{value:.4f}"]
            if shares is not None:
                named = [self.task.classes[int(value)]] if len(self.task.classes) > 2 else []
                found += [*named, f"{shares[row, int(value)]:.4f}"]
            yield (*found, *texts[row])


def _cache(rows: Sequence[Texts], columns: int, tokenizer: "Tokenizer") -> "TokenCache":
    """A token cache of texts in memory; nothing is written to disk, and the texts themselves are not stored."""
    import numpy as np

    from minbert.token_cache import TokenCache

    ids = tokenizer.encode([text for row in rows for text in row])
    ends = np.cumsum([0, *map(len, ids)], dtype=np.int64)
    flat = np.array([one for text in ids for one in text], dtype=np.int32)
    none = np.zeros(0, dtype=np.uint8)
    labels, text_ends = np.full(len(rows), np.nan), np.zeros(len(rows) * (columns + 1) + 1, dtype=np.int64)
    return TokenCache(Path("-"), "", columns, (), (), labels, flat, ends, none, text_ends)


def load(run: Path, name: str) -> Predictor:
    """Load the model that a run has kept, to predict the task `name`, such as quora.

    Raises `UserError` if `run` is not a finished fine-tuning run, or has no head for the task.
    """
    settings, step = _read(run, name)
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
    model = MultitaskModel(accelerate(BertModel(config)), tasks, dropout=0.0)
    checkpoint.load(run / "checkpoints", step, model)
    length, precision = start.max_length(settings["max_length"], config), choose(settings["precision"], device)
    return Predictor(model.to(device).eval(), model.tasks[name], tokenizer, length, precision)


def _read(run: Path, name: str) -> tuple[dict[str, Any], int]:
    """A run's settings, and the step of the checkpoint that it has kept."""
    if not (run / "manifest.json").is_file():
        raise UserError(f"{run}: not a run folder: it holds no manifest.json")
    manifest = read_json(run / "manifest.json")
    settings = manifest.get("all_settings") if isinstance(manifest, dict) else None
    if not isinstance(settings, dict) or not {"tasks", "pairs", "max_length", "precision"} <= settings.keys():
        raise UserError(f"{run}: holds no heads: only runs of multitask_train.py can predict")
    trained = [one.strip() for one in str(settings["tasks"]).split(",")]
    if name not in trained:
        raise UserError(f"{run}: has no head for {name}: it was trained on {', '.join(trained)}")
    scores = read_json(run / "scores.json") if (run / "scores.json").is_file() else None
    step = scores.get("step") if isinstance(scores, dict) else None
    if not isinstance(step, int):
        raise UserError(f"{run}: has no scores.json that names the step it keeps: let the run finish first (--resume)")
    from minbert.training import checkpoint

    if not checkpoint.folder_of(run / "checkpoints", step).is_dir():
        raise UserError(f"{run / 'checkpoints'}: the checkpoint that was kept, of step {step}, is not there")
    return settings, step


def read(lines: Iterable[bytes], source: str, columns: int) -> Iterator[Texts]:
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


def _opened(path: str) -> Any:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    return open(present(Path(path)), "rb")


def main(arguments: list[str] | None = None) -> None:
    """Command line: load the model and write predictions to standard output while input is read."""
    about = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.predict", description=about, allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run of multitask_train.py")
    parser.add_argument("--task", required=True, metavar="NAME", help="which head: sst, para, sts or one of your own")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="the sentences (default: standard input)")
    given = parser.parse_intermixed_args(sys.argv[1:] if arguments is None else arguments)
    from tasks.registry import named  # here because it imports torch

    with _opened(given.file) as lines:
        predictor = load(given.run, named(given.task))
        source = "standard input" if given.file == "-" else given.file
        try:
            _write(predictor, read(lines, source, predictor.task.columns), sys.stdout)
            _say_cut(predictor, source)
        except BrokenPipeError:  # the reader closed the pipe; Python would report it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_cut(predictor: Predictor, source: str) -> None:
    cut, inputs = predictor.seen["cut"], predictor.seen["all"]
    if cut:
        longer = f"longer than {predictor.max_length} tokens and are truncated"
        print(f"note: {source}: {cut:,} of {inputs:,} inputs are {longer}", file=sys.stderr)


def _columns(task: "Task[Any]") -> tuple[str, ...]:
    """Header of `Predictor.table`."""
    texts = ("sentence",) if task.columns == 1 else ("sentence1", "sentence2")
    if not task.classes:
        return (task.title, *texts)
    if len(task.classes) == 2:
        return (f"is_{task.classes[1].replace(' ', '_')}", "probability", *texts)
    return ("class", "name", "probability", *texts)


def _write(predictor: Predictor, inputs: Iterator[Texts], out: IO[str]) -> None:
    chunk = list(islice(inputs, _CHUNK))  # read before the header, so that an error in these lines leaves no output
    print("\t".join(_columns(predictor.task)), file=out)
    while chunk:
        for row in predictor.table(chunk):
            print("\t".join(row), file=out)
        out.flush()
        chunk = list(islice(inputs, _CHUNK))


if __name__ == "__main__":
    cli.run(main)
