"""Guards: heads and losses are the paper's, predictions are the encoder plus a head by hand, a frozen encoder stays.

python -m pytest --import-mode=importlib tests/tasks/test_model.py
"""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import rel_entr, softmax
from torch import Tensor, nn
from transformers import BertConfig
from transformers import BertModel as Theirs

from minbert import AdamW, BertModel, Ragged, UserError
from minbert.precision import loss_scaler
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.loop import StepContext
from minbert.train.plan import PlannedBatch
from minbert.weights import their_name
from tasks import TASKS, evaluate
from tasks.model import MultitaskModel, MultitaskTrainStep, build, parameter_groups, take_heads
from tasks.settings import LEADERBOARD, MultitaskSettings, TrainingSettings
from tasks.task import Head
from tests.tasks.test_predict import finished_run

ROOT = Path(__file__).parent.parent.parent
COURSE = ROOT / "data" / "sample" / "course"
PADDED = torch.tensor([[2, 9, 8, 7, 3, 0, 0], [2, 20, 3, 0, 0, 0, 0], [2, 11, 12, 13, 14, 15, 3]])
OTHER = torch.tensor([[2, 30, 3, 0], [2, 31, 32, 3], [2, 33, 3, 0]])


@pytest.fixture
def make(tiny: Path) -> Callable[..., MultitaskModel]:
    def build(pairs: str = "cross", dropout: float = 0.0, **more: Any) -> MultitaskModel:
        tasks = [TASKS[name](pairs) for name in LEADERBOARD]
        return MultitaskModel(BertModel.from_pretrained(tiny), tasks, dropout, **more).eval()

    return build


@pytest.fixture
def examples(tiny: Path) -> dict:
    tokenizer = Tokenizer.load(tiny)
    tasks = [TASKS[name]("cross") for name in LEADERBOARD]
    return {task.name: task.open(COURSE / task.files.dev, "dev", tokenizer, 48) for task in tasks}


def loss_of_step(
    model: MultitaskModel,
    examples: dict,
    task: str,
    rows: np.ndarray,
    *,
    number: int = 0,
    seed: int = 1,
    precision: str = "fp32",
    scale: float = 1.0,
    **more: Any,
) -> Tensor:
    """The loss of a training step, whose gradients it leaves."""
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    context = StepContext(seed, number, precision, torch.device("cpu"), scaler)
    return MultitaskTrainStep(examples, **more).backward(model, PlannedBatch(task, rows, 0, 0), context)["loss"]


def by_hand(head: nn.Sequential, x: Tensor) -> Tensor:
    """Linear 512, ReLU, Linear 256, ReLU, Linear (CBCL, section 4.2)."""
    first, second, third = [layer for layer in head if isinstance(layer, nn.Linear)]
    return third(F.relu(second(F.relu(first(x)))))


def trimmed(ids: Tensor) -> list[list[int]]:
    """The rows without padding."""
    return [row[row > 0].tolist() for row in ids]


def theirs(encoder: BertModel, rows: list[list[int]], types: list[list[int]] | None = None) -> list[Any]:
    """transformers' outputs for each row alone, unpadded."""
    reference = Theirs(BertConfig(**encoder.config.to_transformers())).eval()
    reference.load_state_dict({their_name(name): x for name, x in encoder.state_dict().items()}, strict=True)
    types = types or [[0] * len(row) for row in rows]
    outputs = []
    for ids, types_of_row in zip(rows, types, strict=True):
        outputs.append(reference(torch.tensor([ids]), token_type_ids=torch.tensor([types_of_row])))
    return outputs


def pooled(model: MultitaskModel, rows: list[list[int]], types: list[list[int]] | None = None) -> Tensor:
    """transformers' pooler output, or the mean of its last hidden states, of each row alone, unpadded."""
    outputs = theirs(model.encoder, rows, types)
    if model.vectors.pooler == "mean":
        return torch.cat([output.last_hidden_state.mean(1) for output in outputs])
    return torch.cat([output.pooler_output for output in outputs])


def compared(encoder: BertModel, first: list[list[int]], second: list[list[int]]) -> Tensor:
    """[|u - v|; u * v; 5 cos(u, v)] of transformers' mean vectors, scaled to length sqrt(D)."""

    def scaled_means(rows: list[list[int]]) -> Tensor:
        means = torch.cat([output.last_hidden_state.mean(1) for output in theirs(encoder, rows)])
        return math.sqrt(means.shape[1]) * means / means.norm(dim=1, keepdim=True)

    u = scaled_means(first)
    v = scaled_means(second)
    return torch.cat([(u - v).abs(), u * v, 5 * torch.cosine_similarity(u, v)[:, None]], dim=1)


