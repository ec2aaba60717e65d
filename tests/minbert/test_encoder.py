"""Guards: the Encoder equals sentence-transformers, in any order and batch; its errors.

python -m pytest --import-mode=importlib tests/minbert/test_encoder.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as models

from minbert import BertModel, Encoder, Ragged, UserError, pooling
from minbert.encoder import batches_by_length, vectors
from minbert.modules import Dense
from minbert.tokenizer import Tokenizer

SENTENCES = [
    "A man is playing a guitar.",
    "How can I learn to cook well, quickly and without spending too much money on it?",
    "",
    "No.",
    "The film drags on for two hours, yet its last scene redeems it.",
    "Café 北京 😀",
]


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> Encoder:
    return Encoder.load(minilm, precision="fp32")


@pytest.fixture(scope="module")
def theirs(minilm: Path) -> SentenceTransformer:
    return SentenceTransformer(str(minilm), device="cpu")


OPTIONS: list[dict[str, Any]] = [
    {},
    {"normalize_embeddings": True},
    {"batch_size": 2},
    {"truncate_dim": 100},
    {"truncate_dim": 100, "normalize_embeddings": True},
    {"prompt": "query: "},
    {"convert_to_tensor": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_equals_sentence_transformers_on_minilm(
    encoder: Encoder, theirs: SentenceTransformer, options: dict[str, Any]
) -> None:
    """Vectors in fp32 agree to 1e-6, with the same call; this folder scales them to length 1."""
    expected = theirs.encode(SENTENCES, **options)
    actual = encoder.encode(SENTENCES, **options)
    assert type(actual) is type(expected) and actual.dtype == expected.dtype
    assert np.abs(np.asarray(actual) - np.asarray(expected)).max() <= 1e-6
    single = theirs.encode(SENTENCES[0], **options)
    assert encoder.encode(SENTENCES[0], **options).shape == single.shape
    assert encoder.encode([], **options).shape == (0, actual.shape[1])


def test_normalize_embeddings_overrules_the_folder(encoder: Encoder, theirs: SentenceTransformer) -> None:
    raw = encoder.encode(SENTENCES, normalize_embeddings=False)
    transformer, pooling_module, *_ = theirs
    pooled = pooling_module(transformer(theirs.preprocess(SENTENCES)))["sentence_embedding"]
    np.testing.assert_allclose(raw, pooled.detach().numpy(), atol=1e-5)


def test_similarities_equal_sentence_transformers(encoder: Encoder, theirs: SentenceTransformer) -> None:
    vectors = encoder.encode(SENTENCES)
    for a, b in ((vectors, vectors[:2]), (vectors[0], vectors), (torch.from_numpy(vectors), vectors[1])):
        torch.testing.assert_close(encoder.similarity(a, b), theirs.similarity(a, b), atol=1e-6, rtol=0)
    expected = encoder.similarity(vectors[0], vectors)
    tensors = [torch.from_numpy(vector).requires_grad_() for vector in vectors]
    others: list[tuple[Any, Any]] = [
        (SENTENCES[0], SENTENCES),
        (SENTENCES[0], np.array(SENTENCES)),
        (vectors[0].tolist(), list(vectors)),
        (tensors[0], tensors),
    ]
    for a, b in others:
        torch.testing.assert_close(encoder.similarity(a, b).detach(), expected)


def test_bf16_changes_vectors_little(tiny: Path) -> None:
    full = Encoder.load(tiny, precision="fp32").encode(SENTENCES)
    half = Encoder.load(tiny, precision="bf16").encode(SENTENCES)
    assert not np.array_equal(full, half)
    np.testing.assert_allclose(half, full, atol=5e-2)


def test_long_texts_are_truncated_alike(encoder: Encoder, theirs: SentenceTransformer) -> None:
    texts = [*SENTENCES, "a cat sat on a mat under a tree " * 100]
    assert encoder.max_length == theirs.max_seq_length == 256
    with pytest.warns(UserWarning, match="1 of 7 sentences cut to 256 tokens"):
        vectors = encoder.encode(texts)
    similarities = encoder.similarity(vectors, theirs.encode(texts)).diag()
    np.testing.assert_allclose(similarities, 1, atol=1e-5)


def test_progress_is_shown_on_request(encoder: Encoder, capsys: pytest.CaptureFixture[str]) -> None:
    encoder.encode(SENTENCES)
    assert not capsys.readouterr().err
    encoder.encode(SENTENCES, show_progress_bar=True)
    assert f"{len(SENTENCES)}/{len(SENTENCES)}" in capsys.readouterr().err


@given(
    st.lists(st.integers(1, 30), max_size=25),
    st.integers(1, 60),
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 90),
)
def test_batches_cover_all_within_budget(lengths: list[int], budget: int, size: int | None, padded: int | None) -> None:
    order: list[int] = []
    for batch in batches_by_length(lengths, budget, size, padded):
        in_batch = [lengths[i] for i in batch]
        if len(batch) > 1:
            assert size is None or len(batch) <= size
            assert sum(in_batch) <= budget
            assert padded is None or len(batch) * max(in_batch) <= padded
        order += reversed(batch.tolist())
    assert sorted(order) == list(range(len(lengths)))
    in_order = [lengths[i] for i in order]
    assert in_order == sorted(in_order, reverse=True), "batch by batch, and inside each from its end"


def test_a_long_text_pads_few_others(tiny: Path) -> None:
    """Away from the CPU, where attention may pad; the meta device stands for a GPU."""
    encoder = Encoder.load(tiny, precision="fp32")
    encoder.model.to("meta")
    rows = [[2] * 500, *[[2] * 10] * 4000]
    sentences = 0
    for batch, _ in encoder.batches(rows):
        lengths = [len(rows[i]) for i in batch]
        assert len(batch) * max(lengths) <= 65_536
        assert sum(lengths) <= 32_768
        sentences += len(batch)
    assert sentences == len(rows)


def test_large_batches_are_filled_without_effect(tiny: Path) -> None:
    encoder = Encoder.load(tiny, precision="fp32", pooler="mean")
    generator = np.random.default_rng(0)
    rows = [generator.integers(5, 25, length).tolist() for length in generator.integers(3, 20, 500)]
    step = min(128, encoder.model.config.max_position_embeddings)
    heights = [len(ragged.ids) for _, ragged in encoder.batches(rows)]
    assert len(heights) > 1 and max(heights) <= 4096
    assert {height % step for height in heights if height >= 1024} == {0}
    alone = encoder.encode_ids(rows, batch_size=1)
    np.testing.assert_allclose(encoder.encode_ids(rows), alone, atol=1e-5)


@pytest.mark.parametrize("count", [4, 2000])
def test_autocast_around_it_changes_nothing(tiny: Path, count: int) -> None:
    """In a training step of one's own; with few and with many tokens, whose layers are packed."""
    encoder = Encoder.load(tiny, precision="fp32")
    encoder.pipeline.layers.append(Dense({"in_features": 32, "out_features": 8}))
    texts = ["the cat sat on the mat"] * count
    expected = encoder.encode(texts)
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_array_equal(encoder.encode(texts), expected)


