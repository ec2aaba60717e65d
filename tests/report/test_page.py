"""Guards: the page escapes what comes from data, says what is undefined, fetches nothing, and reads what runs leave.

python -m pytest --import-mode=importlib tests/report/test_page.py
"""

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scipy import stats

from minbert.errors import UserError
from tasks.report import __main__ as command
from tasks.report import collect, html, measures, page
from tasks.report.collect import Run
from tests.report.conftest import HOSTILE

Made = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("undrawn")


def build(*runs: Run, texts: bool = True) -> str:
    return page.build(runs, Path("report.html"), texts=texts, resamples=20)[0]


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:  # inside a script or a style
            self.raw[-1] = (self.raw[-1][0], self.raw[-1][1] + data)


def spoiled(folder: Path) -> Path:
    """A run whose every place for free text tries to become markup."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["command"] = f"multitask_train.py --data '{HOSTILE[2].replace(chr(39), '')}'"
    manifest["preset"] = manifest["precision"] = manifest["all_settings"]["weights"] = HOSTILE[0]
    manifest["environment"]["started"] = HOSTILE[1]
    for account in manifest["data"]["dev"].values():
        account["file"], account["skipped"] = HOSTILE[1], [{"line": 1, "why": HOSTILE[2]}]
    manifest["more"] = list(HOSTILE)
    path.write_text(json.dumps(manifest))
    scores = json.loads((folder / "scores.json").read_text())
    scores["tasks"]["sst"]["title"] = HOSTILE[2]
    scores["tasks"]["sst"]["per_class"][0]["label"] = HOSTILE[4]
    (folder / "scores.json").write_text(json.dumps(scores))
    lines = [json.loads(line) for line in (folder / "dev" / "quora.jsonl").read_text().splitlines()]
    for number, text in enumerate(HOSTILE):
        lines[number] |= {"id": text}
    (folder / "dev" / "quora.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_nothing_of_the_data_becomes_markup(multitask: Made) -> None:
    tame = Elements(build(collect.read_run(multitask("tame"))))
    folder = spoiled(multitask("<img src=x onerror=window.owned=6>", texts=HOSTILE, skill=0.4))
    wild = Elements(build(collect.read_run(folder)))
    assert sum(tag == "script" for tag, _ in wild.found) == 5
    images = [attributes["src"] or "" for tag, attributes in wild.found if tag == "img"]
    assert images and all(source.startswith("data:image/svg+xml;base64,") for source in images)
    assert {tag for tag, _ in wild.found} <= {tag for tag, _ in tame.found} | {"details", "summary", "li", "ul"}
    assert not [name for _, attributes in wild.found for name in attributes if name.startswith("on")]
    assert not [value for _, attributes in wild.found for name, value in attributes.items() if name == "style"]


def test_embedded_data_is_itself_again_and_holds_no_sign_of_markup() -> None:
    data = {"texts": [*HOSTILE, "\ud800", "\0"]}
    text = str(html.embedded(data))
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == data
    with pytest.raises(ValueError):
        html.embedded({"x": float("nan")})


def test_the_policy_allows_this_style_and_script_alone(multitask: Made) -> None:
    elements = Elements(build(collect.read_run(multitask())))
    policy = next(a["content"] for tag, a in elements.found if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for tag, text in elements.raw:
        if text.startswith("{"):  # the rows, which are no code
            continue
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in rules[f"{tag}-src"].split()
    assert len(elements.raw) == 6 and len(rules["script-src"].split()) == 4


def test_nothing_refers_to_another_place(multitask: Made, contrastive: Made) -> None:
    for folder in (multitask(), contrastive()):
        for tag, attributes in Elements(build(collect.read_run(folder))).found:
            for name in ("src", "href", "srcset", "action", "xlink:href"):
                value = attributes.get(name)
                assert value is None or value.startswith(("#", "data:")), (tag, name, value)


def test_without_texts_no_sentence_is_in_the_page(multitask: Made) -> None:
    run = collect.read_run(multitask(skill=0.4))
    assert "sentence number" in build(run)
    assert "sentence number" not in build(run, texts=False)
    assert "the other side" not in build(run, texts=False)


def test_numbers_of_the_page_are_those_of_the_run(multitask: Made) -> None:
    folder = multitask()
    scores = json.loads((folder / "scores.json").read_text())
    text = re.sub(r"<style>.*?</style>|<script.*?</script>", "", build(collect.read_run(folder)), flags=re.DOTALL)
    assert f"{scores['dev_norm']:.4f}" in text
    for task in scores["tasks"].values():
        assert f'<p class="big">{task["score"]:.3f}</p>' in text
        for row in task["per_class"]:
            assert f"<b>{row['f1']:.3f}</b>" in text
    assert "nan" not in text.lower().replace("finan", "")


def test_what_is_undefined_is_said(multitask: Made, contrastive: Made) -> None:
    folder = multitask()
    scores = json.loads((folder / "scores.json").read_text())
    scores["tasks"]["sts"]["score"] = None
    scores["tasks"]["sst"]["per_class"][0] |= {"precision": None, "f1": None, "support": 0}
    (folder / "scores.json").write_text(json.dumps(scores))
    rows = [json.loads(line) | {"predicted": 2.5} for line in (folder / "dev" / "sts.jsonl").read_text().splitlines()]
    (folder / "dev" / "sts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = build(collect.read_run(folder))
    assert '<p class="big">undefined</p>' in text
    assert "NaN" not in text.replace("isNaN", "")
    assert '<p class="big">undefined</p>' in build(collect.read_run(contrastive(after=None)))


def test_several_runs_make_a_comparison(multitask: Made, contrastive: Made, tmp_path: Path) -> None:
    folders = [multitask("a/run", skill=0.3), multitask("b/run", skill=0.95), contrastive()]
    path = page.write_report(folders, tmp_path / "out.html")
    text = path.read_text()
    assert "3 runs compared" in text
    assert "The baseline is <b>a/run</b>" in text
    assert ">better<" in text
    anchors = [attributes["id"] for _, attributes in Elements(text).found if "id" in attributes]
    assert len(anchors) == len(set(anchors))


def test_a_comparison_is_written_under_runs_by_default(
    multitask: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert page.write_report([multitask("a"), multitask("b")]) == Path("runs/comparison.html")
    assert (tmp_path / "runs" / "comparison.html").is_file()


def test_runs_of_stage_one_are_compared_by_their_cosines(contrastive: Made) -> None:
    runs = [collect.read_run(contrastive(name, recorded=seed)) for name, seed in (("one", 1), ("two", 2))]
    text = build(*runs)
    assert text.count("<br>95% interval") == 2, "of each run's own rho"
    assert text.count("similarity, Spearman&#39;s rho") >= 1
    alone = build(runs[0])
    assert "mean cosine" in alone
    for cell in ("1,300", "1,200", "4"):
        assert f">{cell}</td>" in alone
    assert "<li>duplicates: 7</li>" in alone
    listed = measures.listed_errors({runs[0].name: runs[0].tasks}, texts=True)
    assert len(listed["rows"]) == 49
    gold, predicted = (stats.rankdata([row[side] for row in listed["rows"]]) for side in (4, 5))
    found = [row[7] for row in listed["rows"]]
    assert found == pytest.approx((abs(gold - predicted) / 49).tolist(), abs=1e-6)
    assert found == sorted(found, reverse=True)


def damaged(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("manifest.json", "[]", "not the manifest of a run"),
        ("metrics.jsonl", "{}\n", "metrics.jsonl:1"),
        ("scores.json", '{"tasks": {"sst": {}}}', "sst: not a task's scores"),
        ("metrics.jsonl", '{"step": 1}\nnonsense\n', "metrics.jsonl:2"),
        (
            "dev/sst.jsonl",
            '{"id": "a", "texts": [], "gold": 9, "predicted": 0, "probabilities": [0,0,0,0,1]}\n',
            "not a class",
        ),
        (
            "dev/sts.jsonl",
            '{"id": "a", "texts": [], "gold": 1, "predicted": 0, "probabilities": [0, 1]}\n',
            "names 0 classes",
        ),
    ],
)
def test_a_damaged_run_folder_is_a_users_mistake(multitask: Made, name: str, text: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        collect.read_run(damaged(multitask(), name, text))


def test_the_command_line_writes_where_it_is_told(
    multitask: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = multitask()
    command.main([str(folder)])
    assert capsys.readouterr().out.strip() == f"report: {folder / 'report.html'}"
    command.main([str(folder), "--out", str(tmp_path / "x.html"), "--no-texts"])
    assert "sentence number" not in (tmp_path / "x.html").read_text()
    for arguments, said in (
        ([str(tmp_path / "no")], "no manifest.json"),
        (["--wrong"], "required"),
        ([str(folder), "--out", str(tmp_path)], f"--out {tmp_path}: no file can be written there"),
        (["no run", "--out", str(tmp_path / "no" / "x.html")], "--out .*: no file can be written there"),
    ):
        with pytest.raises(UserError, match=said):
            command.main(arguments)


def test_a_report_leaves_the_encoders_folder_alone(multitask: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model card is written on demand."""
    folder = multitask()
    (folder / "encoder").mkdir()
    carded: list[Path] = []
    monkeypatch.setattr("tasks.report.card.write_card", carded.append)
    command.main([str(folder)])
    assert carded == []
    command.main([str(folder), "--card"])
    assert carded == [folder]


def test_a_card_that_cannot_be_written_costs_no_page(multitask: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = multitask()
    (folder / "encoder").mkdir()

    def broken(_: Path) -> None:
        raise KeyError("pooler")

    monkeypatch.setattr("tasks.report.card.write_card", broken)
    with pytest.raises(KeyError):
        command.main([str(folder), "--card"])
    assert (folder / "report.html").is_file()


def test_a_card_that_is_there_stays_as_it_is(multitask: Made, capsys: pytest.CaptureFixture[str]) -> None:
    folder = multitask()
    (folder / "encoder").mkdir()
    (folder / "encoder" / "README.md").write_text("mine\n")
    command.main([str(folder), "--card"])
    assert (folder / "encoder" / "README.md").read_text() == "mine\n"
    assert "README.md is kept as it is" in capsys.readouterr().err


def test_the_page_and_the_card_wait_for_neither_torch_nor_scikit_learn(multitask: Made) -> None:
    code = f"""if True:
        import sys, pathlib
        from tasks.report import card, collect, page
        page.build([collect.read_run(pathlib.Path({str(multitask())!r}))], pathlib.Path('x.html'), resamples=2)
        assert not {{"torch", "sklearn"}} & sys.modules.keys()
    """
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
