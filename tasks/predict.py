"""Predict your own sentences with the heads of a finished run, and write a table to standard output.

python -m tasks.predict runs/multitask --task sst reviews.csv > classes.tsv
printf 'A man is eating.\\tSomeone eats.\\n' | python -m tasks.predict runs/multitask --task sts

The input is a table (CSV, TSV, JSON lines) with the headers that training reads, whose labels are ignored; or one
sentence a line, for quora and sts two with a TAB between them. For a task of your own the output is the input with
predictions added, and rows with a label are scored; its pairs have to be a table. From Python:
`tasks.predict.load(RUN).predict("sst", [...])`.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from minbert import token_cache
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError, format_count
from minbert.fast import accelerate
from minbert.files import expand_user, require_file
from minbert.precision import choose, default_device, supports_bf16
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from minbert.train import checkpoint, cli, distributed, start
from tasks import evaluate, readers, registry
from tasks.examples import Examples, check_vocabulary, note_truncated
from tasks.manifests import fine_tuned
from tasks.model import MultitaskModel
from tasks.task import Task

Sentences = str | Iterable[str] | Iterable[Sequence[str]]
"""Sentences, or one, for a task over single sentences; pairs of sentences for a task over pairs."""


@dataclass(frozen=True)
class Predictor:
    """The model that a run has kept. Tasks are named as in `--tasks`: sst, quora, sts.

    All methods raise `UserError` for a task that the run has no head for, and for inputs of another shape.
    """

    model: MultitaskModel
    tokenizer: Tokenizer
    max_length: int
    precision: str
    as_written: frozenset[str] = frozenset()
    """The tasks whose training file was not the course's, so that its texts were not preprocessed."""

    def predict(self, task: str, inputs: Sentences) -> np.ndarray:
        """The class of each input (sst 0 to 4, quora 0 or 1), or its score (sts 0 to 5): float64 [inputs].

        A number for a single sentence.
        """
        head = self.task(task)
        examples = self.examples(head, inputs)
        if not len(examples):
            return np.zeros(0)
        predicted = head.predict(self.outputs(head, examples))
        return predicted[0] if isinstance(inputs, str) else predicted

    def predict_proba(self, task: str, inputs: Sentences) -> np.ndarray:
        """The probability of each class: float64 [inputs, classes], or [classes] for a single sentence.

        Raises `UserError` for a task without classes.
        """
        head = self.task(task)
        if not head.classes:
            raise UserError(f"{task}: predicts a score, and has no classes with probabilities")
        examples = self.examples(head, inputs)
        if not len(examples):
            return np.zeros((0, len(head.classes)))
        probabilities = head.probabilities(self.outputs(head, examples))
        assert probabilities is not None
        return probabilities[0] if isinstance(inputs, str) else probabilities

    def task(self, name: str, flag: str = "task") -> Task:
        """The task with this name or short name; messages begin with `flag`."""
        return self.model.tasks[registry.resolve_task(name, flag, self.model.tasks)]

    def outputs(self, task: Task, examples: Examples) -> np.ndarray:
        """The head's outputs: float32 [rows] or [rows, C]."""
        return evaluate.outputs(self.model, task, examples, self.precision)

    def examples(self, task: Task, inputs: Sentences) -> Examples:
        """Inputs as examples of a task, preprocessed as its training file was."""
        rows = texts_of(inputs, task)
        # a model has learned texts as they were preprocessed: others would have other tokens
        clean: Callable[[str], str]
        if task.name in self.as_written:
            clean = str.strip
        elif task.kind == "single":
            clean = readers.clean_sentence
        else:
            clean = readers.clean_pair
        cleaned = [Row("", tuple(map(clean, row))) for row in rows]
        cache = token_cache.in_memory(cleaned, self.tokenizer)
        return Examples(cache, self.tokenizer, self.max_length)


def texts_of(inputs: Sentences, task: Task) -> list[tuple[str, ...]]:
    """The texts of each input. Raises `UserError` with the index of one that is no sentence or pair of sentences."""
    label = task.files.flag_prefix
    noun = "sentence" if task.num_texts == 1 else "pair of sentences"
    plural = "sentences" if task.num_texts == 1 else "pairs of sentences"
    if isinstance(inputs, str) and task.num_texts == 1:
        inputs = [inputs]
    if not _is_list(inputs):
        raise UserError(f"{label}: the inputs are a {type(inputs).__name__}, not a list of {plural}")
    rows = []
    for index, item in enumerate(inputs):
        texts = (item,) if isinstance(item, str) and task.num_texts == 1 else item
        problem = ""
        if not _is_list(texts):
            problem = f"is a {type(item).__name__}, not a {noun}"
        elif len(texts) != task.num_texts:
            problem = f"holds {format_count(len(texts), 'texts')}, not {task.num_texts}"
        elif not all(isinstance(text, str) for text in texts):
            problem = f"holds a {' and a '.join(type(text).__name__ for text in texts)}, not text"
        if problem:
            raise UserError(f"{label}: input {index}, counted from 0, {problem}")
        rows.append(tuple(texts))
    return rows


