"""Guards: which pairs are drawn for annotation, what the page holds, and what exported annotations add up to.

python -m pytest --import-mode=importlib tests/report/test_errors.py
"""

import csv
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from minbert.errors import UserError
from minbert.files import sha256_of
from tasks import readers, record
from tasks.record import Rows
from tasks.report import annotation, collect, errors
from tasks.report.annotation import NAMES
from tests.report.conftest import HOSTILE

Made = Callable[..., Path]
LABELS = {"sst": "sentiment", "quora": "is_duplicate", "sts": "similarity"}


def with_files(folder: Path, train: dict[str, list[tuple[str, ...]]] | None = None) -> Path:
    """A made run with data files: dev texts begin with a capital letter, and are recorded as the course cleans them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "data").mkdir()
    for path in sorted((folder / "dev").iterdir()):
        task = path.stem
        dev = record.read_rows(path)
        published = [tuple(text[:1].upper() + text[1:] for text in row) for row in dev.texts]
        clean = readers.clean_sentence if task == "sst" else readers.clean_pair
        cleaned = [tuple(map(clean, row)) for row in published]
        record.write_rows(folder, task, Rows(dev.ids, cleaned, dev.gold, dev.predicted, dev.probabilities))
        labelled = [(f"t{n}", row, float(n % 2)) for n, row in enumerate((train or {}).get(task, published * 3))]
        for split, rows in (("dev", list(zip(dev.ids, published, dev.gold.tolist()))), ("train", labelled)):
            source = folder / "data" / f"{task}-{split}.csv"
            _write(source, task, rows)
            manifest["data"][split][task] |= {"file": str(source), "sha256": sha256_of(source)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _write(path: Path, task: str, rows: list[tuple[str, tuple[str, ...], float]]) -> None:
    columns = ["sentence"] if task == "sst" else ["sentence1", "sentence2"]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["", "id", *columns, LABELS[task]])
        for number, (id_, texts, label) in enumerate(rows):
            gap = "" if task == "quora" else 1  # quora's files may lack a label, others may not
            writer.writerow([number, id_.upper(), *texts, gap if math.isnan(label) else label])


def annotated(path: Path, name: str, triples: list[tuple[str, str, str | None]], **more: Any) -> Path:
    """An exported annotation of (group, id, category) triples."""
    listed = [{"group": group, "id": id_, "category": category} for group, id_, category in triples]
    content = {"format": annotation.FORMAT, "sample": "s", "run": "run", "annotator": name, "items": listed}
    path.write_text(json.dumps(content | more))
    return path


def drawn_at_random(seed: int, count: int = 90) -> list[tuple[str, str, str | None]]:
    draws = np.random.default_rng(seed)
    groups = ["failed", "train", "dev"]
    return [(groups[n % 3], f"id{n}", list(NAMES)[int(draws.integers(8) * draws.integers(2))]) for n in range(count)]


def test_a_draw_takes_failed_pairs_and_pairs_of_all_train_and_dev(multitask: Made) -> None:
    run = collect.read_run(with_files(multitask(rows=200, skill=0.4)))
    items = annotation.draw(run, "quora", seed=3, count=40)
    rows = run.tasks["quora"].rows
    assert rows is not None
    wrong = {id_ for id_, gold, said in zip(rows.ids, rows.gold, rows.predicted) if gold != said and gold == gold}
    groups = {group: [item for item in items if item.group == group] for group in annotation.GROUPS}
    assert {group: len(found) for group, found in groups.items()} == {"failed": 40, "train": 40, "dev": 40}
    assert all(len({item.id for item in found}) == 40 for found in groups.values())
    assert {item.id for item in groups["failed"]} <= wrong
    assert not {item.id for item in groups["dev"]} <= wrong  # drawn from right and wrong alike
    assert {(item.gold, item.answer) for item in items} == {("different", "paraphrase"), ("paraphrase", "different")}
    order = [item.group for item in items]
    assert order != sorted(order) and len(set(order[:12])) == 3


def test_a_draw_is_a_function_of_its_seed(multitask: Made) -> None:
    run = collect.read_run(with_files(multitask(rows=200, skill=0.4)))
    first = annotation.draw(run, "quora", seed=1, count=30)
    assert annotation.draw(run, "quora", seed=1, count=30) == first
    other = annotation.draw(run, "quora", seed=2, count=30)
    assert {item.id for item in other} != {item.id for item in first}
    assert annotation.fingerprint(first) != annotation.fingerprint(other)
    prefix = {(item.group, item.id) for item in annotation.draw(run, "quora", seed=1, count=10)}
    assert prefix < {(item.group, item.id) for item in first}


def test_texts_are_the_published_ones_and_small_groups_are_taken_whole(multitask: Made) -> None:
    run = collect.read_run(with_files(multitask(rows=30, skill=0.9)))
    items = annotation.draw(run, "quora", seed=0)
    assert sum(item.group == "dev" for item in items) == 29  # one of 30 has no label
    assert all(item.texts[0].startswith("Sentence") and item.texts[1].startswith("The other") for item in items)
    assert all(
        len(item.texts) == 1 and item.answer == ""
        for item in annotation.draw(run, "sst", seed=0)
        if item.group != "failed"
    )
    similar = [item for item in annotation.draw(run, "sts", seed=0) if item.group == "failed"]
    assert all(abs(float(item.gold.split()[0]) - float(item.answer.split()[0])) > 0.9 for item in similar)


@pytest.mark.parametrize(("task", "answers"), [("quora", True), ("sst", False), ("sts", False)])
def test_an_answer_is_shown_for_every_pair_or_for_none(task: str, answers: bool, multitask: Made) -> None:
    run = collect.read_run(with_files(multitask(rows=60, skill=0.3)))
    items = annotation.draw(run, task, seed=0)
    assert any(item.answer for item in items)
    html = annotation.build_annotation(items, run="run", task=task, seed=0)
    embedded = re.search(r'id="data">(.*?)</script>', html)
    assert embedded is not None
    assert {bool(item["answer"]) for item in json.loads(embedded[1])["items"]} == {answers}
    assert ('id="answer"' in html) == answers


def test_data_files_must_be_the_runs_own(multitask: Made, tmp_path: Path) -> None:
    folder = with_files(multitask(rows=30))
    run = collect.read_run(folder)
    (folder / "data").rename(tmp_path / "moved")
    with pytest.raises(UserError, match=r"quora-dev\.csv: no such file; .* --data"):
        annotation.draw(run, "quora", seed=0)
    assert annotation.draw(run, "quora", seed=0, data=tmp_path / "moved")
    with open(tmp_path / "moved" / "quora-train.csv", "a") as file:
        file.write("9\tnew\tx\ty\t1.0\n")
    with pytest.raises(UserError, match=r"quora-train\.csv: not the file that .* was made with"):
        annotation.draw(run, "quora", seed=0, data=tmp_path / "moved")


def test_rows_are_those_that_the_run_kept(multitask: Made) -> None:
    run = collect.read_run(with_files(multitask(rows=30)))
    rows = annotation.original_rows(run, "quora", "dev")
    recorded = run.tasks["quora"].rows
    assert recorded is not None and [row.id for row in rows] == recorded.ids
    assert [tuple(map(readers.clean_pair, row.texts)) for row in rows] == list(recorded.texts)
    assert math.isnan(rows[-1].label)


def test_the_page_lets_nothing_of_the_data_become_markup(multitask: Made) -> None:
    folder = with_files(multitask(HOSTILE[2].replace("/", ""), rows=60, texts=HOSTILE, skill=0.2))
    run = collect.read_run(folder)
    html = annotation.build_annotation(annotation.draw(run, "quora", seed=0), run=run.name, task="quora", seed=0)
    assert html.count("<script") == 3 and html.count("</script>") == 3 and "<img" not in html and "onload" in html
    assert not re.findall(r"https?://(?!www\.w3\.org)", html)


def test_counts_add_up(tmp_path: Path) -> None:
    items = [*drawn_at_random(1), ("dev", "last", None)]
    one = annotation.read_annotation(annotated(tmp_path / "a.json", "Ada", items))
    assert (len(one.items), len(one.categories)) == (91, 90)
    for group in annotation.GROUPS:
        expected = {key: sum(item[0] == group and item[2] == key for item in items) for key in NAMES}
        assert one.counts(group) == expected
    text = annotation.counts_text(one, "Ada")
    assert text.startswith("Ada: 90 of 91 pairs sorted") and len(text.splitlines()) == 10


def test_kappa_is_its_formula(tmp_path: Path) -> None:
    both = [drawn_at_random(seed) for seed in (1, 2)]
    both[1] = [mine if n % 2 else theirs for n, (mine, theirs) in enumerate(zip(*both))]
    one, two = (
        annotation.read_annotation(annotated(tmp_path / f"{n}.json", f"P{n}", items)) for n, items in enumerate(both)
    )
    found = {row.name: row for row in annotation.agreement(one, two, resamples=50)}
    for name, row in found.items():
        pairs = [(a[2], b[2]) for a, b in zip(*both) if name in ("all", a[0])]
        alike = sum(a == b for a, b in pairs) / len(pairs)
        chance = (
            sum(sum(a == key for a, _ in pairs) * sum(b == key for _, b in pairs) for key in NAMES) / len(pairs) ** 2
        )
        assert row.kappa == pytest.approx((alike - chance) / (1 - chance), abs=1e-12)
        assert (row.pairs, row.alike / row.pairs) == (len(pairs), pytest.approx(alike))
        assert row.around is not None and row.around.low < row.kappa < row.around.high
    listed = annotation.disagreements(one, two)
    assert sum(count for _, _, count in listed) == found["all"].pairs - found["all"].alike
    assert "Cohen's kappa" in annotation.agreement_text(one, two, resamples=20)


def test_kappa_is_undefined_where_one_category_is_all(tmp_path: Path) -> None:
    assert annotation.kappa([], []) is None
    assert annotation.kappa(["domain"] * 5, ["domain"] * 5) is None
    same = [("dev", str(n), "domain") for n in range(4)]
    one, two = (annotation.read_annotation(annotated(tmp_path / f"{n}.json", "", same)) for n in (1, 2))
    assert "4 of 4 alike, Cohen's kappa undefined" in annotation.agreement_text(one, two)
    assert annotation.annotators([one, two]) == ["1", "2"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "other"}, "format: "),
        ({"items": {}}, "items: "),
        ({"sample": 3}, "sample: "),
        ({"items": [{"group": "failed", "id": "a", "category": "luck"}]}, "items.0.category: "),
        ({"items": [{"group": "test", "id": "a", "category": None}]}, "items.0.group: "),
        ({"items": [{"group": "dev", "id": "a", "category": "idiom"}] * 2}, "duplicate id 'a' of group dev"),
        ({"items": [{"group": "dev", "id": "a", "category": None}]}, "no pair is sorted yet"),
    ],
)
def test_what_is_no_annotation_is_said(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = annotated(tmp_path / "a.json", "Ada", [], **change)
    with pytest.raises(UserError, match=f"^{re.escape(str(path))}: .*{re.escape(said)}"):
        annotation.read_annotation(path)


def test_annotations_of_two_samples_are_not_compared(tmp_path: Path) -> None:
    one, two = (
        annotation.read_annotation(annotated(tmp_path / f"{name}.json", name, drawn_at_random(1), sample=name))
        for name in "ab"
    )
    with pytest.raises(UserError, match=r"b\.json: of another sample than .*a\.json"):
        annotation.agreement(one, two)


def test_the_figure_is_a_function_of_the_counts(tmp_path: Path) -> None:
    one, other = (
        annotation.read_annotation(annotated(tmp_path / f"{name}.json", name, drawn_at_random(seed)))
        for name, seed in (("Ada", 1), ("Ben", 2))
    )
    (svg, png) = annotation.draw_categories(tmp_path / "figure", [one])
    first = svg.read_bytes(), png.read_bytes()
    assert ElementTree.fromstring(first[0]).tag.endswith("svg") and first[1].startswith(b"\x89PNG")
    annotation.draw_categories(tmp_path / "figure", [one])
    assert (svg.read_bytes(), png.read_bytes()) == first
    annotation.draw_categories(tmp_path / "figure", [other])
    assert svg.read_bytes() != first[0]


def test_the_commands(multitask: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_files(multitask(rows=40))
    errors.main(["sample", str(folder), "--seed", "4"])
    printed = capsys.readouterr()
    assert f"{folder / 'annotation.html'}: " in printed.out and "100 train pairs" in printed.out
    assert "note: only 39 dev pairs" in printed.err
    html = (folder / "annotation.html").read_text()
    assert all(one["name"] in html and one["meaning"].split("'")[0][:30] in html for one in annotation.CATEGORIES)
    files = [annotated(tmp_path / f"{n}.json", f"P{n}", drawn_at_random(n)) for n in (1, 2)]
    errors.main(["figure", *map(str, files), "--out", str(tmp_path / "figure-1")])
    assert "Cohen's kappa" in capsys.readouterr().out and (tmp_path / "figure-1.svg").is_file()
    for arguments, said in (
        (["figure", *map(str, [*files, files[0]])], "one annotation, or two"),
        (["sample", str(tmp_path / "nowhere")], "not a run folder"),
        (["sample", str(folder), "--out", str(tmp_path / "no" / "page.html")], "no file can be written there"),
        (["sample", str(folder), "--seed", "x"], "not a whole number"),
    ):
        with pytest.raises(UserError, match=said):
            errors.main(arguments)


def test_a_run_of_stage_one_has_nothing_to_annotate(contrastive: Made) -> None:
    with pytest.raises(UserError, match="has no dev rows of quora"):
        annotation.draw(collect.read_run(contrastive()), "quora", seed=0)
