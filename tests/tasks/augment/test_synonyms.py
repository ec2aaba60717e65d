"""Guards: the texts of a step under each method of synonyms: what may change, when, and that nothing else does.

python -m pytest --import-mode=importlib tests/tasks/augment/test_synonyms.py
"""

import csv
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from minbert import UserError
from minbert.files import sha256_of
from minbert.tokenizer import Tokenizer
from minbert.train.plan import Plan, PlannedBatch
from minbert.train.settings import TrainingSettings
from tasks.augment.synonyms import (
    KEEP,
    SynonymFileSettings,
    SynonymSettings,
    synonym_augmentation,
    synonym_files,
    words_of,
    write_replacements,
)
from tasks.examples import Examples, unchanged
from tasks.sampling import plan as sampling_plan

Make = Callable[..., Any]
OTHERS = {"happy": ["glad", "cheerful"], "sad": ["gloomy"], "old": ["aged"], "cat": ["feline"], "chase": ["pursue"]}
ADJECTIVES = ("happy", "sad", "old")
BACK = {new: old for old, synonyms in OTHERS.items() for new in synonyms}
TEXTS = ["the happy cat and the sad bird", "an old dog", "the mat", "the sad old cat is happy", "dogs chase a cat"]
ROWS = [tuple(TEXTS[(row + column) % len(TEXTS)] for column in range(3)) for row in range(len(TEXTS))]


@pytest.fixture
def opened(examples_of: Make) -> Make:
    """A function that makes examples of the first `columns` texts of ROWS, `times` over, labelled by row."""
    return lambda columns, times=1: examples_of([row[:columns] for row in ROWS * times], range(len(ROWS) * times))


@pytest.fixture(autouse=True)
def _small_wordnet(
    write_wordnet: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = dict.fromkeys(ADJECTIVES, "a") | {"cat": "n", "chase": "v"}
    synsets = [(parts[word], dict.fromkeys((word, *synonyms), 1)) for word, synonyms in OTHERS.items()]
    monkeypatch.setenv("NLTK_DATA", str(write_wordnet(tmp_path_factory.mktemp("nltk"), *synsets)))


@pytest.fixture
def augmentation(tmp_path: Path) -> Make:
    """A function that makes the augmentation of sets by a method; it writes into this test's folder."""

    def make(
        method: Any,
        sets: Any,
        p: float = 1.0,
        *,
        seed: int = 11711,
        epochs: int = 10,
        grow: bool = False,
        steps: Plan | None = None,
        keep: str = "",
    ) -> Any:
        options = SimpleNamespace(
            synonyms=SynonymSettings(synonyms=method, synonyms_p=p, synonyms_grow=grow),
            training=TrainingSettings(seed=seed, epochs=epochs),
            files=SynonymFileSettings(synonyms_keep=keep),
        )
        sets = sets if isinstance(sets, dict) else {"nli": sets}
        return synonym_augmentation(options, sets, steps or Plan([], lambda epoch: []), tmp_path)

    return make


@pytest.fixture
def texts_of(tokenizer: Tokenizer) -> Make:
    """A function that tells the texts of examples by their ids: (row, column) -> text."""
    possible = set(TEXTS)
    for word, synonyms in OTHERS.items():
        possible |= {text.replace(word, new) for text in possible for new in synonyms}
    text_of_ids = {tuple(tokenizer.encode([text])[0]): text for text in possible}

    def texts(examples: Examples, rows: list[int]) -> dict[tuple[int, int], str]:
        keys = [(row, column) for row in rows for column in range(examples.cache.num_texts)]
        return {key: text_of_ids[tuple(examples.ids(*key))] for key in keys}

    return texts


def step(number: int, rows: list[int], epoch: int = 0, task: str = "nli") -> PlannedBatch:
    """A task's step number `number` of an epoch, every second step being one of another task."""
    return PlannedBatch(task, np.array(rows), epoch, 2 * number, number)


def plain(text: str) -> str:
    """A text with its synonyms put back."""
    return " ".join(BACK.get(word, word) for word in text.split())


def changed_words(before: str, after: str) -> list[int]:
    """Indices of the changed words."""
    return [index for index, (old, new) in enumerate(zip(before.split(), after.split(), strict=True)) if old != new]


def test_no_synonyms_need_no_wordnet(
    opened: Make, augmentation: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NLTK_DATA", "")
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "nowhere"))
    examples = opened(3)
    augment = augmentation("none", examples)
    assert augment is unchanged and augment(examples, step(0, [0, 1])) is examples


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_method_3_changes_one_adjective(opened: Make, augmentation: Make, texts_of: Make, columns: int) -> None:
    examples = opened(columns)
    augment = augmentation("3", examples)
    for number in range(6):
        rows = [3, 0, 4]
        for (row, column), after in texts_of(augment(examples, step(number, rows)), rows).items():
            before = ROWS[row][column]
            indices = [index for index, word in enumerate(before.split()) if word in ADJECTIVES]
            assert changed_words(before, after) == ([indices[0] if number % 2 == 0 else indices[-1]] if indices else [])
            assert plain(after) == before, "nothing else changes"


