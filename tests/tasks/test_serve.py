"""Guards: the page that tries runs answers as the library does, shows texts as texts, and fits phones and both themes.

python -m pytest --import-mode=importlib tests/tasks/test_serve.py
"""

import csv
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import minbert
from minbert.errors import UserError
from minbert.training import plan
from tasks import evaluate, predict
from tests.report.browsing import started
from tests.training.conftest import Run, forks, runner, shared  # noqa: F401, fixtures

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")
SAMPLE = Path(__file__).parents[2] / "data" / "sample"
HOSTILE = "<img src=x onerror='window.owned = 1'><script>window.owned = 2</script>"
Script = Callable[..., Run]


@pytest.fixture(scope="module")
def folders(shared: Script) -> list[Path]:  # noqa: F811
    """A run of stage two and one of stage one."""
    flags = ("--epochs", 1, "--batch-size", 32, "--max-steps", 2)
    runs = [
        shared("multitask_train.py", *flags),
        shared("pretrain_cbcl.py", *flags, "--pooler", "mean", run_dir="cbcl"),
    ]
    assert [run.code for run in runs] == [0, 0], runs
    return [run.folder for run in runs]


@pytest.fixture(scope="module")
def address(folders: list[Path]) -> Iterator[str]:
    from tasks.serve import app

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app.build(folders), port=port, log_level="warning"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def ask(address: str, what: str, **fields: Any) -> Any:
    import httpx

    reply = httpx.post(f"{address}/{what}", json=fields, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_the_answers_are_those_of_the_library(address: str, folders: list[Path]) -> None:
    texts = ("A warm film.", "A dull film.")
    predictor, encoders = predict.load(folders[0]), [minbert.Encoder.load(folder) for folder in folders]
    heads = {}
    for name, task in predictor.model.tasks.items():
        inputs = [texts[: task.columns]]
        outputs = evaluate.outputs(predictor.model, task, predictor.examples(task, inputs), predictor.precision)
        shares = task.probabilities(outputs)
        heads[name] = task.predict(outputs).tolist() if shares is None else shares[0].tolist()
    first, second = ask(address, "sentence", text=texts[0])
    assert [share for _, share in first["heads"][0]["classes"]] == pytest.approx(heads["sst"])
    assert (second["heads"], second["nearest"]) == ([], []), "stage one has no heads"
    first, second = ask(address, "pair", first=texts[0], second=texts[1])
    assert [share for _, share in first["heads"][0]["classes"]] == pytest.approx(heads["quora"])
    assert first["heads"][1] == {"title": "similarity", "value": pytest.approx(heads["sts"][0])}
    cosines = [encoder.similarity(*texts) for encoder in encoders]
    assert [first["cosine"], second["cosine"]] == pytest.approx(cosines, abs=1e-2)
    ranked = ask(address, "rank", query=texts[0], texts=[texts[1], "  Snow. ", texts[0]])[1]["ranked"]
    assert ranked[0] == {"text": texts[0], "cosine": pytest.approx(1.0, abs=1e-2)}
    assert [one["cosine"] for one in ranked] == sorted((one["cosine"] for one in ranked), reverse=True)


def test_a_training_row_is_its_own_nearest(address: str) -> None:
    with open(SAMPLE / "course" / "sts-train.csv", encoding="utf-8", newline="") as file:
        row = list(csv.DictReader(file, delimiter="\t"))[7]
    first, _ = ask(address, "pair", first=row["sentence1"], second=row["sentence2"])
    (found, *_) = [one for one in first["nearest"] if one["task"] == "similarity"]
    assert found["cosine"] == pytest.approx(1.0, abs=1e-2) and float(found["label"]) == float(row["similarity"])
    cosines = [one["cosine"] for one in first["nearest"] if one["task"] == "similarity"]
    assert len(cosines) == 5 and np.all(np.diff(cosines) <= 0)


def test_the_searched_rows_are_those_that_were_trained_on(folders: list[Path], tmp_path: Path) -> None:
    """A limit draws them; a file that has changed is not searched."""
    from tasks.serve.answers import Answers

    run = tmp_path / "run"
    run.mkdir()
    for path in folders[0].iterdir():
        (run / path.name).symlink_to(path.resolve())
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").unlink()
    manifest["all_settings"] |= {"limit": 6, "seed": 3}
    changed = manifest["data"]["train"]["quora"]
    changed["sha256"] = "0" * 64
    (run / "manifest.json").write_text(json.dumps(manifest))
    answers = Answers.load(run, "run")
    one, two = answers.about(["A film."]), answers.about(["A film.", "A dog."])
    predictor = predict.load(run)
    examples = predictor.recorded(run, predictor.model.tasks["sst"], "train")
    drawn = {examples.cache.text(row, 0) for row in plan.drawn(len(examples), 6, 3, "sst").tolist()}
    assert len(one["nearest"]) == 5 and {row["texts"][0] for row in one["nearest"]} <= drawn
    assert one["searched"] == ["sentiment: 6 of 6 training rows"]
    assert f"{changed['file']}: not the file that" in two["searched"][0]
    assert [row["task"] for row in two["nearest"]] == ["similarity"] * 5


def test_other_hosts_and_empty_texts_are_refused(address: str) -> None:
    import httpx

    assert httpx.get(address, headers={"Host": "elsewhere.example"}).status_code == 400
    assert httpx.post(f"{address}/sentence", json={"text": "  "}).status_code == 422


def test_the_page_in_a_browser(address: str) -> None:
    with started() as browser:
        page = browser.new_page()
        complaints: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.fill("[name=text]", HOSTILE)
        page.fill("[name=texts]", f"{HOSTILE}\n\n{'word' * 100}\n一二三")
        for name in ("Classify", "Compare", "Rank"):
            page.click(f"button:text('{name}')")
        page.locator(".answer").nth(5).wait_for()
        assert page.locator(".answers").nth(0).locator("meter").count() == 5
        assert HOSTILE in page.locator(".answers").nth(2).inner_text() and page.locator(".answer img").count() == 0
        assert page.evaluate("window.owned") is None and complaints == []
        assert all(url.startswith((address, "data:")) for url in asked)
        for width, scheme in product((380, 768, 1300), ("light", "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
            assert (ground > 128) == (scheme == "light")


def test_without_its_packages_one_sentence_says_what_to_install(folders: list[Path]) -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "from tasks.serve.__main__ import main\n"
        f"try: main([{str(folders[0])!r}])\nexcept ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "fastapi is not installed; run `pip install fastapi uvicorn`\n"


def test_mistakes_are_said_in_a_sentence(tmp_path: Path) -> None:
    from tasks.serve import app
    from tasks.serve.__main__ import main

    (tmp_path / "encoder").mkdir()
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match="not the folder of a finished run"):
        app.build([tmp_path])
    (tmp_path / "scores.json").write_text("{}")
    with pytest.raises(UserError, match="not an object"):
        app.build([tmp_path])
    with pytest.raises(UserError, match="--port: 99999 is not"):
        main([str(tmp_path), "--port", "99999"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="Address already in use"):
            main([str(tmp_path), "--port", str(taken.getsockname()[1])])
