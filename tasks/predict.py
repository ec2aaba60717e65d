"""Predict your own sentences with the heads of a finished run, and write a TSV table to standard output.

python -m tasks.predict runs/multitask --task sst reviews.csv > classes.tsv
printf 'A man is eating.\\tSomeone eats.\\n' | python -m tasks.predict runs/multitask --task sts

The input is a table (CSV, TSV, JSON lines) with the headers that training reads, whose labels are ignored; or one
sentence a line, for pairs two with a TAB between them. For a task of your own the output is the input with predictions
added, and rows with a label are scored. From Python: `tasks.predict.load(RUN).predict("sst", [...])`.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from minbert import token_cache
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError
from minbert.fast import accelerate
from minbert.files import read_json_object, require_file
from minbert.precision import choose, default_device, supports_bf16
from minbert.token_cache import Row
from minbert.tokenizer import Tokenizer
from minbert.train import checkpoint, cli, start
from tasks import evaluate, readers, registry
from tasks.examples import Examples, check_vocabulary
from tasks.model import MultitaskModel
from tasks.own import OwnTask
from tasks.readers import DataFile
from tasks.runs import finished
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
        trained = self.model.tasks
        task_name = name if name in trained else registry.resolve_task(name, flag, trained)
        if task_name not in trained:
            raise UserError(f"{flag}: the run has no head for {task_name}: it was trained on {', '.join(trained)}")
        return trained[task_name]

    def outputs(self, task: Task, examples: Any) -> np.ndarray:
        """The head's outputs: float32 [rows] or [rows, C]."""
        return evaluate.outputs(self.model, task, examples, self.precision)

    def examples(self, task: Task, inputs: Sentences) -> Any:
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
        return Examples(cache, self.tokenizer.cls, self.tokenizer.sep, self.max_length)


def texts_of(inputs: Sentences, task: Task) -> list[tuple[str, ...]]:
    """The texts of each input. Raises `UserError` with the index of one that is no sentence or pair of sentences."""
    label = task.files.flag_prefix
    noun = "a sentence" if task.num_texts == 1 else "a pair of sentences"
    if isinstance(inputs, str) and task.num_texts == 1:
        inputs = [inputs]
    if not _is_list(inputs):
        plural = "sentences" if task.num_texts == 1 else "pairs of sentences"
        raise UserError(f"{label}: the inputs are a {type(inputs).__name__}, not a list of {plural}")
    rows = []
    for index, item in enumerate(inputs):
        place = f"{label}: input {index}, counted from 0,"
        if isinstance(item, str) and task.num_texts == 1:
            item = (item,)
        if not _is_list(item):
            raise UserError(f"{place} is a {type(item).__name__}, not {noun}")
        texts = tuple(item)
        if len(texts) != task.num_texts:
            raise UserError(f"{place} holds {len(texts)} text{'s' * (len(texts) != 1)}, not {task.num_texts}")
        for text in texts:
            if not isinstance(text, str):
                raise UserError(f"{place} holds a {type(text).__name__}, not text")
            if readers.NOT_TEXT.search(text):
                raise UserError(f"{place} is not text: it holds a NUL or an unpaired surrogate")
        rows.append(texts)
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
    run = Path(run)
    manifest, step = kept(run)
    settings = manifest["all_settings"]
    device = default_device()
    config = BertConfig.read(run / "encoder")
    tokenizer = Tokenizer.load(run / "encoder")
    tasks = registry.build(settings["tasks"], settings["pairs"], recorded=manifest.get("own_tasks", {}))
    # with_weights, as weights may have no pooling layer
    encoder = accelerate(BertModel.with_weights(run / "encoder", config))
    model = MultitaskModel(encoder, tasks, dropout=0.0, pooler=settings["pooler"])
    checkpoint.load(run / "checkpoints", step, model)
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


def kept(run: Path) -> tuple[dict[str, Any], int]:
    """The manifest of a finished run of stage two, and the step of the checkpoint that it has kept.

    Raises `UserError` if `run` is not one.
    """
    manifest, scores = finished(run)
    if "tasks" not in manifest.get("all_settings", {}):
        raise UserError(f"{run}: holds no heads: only runs of multitask_train.py can predict")
    return manifest, scores["step"]


def recorded_file(run: Path, task: str, split: str, data: Path | None = None) -> Path:
    """The file that a run read for a task and a split.

    It is the file of the recorded name in `data/course` or `data`, or else the recorded one. Raises `UserError` if
    there is none, or if its hash is not the recorded one.
    """
    entry = read_json_object(run / "manifest.json")["data"].get(split, {}).get(task)
    if entry is None:
        raise UserError(f"{run / 'manifest.json'}: names no {split} file of {task}")
    recorded = Path(entry["file"])
    candidates = [recorded]
    if data is not None:
        candidates = [data / "course" / recorded.name, data / recorded.name, recorded]
    for path in candidates:
        if path.is_file():
            if readers.digest(path) != entry["sha256"]:
                raise UserError(f"{path}: not the file that {run} was made with (its hash is not the recorded one)")
            return path
    raise UserError(f"{recorded}: no such file; give the folder that holds {recorded.name} with --data DIR")