def test_method_3_augments_whole_batches(opened: Make, augmentation: Make) -> None:
    examples = opened(3)
    augment, chosen = augmentation("3", examples, 0.25), 0
    indices = {(row, column) for row in (0, 3) for column in range(3)}
    having = {index for index in indices if set(ADJECTIVES) & set(ROWS[index[0]][index[1]].split())}
    for number in range(400):
        changed = set(augment(examples, step(number, [0, 3])).changes)
        assert changed in (set(), having), "all texts of a batch, or none"
        chosen += bool(changed)
    assert 70 <= chosen <= 130, "within 3.5 standard deviations of 100"


def test_method_3_depends_on_counters_alone(opened: Make, augmentation: Make) -> None:
    """So a resumed run, which begins in the midst and has other batches behind it, goes on with the same texts."""
    examples = opened(3, times=4)

    def augmented(numbers: list[int], rows: list[int], **more: Any) -> dict[int, dict[tuple[int, int], list[int]]]:
        augment = augmentation("3", examples, 0.5, **more)
        return {number: dict(augment(examples, step(number, rows)).changes) for number in numbers}

    whole = augmented(list(range(20)), [0, 1, 2, 3, 4, 9])
    assert any(whole.values())
    assert augmented([17, 11, 3], [0, 1, 2, 3, 4, 9]) == {number: whole[number] for number in (17, 11, 3)}
    alone = augmented([11, 12, 13, 14], [9])
    assert alone == {n: {index: ids for index, ids in whole[n].items() if index[0] == 9} for n in (11, 12, 13, 14)}
    assert augmented(list(range(20)), [0, 1, 2, 3, 4, 9], seed=1) != whole
    # by its id, so that a row which is not read changes no other
    part = replace(examples, cache=examples.cache.subset(np.array([1, 9])))
    augment = augmentation("3", part, 0.5)
    for number, changes in whole.items():
        of_row = {column: ids for (row, column), ids in changes.items() if row == 9}
        assert {column: ids for (_, column), ids in augment(part, step(number, [1])).changes.items()} == of_row