@torch.no_grad()
@pytest.mark.parametrize("pooler", ["pooler", "mean"])
def test_predict_sentiment_is_encoder_and_head(make: Callable, pooler: str) -> None:
    model = make(pooler=pooler)
    logits = model.predict_sentiment(PADDED, (PADDED > 0).long())
    assert logits.shape == (3, 5)
    expected = by_hand(model.heads["sst"].layers, pooled(model, trimmed(PADDED)))
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("pooler", ["pooler", "mean"])
@pytest.mark.parametrize("pairs", ["cross", "paper", "bi", "joint"])
def test_pair_predictions_are_encoder_and_head(make: Callable, pairs: str, pooler: str) -> None:
    model = make(pairs, pooler=pooler)
    for parameter in model.encoder.parameters():  # as after training
        parameter.mul_(1.1)
    first = trimmed(PADDED)
    second = trimmed(OTHER)
    if pairs == "bi":
        u = pooled(model, first)
        v = pooled(model, second)
        features = torch.cat([u, v, (u - v).abs()], dim=1)
    elif pairs == "paper":
        features = pooled(model, [a + b for a, b in zip(first, second, strict=True)])
    else:
        second_without_cls = [ids[1:] for ids in second]
        rows = [a + b for a, b in zip(first, second_without_cls, strict=True)]
        types = [[0] * len(a) + [1] * len(b) for a, b in zip(first, second_without_cls, strict=True)]
        features = pooled(model, rows, types)
    if pairs == "joint":
        assert not model.train().sentence_encoder.training, "the encoder that is not trained has no dropout"
        model.eval()
        features = torch.cat([features, compared(model.sentence_encoder, first, second)], dim=1)
    inputs = (PADDED, (PADDED > 0).long(), OTHER, (OTHER > 0).long())
    expected = by_hand(model.heads["quora"].layers, features)[:, 0]
    torch.testing.assert_close(model.predict_paraphrase(*inputs), expected, atol=1e-5, rtol=1e-4)
    expected = 5 * torch.sigmoid(by_hand(model.heads["sts"].inner.layers, features)[:, 0])
    torch.testing.assert_close(model.predict_similarity(*inputs), expected, atol=1e-5, rtol=1e-4)


def test_heads_drop_out_as_papers_do(make: Callable) -> None:
    heads = make(dropout=0.4).heads
    for layers, kinds in ((heads["sst"].layers, "DLRLRL"), (heads["sts"].inner.layers, "DLRDLRL")):
        assert "".join(type(layer).__name__[0] for layer in layers) == kinds
        assert {layer.p for layer in layers if isinstance(layer, nn.Dropout)} == {0.4}


