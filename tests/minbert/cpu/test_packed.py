"""Guards: packed products equal float64 ones, an encoder's vectors stay what they are, and nothing stays packed.

python -m pytest --import-mode=importlib tests/minbert/cpu/test_packed.py
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert import BertModel, Encoder, Ragged, cpu
from minbert.cpu.linear import Packed, can_pack
from minbert.precision import autocast, supports_bf16

CPU = torch.device("cpu")
PRECISIONS = [
    "fp32",
    pytest.param("bf16", marks=pytest.mark.skipif(not supports_bf16(CPU), reason="no fast bf16 products here")),
]
MANY = 1 << 20

pytestmark = pytest.mark.skipif(not can_pack(CPU, "fp32"), reason="no oneDNN products with packed weights here")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of rows of every packed product."""
    seen: list[int] = []
    product = Packed.__call__

    def counted(self: Packed, x: torch.Tensor, activation: str = "none") -> torch.Tensor:
        seen.append(len(x))
        return product(self, x, activation)

    monkeypatch.setattr(Packed, "__call__", counted)
    yield seen


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("lengths", [(8, 24), (1,), (3, 3, 31)])
def test_hidden_states_stay_the_same(tiny: Path, calls: list[int], precision: str, lengths: tuple[int, ...]) -> None:
    model = BertModel.from_pretrained(tiny)
    ragged = Ragged.from_lists([[1 + n % 40 for n in range(length)] for length in lengths])
    with torch.inference_mode():
        exact = model.encode(model.embed(ragged), ragged)
        pooled = model.pooled(ragged)
        with cpu.packed_weights(model, precision, MANY), autocast(precision, CPU):
            states = model.encode(model.embed(ragged), ragged)
            assert calls == [sum(lengths)] * 4 * len(model.bert_layers)
            pools = model.pooled(ragged)
    tolerance = 1e-5 if precision == "fp32" else 5e-2
    for mine, wanted in zip([*states, pools], [*exact, pooled], strict=True):
        torch.testing.assert_close(mine.float(), wanted, atol=tolerance, rtol=tolerance)


def test_nothing_stays_packed_and_new_weights_are_used(
    tiny: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_WORTHWHILE", 1)
    encoder = Encoder.load(tiny, precision="fp32")
    rows = [[2, *range(5, 19), 3]] * 4
    before = encoder.encode_ids(rows)
    assert calls
    with torch.no_grad():
        encoder.model.bert_layers[0].interm_dense.weight.mul_(2)
    after = encoder.encode_ids(rows)
    assert np.abs(after - before).max() > 1e-3
    monkeypatch.setattr(cpu, "_WORTHWHILE", MANY)
    np.testing.assert_allclose(after, encoder.encode_ids(rows), atol=1e-5)