def table(task: Task, outputs: np.ndarray, rows: Sequence[Row]) -> dict[str, list[str]]:
    """The cells of each column, by its name: the rows' ids, the predictions, and the texts.

    The prediction is a class, its name and its probability (sentiment); 0.0 or 1.0 and the probability of 1.0
    (paraphrase); or the similarity from 0 to 5.
    """
    predicted = task.predict(outputs).tolist()
    probabilities = task.probabilities(outputs)
    columns = {"id": [row.id for row in rows]}
    if probabilities is None:
        columns[task.title] = [f"{value:.4f}" for value in predicted]
    else:
        labels = [int(value) for value in predicted]
        written = [task.format_prediction(value) for value in predicted]
        if len(task.classes) > 2:
            columns["class"] = written
            columns["name"] = [task.classes[label] for label in labels]
            columns["probability"] = [f"{probabilities[row, label]:.4f}" for row, label in enumerate(labels)]
        else:
            columns[f"is_{task.classes[1].replace(' ', '_')}"] = written
            columns["probability"] = [f"{value:.4f}" for value in probabilities[:, 1]]
    names = ("sentence",) if task.num_texts == 1 else ("sentence1", "sentence2")
    for column, name in enumerate(names):
        # a TAB or a line end inside a text would be one of the table's
        columns[name] = [" ".join(row.texts[column].split()) for row in rows]
    return columns


def read_inputs(source: str, task: Task) -> list[Row]:
    """The rows of a file, or of standard input (`-`), without their labels.

    Rows without a sentence are left out, with a note. Raises `UserError` if the file has another form, or no row.
    """
    with _input_file(source) as (path, name):
        content = readers.read_texts(path, like=task.kind)
    if not content.rows:
        noun = "sentence" if task.num_texts == 1 else "pair of sentences"
        raise UserError(f"{name}: holds no {noun}")
    _note_skipped(content, name)
    return content.rows


def predict_own(predictor: Predictor, task: OwnTask, source: str, *, allow_unknown: bool = False) -> str:
    """A file, or standard input (`-`), with the predictions of a task of the user's own.

    Rows with a valid label are scored, to standard error. Raises `UserError` if the file has another form, or no row.
    """
    with _input_file(source) as (path, name):
        content = task.read_inputs(path)
        _note_skipped(content, name)
        examples = predictor.examples(task, [row.texts for row in content.rows])
        _check_inputs(predictor, task, examples, name, allow_unknown=allow_unknown)
        outputs = predictor.outputs(task, examples)
        predicted = task.predict(outputs)
        gold = np.array([row.label for row in content.rows])
        if not np.isnan(gold).all():
            report = evaluate.report(task, predicted, gold)
            print(evaluate.tables({task.name: report}, rows="labelled rows"), file=sys.stderr)
        ids = [row.id for row in content.rows]
        return task.prediction_text(ids, predicted, task.probabilities(outputs), path, "")


@contextmanager
def _input_file(source: str) -> Iterator[tuple[Path, str]]:
    """A file, or one with what is on standard input (`-`), and how messages name it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(source)
        name = source
        if source == "-":
            # the readers look at the first lines before they read
            path = Path(folder) / "standard-input"
            path.write_bytes(sys.stdin.buffer.read())
            name = "standard input"
        try:
            yield path, name
        except UserError as error:
            raise UserError(str(error).replace(str(path), name)) from error


def _note_skipped(content: DataFile, name: str) -> None:
    if content.skipped:
        count = len(content.rows) + len(content.skipped)
        print(f"note: {name}: {len(content.skipped):,} of {count:,} rows without a sentence", file=sys.stderr)


def _check_inputs(predictor: Predictor, task: Task, examples: Examples, name: str, *, allow_unknown: bool) -> None:
    """Note inputs that are truncated. Raises `UserError` if the encoder does not know most tokens."""
    check_vocabulary(name, examples.cache, predictor.tokenizer, allow=allow_unknown)
    cut, count = examples.truncated(task.pairs)
    if cut:
        longer = f"longer than {predictor.max_length} tokens and are truncated"
        print(f"note: {name}: {cut:,} of {count:,} inputs are {longer}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    """Command line: load the model, read the inputs, and write a TSV table to standard output."""
    description = (__doc__ or "").splitlines()[0]
    parser = cli.Parser(prog="python -m tasks.predict", description=description, allow_abbrev=False)
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
    if isinstance(task, OwnTask):
        sys.stdout.write(predict_own(predictor, task, options.file, allow_unknown=options.allow_unknown))
        return
    rows = read_inputs(options.file, task)
    examples = predictor.examples(task, [row.texts for row in rows])
    name = "standard input" if options.file == "-" else options.file
    _check_inputs(predictor, task, examples, name, allow_unknown=options.allow_unknown)
    columns = table(task, predictor.outputs(task, examples), rows)
    print("\t".join(columns))
    for cells in zip(*columns.values(), strict=True):
        print("\t".join(cells))


command = partial(cli.run, main)
"""The console command `minbert-predict`."""

if __name__ == "__main__":
    command()
