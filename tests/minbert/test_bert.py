"""Guards: our encoder equals transformers' BertModel, in values, gradients and bf16; ragged equals padded.

python -m pytest --import-mode=importlib tests/minbert/test_bert.py
"""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer
from transformers import BertModel as Theirs

from minbert import BertModel, Encoder, Ragged, UserError, bert
from minbert.weights import their_name

SENTENCES = [
    "What is the best way to learn a language, and how long does it take?",
    "How do I learn?",
    "It was, by turns, funny and unbearably sad; I'd see it again tomorrow.",
    "Two dogs run across a field of snow.",
    "no",
]


def transformers_model(folder: Path) -> Any:
    return Theirs.from_pretrained(folder, attn_implementation="eager").eval()


def test_first_tanh_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a call of two threads one may get MKL's kernel of least accuracy."""
    calls: list[Tensor] = []
    monkeypatch.setattr("torch.tanh", calls.append)
    runpy.run_path(bert.__file__)
    (call,) = calls
    assert (call.numel(), call.dtype, call.device.type) == (1, torch.float32, "cpu")


@pytest.fixture(scope="module")
def ours(minilm: Path) -> BertModel:
    return BertModel.from_pretrained(minilm)


@pytest.fixture(scope="module")
def theirs(minilm: Path) -> Any:
    return transformers_model(minilm)