@pytest.mark.parametrize("count", [4, 2000])
def test_half_precision_model_encodes(tiny: Path, count: int) -> None:
    """As a user may make it; with few and with many tokens."""
    encoder = Encoder.load(tiny, precision="fp32")
    texts = ["the cat sat on the mat"] * count
    expected = encoder.encode(texts)
    encoder.model.bfloat16()
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=0.05)


def test_compiled_model_is_saved(tiny: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(tiny, precision="fp32").to("cpu")
    expected = encoder.encode(["the cat"])
    encoder.model = torch.compile(encoder.model, backend="eager")  # type: ignore[assignment]
    encoder.save(tmp_path / "saved")
    again = Encoder.load(tmp_path / "saved", precision="fp32")
    np.testing.assert_array_equal(again.encode(["the cat"]), expected)


def test_encoding_turns_dropout_off(tiny: Path) -> None:
    model = BertModel.from_pretrained(tiny)
    expected = Encoder(model, Tokenizer.load(tiny), "mean", precision="fp32").encode(["the cat"])
    encoder = Encoder(model.train(), Tokenizer.load(tiny), "mean", precision="fp32")
    np.testing.assert_array_equal(encoder.encode(["the cat"]), expected)
    assert encoder.model.training, "the model's mode is the caller's"
    with pytest.raises(UserError, match="65 tokens: the encoder has 64 positions"):
        encoder.encode_ids([[2] * 65])
    assert encoder.model.training, "also after an error"


@pytest.mark.parametrize("name", pooling.NAMES)
def test_vectors_do_not_depend_on_order(tiny: Path, name: str) -> None:
    model = BertModel.from_pretrained(tiny)
    rows = [[2, 5, 3], [2, 9, 8, 7, 3], [2, 6, 9, 3], [2, 3]]  # sorting them is no swap
    alone = torch.cat([vectors(model, Ragged.from_lists([row]), name) for row in rows])
    torch.testing.assert_close(vectors(model, Ragged.from_lists(rows), name), alone, atol=1e-5, rtol=0)


def test_only_texts_in_order(tiny: Path) -> None:
    encoder = Encoder.load(tiny)
    texts = ["the cat", "a dog"]
    frame = pd.DataFrame({"text": texts})
    for sentences in (frame["text"], np.array(texts), iter(texts)):
        np.testing.assert_array_equal(encoder.encode(sentences), encoder.encode(texts))
    refused: list[tuple[Any, str]] = [
        (frame, "a DataFrame; give a list"),
        ({"text": texts}, "a dict; give a list"),
        (set(texts), "a set; give a list"),
        ([("the cat", "a dog")], "number 0, counted from 0, is a tuple"),
        (["the cat", None], "number 1, counted from 0, is a NoneType"),
    ]
    for other, why in refused:
        with pytest.raises(TypeError, match=f"sentences: {why}"):
            encoder.encode(other)
    with pytest.raises(UserError, match="prompt_name: 'q' is not one of query, document"):
        encoder.encode(texts, prompt_name="q")


def test_longest_input_can_be_set(tiny: Path) -> None:
    encoder = Encoder.load(tiny, max_length=8)
    assert encoder.max_length == encoder.max_seq_length == 8
    encoder.max_seq_length = 512
    assert encoder.max_length == 64, "as many positions as the model has"
    with pytest.raises(UserError, match="max_length: 2 leaves no room"):
        encoder.max_seq_length = 2


def test_encoder_replaces_only_an_encoder(tiny: Path, tmp_path: Path) -> None:
    encoder = Encoder.load(tiny)
    encoder.save(tmp_path / "saved")
    encoder.save(tmp_path / "saved")
    notes = tmp_path / "saved" / "README.md"
    notes.touch()
    for folder in (tmp_path, notes.parent):
        with pytest.raises(UserError, match=r"(saved|README\.md)' would be deleted"):
            encoder.save(folder)
    with pytest.raises(NotADirectoryError):
        encoder.save(notes)
    assert notes.is_file()


def test_home_folder_is_expanded(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Encoder.load(tiny).save("~/e")
    Encoder.load("~/e").save("~/copy")
    assert {path.name for path in tmp_path.iterdir()} == {"e", "copy"}


def test_prompt_outside_pooling_is_refused(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    modules = [models.Transformer(str(tiny)), models.Pooling(32, include_prompt=False)]
    SentenceTransformer(modules=modules, device="cpu", prompts={"q": "the "}).save(str(folder))
    encoder = Encoder.load(folder)
    encoder.encode("the cat")
    with pytest.raises(UserError, match="leaves the tokens of a prompt out"):
        encoder.encode("the cat", prompt_name="q")
