"""Guards: the page that tries a run answers as the library does, without network, and says what is missing.

python -m pytest --import-mode=importlib tests/tasks/test_serve.py
"""

import asyncio
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from minbert import Encoder, UserError
from tasks import predict, serve
from tests.tasks.test_predict import finished_run

TEXTS = ["The cat sat.", "A sad dog!"]


def test_the_answers_are_those_of_the_library(tiny: Path, tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", tiny)
    encoder, predictor = Encoder.load(run / "encoder"), predict.load(run)
    classes, paraphrase, similarity, cosine = serve.answers(encoder, predictor, TEXTS)
    assert list(classes.values()) == predictor.predict_proba("sst", [TEXTS[0]])[0].tolist()
    assert list(paraphrase.values()) == predictor.predict_proba("para", [TEXTS])[0].tolist()
    assert similarity == f"{predictor.predict('sts', [TEXTS])[0]:.2f}"
    first, second = encoder.encode(list(TEXTS), normalize_embeddings=True)
    assert float(cosine) == pytest.approx(float(first @ second), abs=1e-4)
    assert serve.answers(encoder, predictor, TEXTS[:1])[1:] == ["needs two sentences"] * 3
    assert serve.answers(encoder, None, TEXTS) == [cosine], "stage one has no heads"


@pytest.fixture
def gradio_loops() -> Iterator[None]:
    """Collect the event loops that Gradio leaves open here, before a later test is blamed for them."""
    yield
    asyncio.set_event_loop(None)
    gc.collect()


@pytest.mark.slow
@pytest.mark.usefixtures("gradio_loops")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_page_answers_over_http(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("gradio")
    from gradio_client import Client

    page = serve.build(finished_run(tmp_path / "run", tiny))
    _, address, shared = page.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
    try:
        client = Client(address, verbose=False, analytics_enabled=False)
        sentiment, *_, cosine = client.predict(*TEXTS, fn_index=0)
        assert shared is None and len(sentiment["confidences"]) == 5
        assert cosine["label"] == serve.answers(Encoder.load(tmp_path / "run/encoder"), None, TEXTS)[0]
    finally:
        page.close()


def test_mistakes_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", SimpleNamespace())
    with pytest.raises(UserError, match="not the folder of a finished run"):
        serve.build(tmp_path)
    monkeypatch.setitem(sys.modules, "gradio", None)  # an import of it fails
    with pytest.raises(UserError, match="Gradio is not installed; run `pip install gradio`"):
        serve.build(tmp_path)