@pytest.fixture(scope="module")
def rows(minilm: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(minilm)
    return [tokenizer(text)["input_ids"] for text in SENTENCES]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    return ids, mask


def worst(a: Tensor, b: Tensor) -> float:
    return (a.detach().double() - b.detach().double()).abs().max().item()


def assert_same_gradients(ours: BertModel, theirs: Any) -> None:
    reference = {name: p.grad for name, p in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        wanted = reference[their_name(name)]
        assert parameter.grad is not None and wanted is not None, name
        assert worst(parameter.grad, wanted) <= 1e-4, name


def test_forward_equals_transformers_on_minilm(ours: BertModel, theirs: Any, rows: list[list[int]]) -> None:
    ids, mask = padded(rows)
    ragged = Ragged.from_lists(rows)
    with torch.no_grad():
        mine = ours(ids, mask)
        reference = theirs(ids, attention_mask=mask, output_hidden_states=True)
        states = ours.encode(ours.embed(ragged), ragged)
    real = mask.bool()
    for state, wanted in zip(states, reference.hidden_states, strict=True):
        assert worst(state, wanted[real]) <= 1e-5
    assert worst(mine["last_hidden_state"][real], reference.last_hidden_state[real]) <= 1e-5
    assert worst(mine["pooler_output"], reference.pooler_output) <= 1e-5
    assert mine["last_hidden_state"].shape == reference.last_hidden_state.shape
    assert not mine["last_hidden_state"][~real].any(), "padding is zero"
    assert mine.last_hidden_state is mine[0] is mine["last_hidden_state"], "as in transformers"
    assert mine.pooler_output is mine[1] is mine[-1] is mine[:2][1]


def test_gradients_equal_transformers_on_minilm(ours: BertModel, theirs: Any, rows: list[list[int]]) -> None:
    ids, mask = padded(rows)
    direction = torch.randn(len(rows), 384) / 20
    tokens = torch.randn(*ids.shape, 384) / 20 * mask[..., None]
    for outputs in (ours(ids, mask), theirs(ids, attention_mask=mask)):
        loss = (outputs.pooler_output * direction).sum() + (outputs.last_hidden_state * tokens).sum()
        loss.backward()
    largest = max(p.grad.abs().max().item() for p in theirs.parameters())
    assert largest > 0.1, "the gradients are not negligible"
    assert_same_gradients(ours, theirs)


def test_token_types_equal_transformers(tiny: Path) -> None:
    mine = BertModel.from_pretrained(tiny)
    reference = transformers_model(tiny)
    rows = [[2, 9, 8, 3, 7, 7, 3], [2, 5, 3, 6, 3], [2, 11, 12, 13, 3, 14, 15, 16, 3]]
    types = [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [0] * 5 + [1] * 4]
    ids, mask = padded(rows)
    padded_types, _ = padded(types)
    wanted = reference(ids, attention_mask=mask, token_type_ids=padded_types)
    wanted_tokens = wanted.last_hidden_state[mask.bool()]
    ragged = Ragged.from_lists(rows, types)
    tokens = mine.encode(mine.embed(ragged), ragged)[-1]
    pooled = mine.pooled(ragged)
    assert worst(tokens, wanted_tokens) <= 1e-5
    assert worst(pooled, wanted.pooler_output) <= 1e-5
    (pooled.square().sum() + tokens.pow(3).mean()).backward()
    (wanted.pooler_output.square().sum() + wanted_tokens.pow(3).mean()).backward()
    assert_same_gradients(mine, reference)


def test_tokenizer_output_is_accepted(tiny: Path) -> None:
    """Pairs as transformers' tokenizer pads them on the left; the tests above pad on the right."""
    tokenizer = AutoTokenizer.from_pretrained(tiny, padding_side="left")
    batch = tokenizer(["the cat", "a dog"], ["sat", "runs! on the mat"], return_tensors="pt", padding=True)
    assert batch["token_type_ids"].any()
    mine = BertModel.from_pretrained(tiny)
    wanted = transformers_model(tiny)(**batch)
    real = batch["attention_mask"].bool()
    assert worst(mine(**batch)[0][real], wanted[0][real]) <= 1e-5


IDS = torch.tensor([[2, 5, 3]])
REFUSED = [
    ({"input_ids": torch.tensor([[2, 4000, 3]])}, "input_ids reach from 2 to 4000; the encoder embeds 0 to 80"),
    ({"input_ids": torch.tensor([[2, -1, 3]])}, "input_ids reach from -1"),
    ({"input_ids": IDS, "token_type_ids": 2 * torch.ones_like(IDS)}, "token_type_ids reach from 2 to 2"),
    ({"input_ids": torch.full((1, 65), 5)}, "positions reach from 0 to 64; the encoder embeds 0 to 63"),
    ({"input_ids": torch.zeros(0, 5)}, "a batch needs at least one sentence"),
]


@pytest.mark.parametrize(("inputs", "why"), REFUSED)
def test_input_without_embedding_is_refused(tiny: Path, inputs: dict[str, Tensor], why: str) -> None:
    with pytest.raises(UserError, match=why):
        BertModel.from_pretrained(tiny)(**inputs)


def test_without_pooling_layer(tiny: Path, tmp_path: Path) -> None:
    """Such weights have hidden states; only the pooling layer cannot be asked for."""
    Theirs.from_pretrained(tiny, add_pooling_layer=False).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path)
    model = BertModel.from_pretrained(tmp_path)
    outputs = model(IDS)
    assert list(outputs) == ["last_hidden_state"]
    assert worst(outputs[0], transformers_model(tiny)(IDS)[0]) <= 1e-5
    why = "the weights have no pooling layer: choose another pooler"
    with pytest.raises(UserError, match=why):
        model.pooled(Ragged.from_lists([[2, 5, 3]]))
    with pytest.raises(UserError, match=why):
        Encoder.load(tmp_path, pooler="pooler")


def test_bf16_is_as_exact_as_transformers(ours: BertModel, theirs: Any, rows: list[list[int]]) -> None:
    """Both stay within 0.06 of fp32 on MiniLM, whose hidden states reach about 6."""
    ids, mask = padded(rows)
    real = mask.bool()
    with torch.no_grad():
        exact = theirs(ids, attention_mask=mask).last_hidden_state[real]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mine = ours(ids, mask)["last_hidden_state"][real].float()
            reference = theirs(ids, attention_mask=mask).last_hidden_state[real].float()
    assert worst(reference, exact) <= 0.06
    assert 0 < worst(mine, exact) <= 0.06
    assert (mine - exact).norm() <= 1.2 * (reference - exact).norm()