@torch.no_grad()
def test_predictions_are_independent_of_batch_mates(make: Callable, examples: dict) -> None:
    model = make()
    for name, rows in examples.items():
        together = evaluate.outputs(model, model.tasks[name], rows, "fp32")
        assert len(together) == len(rows)
        for row in (0, 7, len(rows) - 1):
            alone = model(name, model.tasks[name].encode(rows, np.array([row])))
            np.testing.assert_allclose(together[row], alone[0].numpy(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("batch_tokens", [99, 100_000], ids=["several batches", "ranks without a batch"])
def test_ranks_have_outputs_of_one_process(
    make: Callable, examples: dict, batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    batches = partial(evaluate.batches_by_length, batch_tokens=batch_tokens)
    monkeypatch.setattr(evaluate, "batches_by_length", lambda lengths, batch_tokens: batches(lengths))
    monkeypatch.setattr(distributed, "world", lambda: 3)
    for name, rows in examples.items():
        whole = evaluate.outputs(model, model.tasks[name], rows, "fp32")
        parts = []
        for rank in range(3):
            monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
            part = evaluate.outputs(model, model.tasks[name], rows, "fp32", divided=True)
            if batch_tokens == 99:
                assert 0 < np.count_nonzero(part) < np.count_nonzero(whole)
            elif rank > 0:
                assert not part.any(), "the only batch is rank 0's"
            parts.append(part)
        np.testing.assert_array_equal(sum(parts), whole)


@pytest.mark.parametrize(("scale", "weight"), [(8.0, 1.0), (1.0, 0.25)])
def test_scale_and_weight_multiply_gradients(make: Callable, examples: dict, scale: float, weight: float) -> None:
    """The loss scale of fp16 and the weight of a task; the logged loss has neither."""
    model = make()
    rows = np.array([3, 1, 4])
    plain = loss_of_step(model, examples, "sst", rows)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model.tasks["sst"].weight = weight
    assert torch.equal(loss_of_step(model, examples, "sst", rows, scale=scale), plain)
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(p.grad, scale * weight * gradients[name], atol=1e-6, rtol=1e-5, msg=name)


def test_fp16_rank_without_rows_has_a_scale(make: Callable, examples: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    monkeypatch.setattr(distributed, "own_rows", lambda rows: rows[:0])
    scaler = loss_scaler("fp16", torch.device("cpu"))
    context = StepContext(1, 0, "fp32", torch.device("cpu"), scaler)
    MultitaskTrainStep(examples).backward(model, PlannedBatch("sst", np.array([3]), 0, 0), context)
    scaler.unscale_(AdamW(model.parameters(), lr=0.1))


def test_bf16_changes_loss_and_outputs_little(make: Callable, examples: dict) -> None:
    model = make()
    rows = np.array([3, 1, 4])
    full_loss = loss_of_step(model, examples, "sst", rows, precision="fp32")
    half_loss = loss_of_step(model, examples, "sst", rows, precision="bf16")
    assert full_loss != half_loss
    torch.testing.assert_close(full_loss, half_loss, atol=5e-2, rtol=0)
    full = evaluate.outputs(model, model.tasks["sst"], examples["sst"], "fp32")
    half = evaluate.outputs(model, model.tasks["sst"], examples["sst"], "bf16")
    assert not np.array_equal(full, half)
    np.testing.assert_allclose(full, half, atol=5e-2)


def binary(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.BCELoss()(torch.sigmoid(outputs.double()), labels.double()).float()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sst": F.cross_entropy, "quora": binary, "sts": F.mse_loss}
LABELS = {"sst": torch.long, "quora": torch.float, "sts": torch.float}


@pytest.mark.parametrize("name", LOSSES)
def test_step_has_gradients_of_mean_loss(make: Callable, examples: dict, name: str) -> None:
    rows = np.array([3, 1, 4, 15, 9, 2, 6])
    model = make().train()
    for layer in model.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    for layer in model.encoder.bert_layers:
        layer.self_attention.dropout = 0.0
    labels = torch.from_numpy(examples[name].labels[rows])
    outputs = model(name, model.tasks[name].encode(examples[name], rows))
    expected = LOSSES[name](outputs, labels.to(LABELS[name]))
    gradients = torch.autograd.grad(expected, list(model.encoder.parameters()))
    torch.testing.assert_close(loss_of_step(model, examples, name, rows, accumulate=3), expected.detach())
    assert model.tasks[name].loss(outputs.bfloat16(), labels).dtype == torch.float32
    for parameter, gradient in zip(model.encoder.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)


def divergence(name: str, first: Tensor, second: Tensor) -> float:
    """Sum over rows of the squared difference of scores, or of (KL(p || q) + KL(q || p)) / 2 of classes, by scipy."""
    if name == "sts":
        return float(((first - second) ** 2).sum())
    if name == "quora":  # the logit of class 0 is 0
        first = torch.stack([0 * first, first], dim=1)
        second = torch.stack([0 * second, second], dim=1)
    p = softmax(first.double().numpy(), axis=1)
    q = softmax(second.double().numpy(), axis=1)
    return float(rel_entr(p, q).sum() + rel_entr(q, p).sum()) / 2


@pytest.mark.parametrize("name", LOSSES)
def test_r_drop_adds_divergence_of_passes(make: Callable, examples: dict, name: str) -> None:
    rows = np.arange(8)
    seen = []
    model = make(dropout=0.3).train()
    model.heads[name].register_forward_hook(lambda _, inputs, out: seen.extend([inputs[0], out.detach()]))
    loss = loss_of_step(model, examples, name, rows, r_drop=0.7)
    features, outputs = seen
    assert not torch.isclose(*features.chunk(2)).all(1).any(), "each pass of the encoder draws its own dropout"
    first, second = outputs.chunk(2)
    labels = torch.from_numpy(examples[name].labels[rows]).to(LABELS[name])
    mean = float(LOSSES[name](first, labels) + LOSSES[name](second, labels)) / 2
    assert float(loss) == pytest.approx(mean + 0.7 * divergence(name, first, second) / 8, rel=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_last_linear_layer_freezes_the_encoder(make: Callable, examples: dict, frozen: bool) -> None:
    model = make(dropout=0.1, frozen=frozen).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    loss_of_step(model, examples, "sst", np.arange(8))
    optimizer.step()
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    of_encoder = {name for name in changed if name.startswith("encoder.")}
    assert bool(of_encoder) is not frozen
    of_heads = {name for name in changed if name.startswith("heads.")}
    assert of_heads == {name for name in before if name.startswith("heads.sst")}
    ragged = Ragged.from_lists(trimmed(PADDED))
    assert torch.equal(model.features("sst", ragged), model.features("sst", ragged)) == frozen, "no dropout in it"


def test_dropout_depends_on_step_and_part(make: Callable, examples: dict) -> None:
    def loss(number: int, **more: int) -> float:
        return float(loss_of_step(model, examples, "sst", np.arange(8), number=number, **more))

    model = make(dropout=0.3).train()
    torch.manual_seed(1)
    first = loss(5)
    torch.manual_seed(2)
    assert loss(5) == first, "the generator's state before the step must not matter"
    assert len({first, loss(6), loss(5, seed=2), loss(5, accumulate=2)}) == 4


def test_heads_have_their_own_rate(make: Callable) -> None:
    model = make()
    groups = parameter_groups(model, TrainingSettings(lr=2e-3, head_lr=1e-3, weight_decay=0.01))
    rates = {}
    for group in groups:
        rates |= dict.fromkeys(group["params"], group.get("peak_lr", 2e-3))
    assert {rates[parameter] for parameter in model.heads.parameters()} == {1e-3}
    assert {rates[parameter] for parameter in model.encoder.parameters()} == {2e-3}
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0, 0.01, 0.0]


def test_joined_pairs_need_two_types(tiny: Path) -> None:
    encoder = BertModel(replace(BertModel.from_pretrained(tiny).config, type_vocab_size=1))
    for pairs in ("bi", "paper"):
        build(MultitaskSettings.of(), encoder, "mean", [TASKS["quora"](pairs)])
    build(MultitaskSettings.of(), encoder, "mean", [TASKS["sst"]("cross")])
    for pairs in ("cross", "joint"):
        with pytest.raises(UserError, match="embed one token type"):
            build(MultitaskSettings.of(), encoder, "mean", [TASKS["quora"](pairs)])


def test_run_goes_on_with_pairs(make: Callable, tiny: Path, tmp_path: Path) -> None:
    """It has no sentence encoder for joint pairs, so that of the new run is a copy of the encoder."""
    model = make("joint")
    before = {name: tensor.clone() for name, tensor in model.sentence_encoder.state_dict().items()}
    run = finished_run(tmp_path / "run", tiny, "joint", "sst")
    per_class = [{"label": label} for label in TASKS["sst"]().classes]
    (run / "scores.json").write_text(json.dumps({"step": 4, "tasks": {"sst": {"per_class": per_class}}}))
    from_run, _ = take_heads(model, MultitaskSettings.of(from_run=str(run), pairs="joint"))
    assert from_run is not None and from_run["heads"] == ["sst"]
    for name, tensor in model.sentence_encoder.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_head_is_in_fp32() -> None:
    """In bf16 the two highest logits of a row are often equal."""
    head = Head(16, 5, 0.0, dropout_layers=1).eval()
    features = torch.randn(4, 16)
    with torch.autocast("cpu", torch.bfloat16):
        logits = head(features)
    torch.testing.assert_close(logits, head.layers(features), rtol=0, atol=0)


def test_undefined_scores_have_no_norm(make: Callable, examples: dict) -> None:
    """So that no evaluation is the best; one defined score is enough for a norm."""
    examples["sts"].labels[:] = np.nan
    assert evaluate.DevEvaluation(make(), examples, "fp32")()[0] is not None
    norm, logged = evaluate.DevEvaluation(make(), {"sts": examples["sts"]}, "fp32")()
    assert norm is None and logged == {"sts": None, "dev_norm": None}


def test_scores_up_to_one_are_refused(tiny: Path, tmp_path: Path) -> None:
    """Hugging Face's stsb has scores from 0 to 1; similarity is trained on the scale 0 to 5."""
    task = TASKS["sts"]()
    tokenizer = Tokenizer.load(tiny)
    path = tmp_path / "stsb.csv"
    path.write_text("sentence1,sentence2,score\na,b,0.76\nc,d,1.0\ne,f,0.0\n")
    with pytest.raises(UserError, match=r"stsb\.csv: .* from 0 to 1.*multiply them by 5"):
        task.open(path, "train", tokenizer, 24)
    path.write_text("sentence1,sentence2,score\na,b,0.76\nc,d,1.2\n")
    assert task.open(path, "train", tokenizer, 24).labels.tolist() == [0.76, 1.2]


def test_probabilities_equal_torch_softmax() -> None:
    logits = torch.randn(7, 5) * 4
    probabilities = TASKS["sst"]().probabilities(logits.numpy())
    np.testing.assert_allclose(probabilities, torch.softmax(logits.double(), 1).numpy(), rtol=1e-12)
    two = TASKS["quora"]().probabilities(np.array([800.0, -800.0, 0.0], dtype=np.float32))
    np.testing.assert_array_equal(two, [[0, 1], [1, 0], [0.5, 0.5]])
    assert TASKS["sts"]().probabilities(np.zeros(3)) is None