def _is_list(value: object) -> bool:
    """Whether iterating a value gives its items in order: a table or a dictionary gives names, a set has no order."""
    if isinstance(value, str | bytes | Mapping | Set) or hasattr(value, "columns"):
        return False
    return isinstance(value, Iterable)


def load(run: Path | str) -> Predictor:
    """Load the model that a run has kept, to predict in the precision of the run.

    Raises `UserError` if `run` is not a finished run of multitask_train.py.
    """
    run = expand_user(run)
    manifest, scores = fine_tuned(run)
    settings = manifest["all_settings"]
    device = default_device()
    config = BertConfig.read(run / "encoder")
    tokenizer = Tokenizer.load(run / "encoder")
    tasks = registry.build(settings["tasks"], settings["pairs"], recorded=manifest.get("own_tasks", {}))
    # with_weights, as weights may have no pooling layer
    encoder = accelerate(BertModel.with_weights(run / "encoder", config))
    model = MultitaskModel(encoder, tasks, dropout=0.0, pooler=settings["pooler"])
    checkpoint.load(run / "checkpoints", scores["step"], model)
    length = start.resolve_max_length(settings["max_length"], config)
    precision = manifest["precision"]
    # the run's machine may have had what this one has not
    if (precision == "fp16" and device.type == "cpu") or (precision == "bf16" and not supports_bf16(device)):
        precision = "auto"
    as_written = set()
    for task, entry in manifest["data"].get("train", {}).items():
        if not entry.get("course", True):
            as_written.add(task)
    return Predictor(model.to(device).eval(), tokenizer, length, choose(precision, device), frozenset(as_written))


@contextmanager
def _input_file(source: str) -> Iterator[tuple[Path, str]]:
    """A file, or one with what is on standard input (`-`), and how messages name it."""
    if source != "-":
        yield Path(source), source
        return
    name = "standard input"
    with tempfile.TemporaryDirectory() as folder:
        # the readers look at the first lines before they read
        path = Path(folder) / "standard-input"
        path.write_bytes(sys.stdin.buffer.read())
        try:
            yield path, name
        except UserError as error:
            raise UserError(str(error).replace(str(path), name)) from error


def main(arguments: list[str] | None = None) -> None:
    """Command line: load the model, read the inputs, and write a table to standard output."""
    parser = cli.Parser(prog="python -m tasks.predict", doc=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run of multitask_train.py")
    parser.add_argument("--task", required=True, metavar="NAME", help="which head: sst, quora, sts or one of your own")
    file_help = "a table with a header, or one sentence a line (default: standard input)"
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help=file_help)
    unknown_help = "predict even if over half of the tokens are unknown to the encoder's vocabulary"
    parser.add_argument("--allow-unknown", action="store_true", help=unknown_help)
    options = parser.parse_intermixed_args(arguments)

    if options.file != "-":
        require_file(Path(options.file))
    predictor = load(options.run)
    task = predictor.task(options.task, "--task")
    with _input_file(options.file) as (path, name):
        content = task.read_inputs(path)
        rows = content.rows
        if content.skipped:
            count = len(rows) + len(content.skipped)
            distributed.note(f"{name}: {len(content.skipped):,} of {count:,} rows have no text and are left out")
        notes = [row.note for row in rows if row.note]
        if notes:
            distributed.note(f"{name}: {len(notes):,} of {len(rows):,} rows are not scored; {notes[0]}")
        examples = predictor.examples(task, [row.texts for row in rows])
        check_vocabulary(name, examples, allow=options.allow_unknown)
        note_truncated(name, examples, task.pairs)
        outputs = predictor.outputs(task, examples)
        gold = np.array([row.label for row in rows])
        if not np.isnan(gold).all():
            report = evaluate.report(task, task.predict(outputs), gold)
            print(evaluate.tables({task.name: report}, rows="labelled rows"), file=sys.stderr)
            manifest, _ = fine_tuned(options.run)
            if manifest["data"]["train"][task.name]["sha256"] == readers.digest(path):
                distributed.note(f"{name}: the run was trained on rows of this file")
        sys.stdout.write(task.input_table(rows, outputs, path))


command = partial(cli.run, main)
"""The console command `minbert-predict`."""

if __name__ == "__main__":
    command()