def written(path: Path) -> dict[tuple[str, int], tuple[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    return {(row["id"], int(row["column"])): (row["before"], row["after"]) for row in table}


def test_method_3_writes_replacements(opened: Make, augmentation: Make, texts_of: Make, tmp_path: Path) -> None:
    """Those of the whole plan, before its first step, counted from the texts of every step; once for all resumes."""
    examples = opened(3)
    rows = list(range(len(examples)))
    steps = Plan([4, 4], lambda epoch: [("nli", np.array(rows))] * 4)
    augment = augmentation("3", examples, 0.5, epochs=2, steps=steps)
    assert not (tmp_path / "synonyms").exists(), "nothing is written before the run has begun"
    write_replacements(augment)
    path = tmp_path / "synonyms" / "nli.tsv"
    before_training = path.stat().st_mtime_ns
    write_replacements(augmentation("3", examples, 0.5, epochs=2, steps=steps))
    assert path.stat().st_mtime_ns == before_training
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(steps.total):
        for (row, column), after in texts_of(augment(examples, steps.at(number)), rows).items():
            before = ROWS[row][column].split()
            counts.update((old, new) for old, new in zip(before, after.split(), strict=True) if old != new)
    with open(path, encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert {(line["before"], line["after"]): int(line["times"]) for line in table} == counts and len(counts) > 2
    assert all(line["before"] in line["first text"].split() for line in table)


def test_own_list_replaces_published(opened: Make, augmentation: Make, texts_of: Make, tmp_path: Path) -> None:
    keep = tmp_path / "keep.txt"
    keep.write_text("# words of a test\nHappy  # and no other\n")
    rows = list(range(len(ROWS)))
    augment = augmentation("1", opened(3), keep=str(keep))
    changed = set()
    for (row, column), after in texts_of(augment(opened(3), step(0, rows)), rows).items():
        before = ROWS[row][column].split()
        changed |= {before[index] for index in changed_words(ROWS[row][column], after)}
    assert changed == set(OTHERS) - {"happy"}
    assert {"gay", "toilet", "homo", "crapper", "colored", "pissed", "shitty", "gyp"} <= words_of(KEEP)


def test_list_of_words_is_found(tmp_path: Path) -> None:
    def files(method: Any, keep: str) -> Any:
        options = SimpleNamespace(synonyms=SynonymSettings(method), files=SynonymFileSettings(synonyms_keep=keep))
        return synonym_files(options).get("words that synonyms keep")

    own = tmp_path / "keep.txt"
    own.write_text("happy\n")
    assert files("1", "") == (KEEP, sha256_of(KEEP))
    assert files("1", str(own)) == (own, sha256_of(own))
    with pytest.raises(UserError, match=r"--synonyms-keep .*missing: no such file"):
        files("1", str(tmp_path / "missing"))
    assert files("none", "") is None


def replaceable(words: set[str]) -> int:
    """How often the first two texts of all rows have one of the words."""
    return sum(word in words for row in ROWS for text in row[:2] for word in text.split())


def is_binomial(count: int, number: int, p: float) -> bool:
    """Whether a count of `number` draws of probability p is one of 99.99% of such counts."""
    low, high = stats.binom.interval(0.9999, number, p)
    return low <= count <= high


@pytest.mark.parametrize(("method", "words"), [("1", set(OTHERS)), ("2", set(OTHERS) - {"chase"})])
def test_methods_1_and_2_write_texts(
    opened: Make, augmentation: Make, texts_of: Make, tmp_path: Path, method: str, words: set[str]
) -> None:
    examples = opened(2, times=8)
    augment = augmentation(method, {"quora": examples}, 0.5)
    rows = list(range(len(examples)))
    first = texts_of(augment(examples, step(0, rows, 0, "quora")), rows)
    later = augment(examples, step(33, [2], 7, "quora"))
    assert texts_of(later, rows) == first, "one augmented set for the whole run"
    assert [path.name for path in (tmp_path / "synonyms").iterdir()] == ["quora.tsv"]
    table, changed = written(tmp_path / "synonyms" / "quora.tsv"), set()
    assert len(table) == 2 * len(rows), "every text, changed or not"
    for (row, column), after in first.items():
        before = ROWS[row % len(ROWS)][column]
        assert table[f"id-{row}", column] == (before, after) and plain(after) == before
        changed |= {before.split()[index] for index in changed_words(before, after)}
    assert changed == {word for word in words if any(word in text.split() for row in ROWS for text in row[:2])}
    count = sum(len(changed_words(ROWS[row % len(ROWS)][column], after)) for (row, column), after in first.items())
    assert is_binomial(count, 8 * replaceable(words), 0.5)
    assert later.labels.tolist() == examples.labels.tolist()


@pytest.mark.parametrize("method", ["1", "2"])
def test_growing_keeps_earlier_changes(
    opened: Make, augmentation: Make, texts_of: Make, tmp_path: Path, method: str
) -> None:
    examples, epochs = opened(2, times=6), 4
    rows = list(range(len(examples)))
    augment = augmentation(method, examples, 0.9, epochs=epochs, grow=True)
    counts = []
    before: dict[tuple[int, int], str] = {}
    for epoch in range(epochs):
        now = texts_of(augment(examples, step(epoch, rows, epoch)), rows)
        for (row, column), text in before.items():
            words = (text.split() for text in (ROWS[row % 5][column], text, now[row, column]))
            for old, was, new in zip(*words, strict=True):
                assert new == was or was == old, "a word that was replaced stays replaced by the same"
        counts.append(sum(len(changed_words(ROWS[row % 5][column], text)) for (row, column), text in now.items()))
        before = now
        table = written(tmp_path / f"synonyms/nli-epoch-{epoch + 1}.tsv")
        assert {after for _, after in table.values()} == set(now.values())
    number = 6 * replaceable(set(OTHERS) if method == "1" else set(OTHERS) - {"chase"})
    for epoch, count in enumerate(counts, start=1):
        assert is_binomial(count, number, 0.9 * epoch / epochs)
    resumed = augmentation(method, examples, 0.9, epochs=epochs, grow=True)
    assert texts_of(resumed(examples, step(9, rows, 3)), rows) == before, "a run that is resumed in the last epoch"


@pytest.mark.parametrize(("sampling", "method"), [("round-robin", "1"), ("sequential", "3")])
def test_growing_works_with_every_sampling(
    opened: Make, augmentation: Make, texts_of: Make, sampling: str, method: str
) -> None:
    """Sequential plans count the epochs of all tasks on; each task has its own first and last."""
    sets = {"sst": opened(1), "quora": opened(1, times=2)}
    augment = augmentation(method, sets, epochs=3, grow=True)
    sizes = {name: len(examples) for name, examples in sets.items()}
    plan = sampling_plan(sampling, sizes, epochs=3, batch_size=20, seed=2)
    counts: dict[str, list[int]] = {name: [] for name in sets}
    for number in range(plan.total):
        batch = plan.at(number)
        examples = augment(sets[batch.task], batch)
        counts[batch.task].append(len(changed_words(TEXTS[3], texts_of(examples, [3])[3, 0])))
    for changes in counts.values():
        assert changes == sorted(changes) and changes[-1] == (4 if method == "1" else 3)
