"""What the tests of stage one share: triplets and pairs over the tiny BERT's vocabulary, and a model to train."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.encoder import Encoder
from minbert.ragged import Ragged
from minbert.tokenizer import Tokenizer
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from minbert.train.start import InitialEncoder
from tasks.contrastive.data import Data
from tasks.contrastive.step import ContrastiveModel, ContrastiveTrainStep
from tasks.examples import Examples
from tasks.readers.senteval import STS

SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
ANCHORS = ["the cat sat on a mat", "a dog runs", "the bird is happy", "who is sad ?", "a tree", "the dog sleeps"]
POSITIVES = ["a cat sat", "the dog runs on", "the bird is not sad", "who is not happy ?", "the tree .", "a dog sleeps"]
NEGATIVES = ["a cat runs", "the dog sleeps", "the bird is sad", "what is happy ?", "the mat", "the dog runs !"]
LABELS = [0.0, 2.0, 1.0, 0.0, 1.0, 2.0]


def texts_of(examples: Examples) -> list[tuple[str, ...]]:
    """The texts of every row."""
    return [row.texts for row in examples.cache.rows()]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_pairs(path: Path, pairs: Sequence[tuple[str, str, str]]) -> Path:
    """A file of labelled NLI pairs: (premise, hypothesis, label)."""
    lines = ["premise\thypothesis\tlabel", *map("\t".join, pairs)]
    return write(path, "\n".join(lines) + "\n")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes from the cache of another test."""
    monkeypatch.setenv("MINBERT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """SentEval's layout with two pairs a file, the second of STS12-16 without a score; Chinese files under zh/."""
    base = tmp_path / "downstream"
    for folder, subsets in STS.values():
        for subset in subsets:
            name = f"{folder[4:9]} {subset}"
            write(base / folder / f"STS.input.{subset}.txt", f"A {name} tap.\tThe {name} tap.\nA {name} cup.\tA cup.\n")
            write(base / folder / f"STS.gs.{subset}.txt", "4.2\n\n")
    for split, sick in (("train", "SICK_train"), ("dev", "SICK_trial"), ("test", "SICK_test_annotated")):
        rows = f"news\tf\t2015\t1\t3.0\tOld {split} mill\tA mill\nnews\tf\t2015\t2\t1.5\tA cup!\tNew {split} mill\n"
        write(base / "STS/STSBenchmark" / f"sts-{split}.csv", rows)
        row = f"1\tA goat is in {split}\tThe goat rests\t4.5\tENTAILMENT\n"
        write(base / "SICK" / f"{sick}.txt", SICK_HEADER + row)
    write(tmp_path / "zh/ATEC/atec_train.csv", "1\t花呗怎么还款\t怎么还花呗\t1\r\n2\t花呗怎么还款\t额度多少\t0\r\n")
    write(tmp_path / "zh/ATEC_CCKS/train.csv", "text_1\ttext_2\tlabel\n不读这句\t也不读\t0\n")  # ATEC's own is there
    write(tmp_path / "zh/ATEC_CCKS/test.csv", "text_1\ttext_2\tlabel\n额度 多少\t利息多少\t0\n")
    write(tmp_path / "zh/STS-B/cnsd-sts-train.txt", "a||旧的写法。||鱼在游||2\n")
    write(tmp_path / "zh/STS-B/sts-b-train.txt", "鸟在飞。\t鱼在游\t2\n")
    return tmp_path


@pytest.fixture
def unlabelled(examples_of: Callable[..., Any]) -> Examples:
    """Six texts."""
    return examples_of([*zip(ANCHORS, strict=True)])


@pytest.fixture
def labelled(examples_of: Callable[..., Any]) -> Examples:
    """Six labelled pairs."""
    return examples_of([*zip(ANCHORS, POSITIVES, strict=True)], LABELS)


@pytest.fixture
def triplets(examples_of: Callable[..., Any]) -> Examples:
    """Six triplets."""
    return examples_of([*zip(ANCHORS, POSITIVES, NEGATIVES, strict=True)])


@pytest.fixture
def initial(tiny: Path) -> InitialEncoder:
    """The tiny BERT as a command loads it, for sentences of up to 64 tokens."""
    tokenizer = Tokenizer.load(tiny)
    return InitialEncoder(BertModel.from_pretrained(tiny), tokenizer, "mean", 64, tiny, BertConfig.read(tiny))


@pytest.fixture
def bert(tiny: Path) -> BertModel:
    """The tiny BERT."""
    return BertModel.from_pretrained(tiny)


def run_step(
    step: ContrastiveTrainStep, model: ContrastiveModel, rows: np.ndarray
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The metrics and the gradients, by name, of step 7, in epoch 1, of a run with seed 9."""
    model.zero_grad()
    context = StepContext(9, 7, "fp32", torch.device("cpu"))
    metrics = step.backward(model, PlannedBatch("nli", rows, 1, 7), context)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return metrics, gradients


def vectors_of(model: ContrastiveModel, examples: Examples, rows: np.ndarray) -> list[np.ndarray]:
    """The vectors of each column's texts, one sentence at a time, in float64: [B, D] for each column."""
    columns = []
    for column in range(examples.cache.num_texts):
        vectors = [model.vectors(Ragged.from_lists([examples.sentence(row, column)])) for row in rows]
        columns.append(torch.cat(vectors).detach().double().numpy())
    return columns


Prepared = tuple[ContrastiveTrainStep, Data]


@pytest.fixture
def prepare(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Prepared]:
    """A function that runs a command up to its first step: its training step, and its data."""

    def up_to_first_step(command: ModuleType, *flags: object) -> Prepared:
        prepared: list[Prepared] = []

        def fit_and_save(_run: Any, _initial: Any, _model: Any, step: Any, _plan: Any, data: Data, **_: Any) -> None:
            prepared.append((step, data))

        monkeypatch.setattr(command, "fit_and_save", fit_and_save)
        usual = ("--weights", tiny, "--pooler", "mean", "--batch-size", 2, "--run-dir", tmp_path / "run")
        monkeypatch.setattr("sys.argv", ["command", *map(str, (*usual, *flags))])
        command.main()
        return prepared[0]

    return up_to_first_step


@pytest.fixture
def encoder(tiny: Path) -> Encoder:
    """The tiny BERT with the mean over tokens, in fp32."""
    return Encoder.load(tiny, pooler="mean", precision="fp32")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The pooler, and the number of texts, of every call of an encoder from now on."""
    calls: list[tuple[str, int]] = []
    encode_ids = Encoder.encode_ids

    def spy(self: Encoder, rows: Any, **options: Any) -> np.ndarray:
        calls.append((self.pooler, len(rows)))
        return encode_ids(self, rows, **options)

    monkeypatch.setattr(Encoder, "encode_ids", spy)
    return calls


@pytest.fixture(scope="session")
def identity_model() -> Any:
    """A model of sentence-transformers whose outputs are its inputs."""
    from sentence_transformers import SentenceTransformer

    class Identity(torch.nn.Module):
        def forward(self, features: dict[str, Any]) -> dict[str, Any]:
            return features

    return SentenceTransformer(modules=[Identity()], device="cpu")
