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
from tests.tasks.augment.test_replacement import changed_words

Make = Callable[..., Any]
OTHERS = {"happy": ["glad", "cheerful"], "sad": ["gloomy"], "old": ["aged"], "cat": ["feline"], "chase": ["pursue"]}
ADJECTIVES = ("happy", "sad", "old")
BACK = {"glad": "happy", "cheerful": "happy", "gloomy": "sad", "aged": "old", "feline": "cat", "pursue": "chase"}
WORDS_OF_METHOD = {"1": set(OTHERS), "2": set(OTHERS) - {"chase"}}
TEXTS = ["the happy cat and the sad bird", "an old dog", "the mat", "the sad old cat is happy", "dogs chase a cat"]
ROWS = [*zip(TEXTS, TEXTS[1:] + TEXTS[:1], TEXTS[2:] + TEXTS[:2])]


@pytest.fixture
def opened(examples_of: Make) -> Make:
    """A function that makes examples of the first `columns` texts of ROWS, `times` over, labelled by row."""

    def make(columns: int, times: int = 1) -> Examples:
        rows = [row[:columns] for row in ROWS * times]
        return examples_of(rows, range(len(rows)))

    return make


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
    for new, old in BACK.items():
        possible |= {text.replace(old, new) for text in possible}
    text_of_ids = {tuple(tokenizer.encode([text])[0]): text for text in possible}

    def texts(examples: Examples, rows: list[int]) -> dict[tuple[int, int], str]:
        by_key = {}
        for row in rows:
            for column in range(examples.cache.num_texts):
                by_key[row, column] = text_of_ids[tuple(examples.ids(row, column))]
        return by_key

    return texts


def step(number: int, rows: list[int], epoch: int = 0, task: str = "nli") -> PlannedBatch:
    """A task's step number `number` of an epoch, every second step being one of another task."""
    return PlannedBatch(task, np.array(rows), epoch, 2 * number, number)


def plain(text: str) -> str:
    """A text with its synonyms put back."""
    return " ".join(BACK.get(word, word) for word in text.split())


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
            adjectives = [word for word in before.split() if word in ADJECTIVES]
            expected = adjectives[:1] if number % 2 == 0 else adjectives[-1:]
            assert [old for old, _ in changed_words(before, after)] == expected
            assert plain(after) == before, "nothing else changes"


def test_method_3_augments_whole_batches(opened: Make, augmentation: Make) -> None:
    examples = opened(3)
    augment = augmentation("3", examples, 0.25)
    with_adjective = {(0, 0), (0, 1), (3, 0), (3, 2)}
    chosen = 0
    for number in range(400):
        changed = set(augment(examples, step(number, [0, 3])).changes)
        assert changed in (set(), with_adjective), "all texts of a batch, or none"
        chosen += bool(changed)
    assert 70 <= chosen <= 130, "within 3.5 standard deviations of 100"


def test_method_3_depends_on_counters_alone(opened: Make, augmentation: Make) -> None:
    """So a resumed run, which begins in the midst and has other batches behind it, goes on with the same texts."""
    examples = opened(3, times=4)

    def augmented(numbers: list[int], rows: list[int], **more: Any) -> dict[int, dict[tuple[int, int], list[int]]]:
        augment = augmentation("3", examples, 0.5, **more)
        return {number: dict(augment(examples, step(number, rows)).changes) for number in numbers}

    numbers = list(range(20))
    rows = [0, 1, 2, 3, 4, 9]
    whole = augmented(numbers, rows)
    assert any(whole.values())
    assert augmented([17, 11, 3], rows) == {number: whole[number] for number in (17, 11, 3)}
    assert augmented(numbers, rows, seed=1) != whole
    alone = augmented(numbers, [9])
    part = replace(examples, cache=examples.cache.subset(np.array([1, 9])))
    augment = augmentation("3", part, 0.5)
    for number, changes in whole.items():
        of_row_9 = {key: ids for key, ids in changes.items() if key[0] == 9}
        assert alone[number] == of_row_9
        # by its id, so that a row which is not read changes no other
        of_part = augment(part, step(number, [1])).changes
        assert {(9, column): ids for (_, column), ids in of_part.items()} == of_row_9


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
            counts.update(changed_words(ROWS[row][column], after))
    with open(path, encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert {(line["before"], line["after"]): int(line["times"]) for line in table} == counts
    assert len(counts) > 2
    assert all(line["before"] in line["first text"].split() for line in table)


def test_own_list_replaces_published(opened: Make, augmentation: Make, texts_of: Make, tmp_path: Path) -> None:
    keep = tmp_path / "keep.txt"
    keep.write_text("# words of a test\nHappy  # and no other\n")
    rows = list(range(len(ROWS)))
    augment = augmentation("1", opened(3), keep=str(keep))
    changed = set()
    for (row, column), after in texts_of(augment(opened(3), step(0, rows)), rows).items():
        changed |= {old for old, _ in changed_words(ROWS[row][column], after)}
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
    count = 0
    for first, second, _ in ROWS:
        count += sum(word in words for word in f"{first} {second}".split())
    return count


def is_binomial(count: int, number: int, p: float) -> bool:
    """Whether a count of `number` draws of probability p is one of 99.99% of such counts."""
    low, high = stats.binom.interval(0.9999, number, p)
    return low <= count <= high


@pytest.mark.parametrize("method", ["1", "2"])
def test_methods_1_and_2_write_texts(
    opened: Make, augmentation: Make, texts_of: Make, tmp_path: Path, method: str
) -> None:
    examples = opened(2, times=8)
    augment = augmentation(method, {"quora": examples}, 0.5)
    rows = list(range(len(examples)))
    first = texts_of(augment(examples, step(0, rows, 0, "quora")), rows)
    later = augment(examples, step(33, [2], 7, "quora"))
    assert texts_of(later, rows) == first, "one augmented set for the whole run"
    assert [path.name for path in (tmp_path / "synonyms").iterdir()] == ["quora.tsv"]
    table = written(tmp_path / "synonyms" / "quora.tsv")
    assert len(table) == 2 * len(rows), "every text, changed or not"
    changed = []
    for (row, column), after in first.items():
        before = ROWS[row % len(ROWS)][column]
        assert table[f"id-{row}", column] == (before, after) and plain(after) == before
        changed += [old for old, _ in changed_words(before, after)]
    words = WORDS_OF_METHOD[method]
    assert set(changed) == words
    assert is_binomial(len(changed), 8 * replaceable(words), 0.5)
    assert later.labels.tolist() == examples.labels.tolist()


@pytest.mark.parametrize("method", ["1", "2"])
def test_growing_keeps_earlier_changes(
    opened: Make, augmentation: Make, texts_of: Make, tmp_path: Path, method: str
) -> None:
    examples = opened(2, times=6)
    epochs = 4
    rows = list(range(len(examples)))
    augment = augmentation(method, examples, 0.9, epochs=epochs, grow=True)
    counts = []
    original = texts_of(examples, rows)
    before = original
    for epoch in range(epochs):
        now = texts_of(augment(examples, step(epoch, rows, epoch)), rows)
        count = 0
        for key in now:
            words = zip(original[key].split(), before[key].split(), now[key].split(), strict=True)
            for old, was, new in words:
                assert was in (old, new), "a word that was replaced stays replaced by the same"
                count += new != old
        counts.append(count)
        before = now
        table = written(tmp_path / f"synonyms/nli-epoch-{epoch + 1}.tsv")
        assert {after for _, after in table.values()} == set(now.values())
    number = 6 * replaceable(WORDS_OF_METHOD[method])
    for epoch, count in enumerate(counts, start=1):
        assert is_binomial(count, number, 0.9 * epoch / epochs)
    resumed = augmentation(method, examples, 0.9, epochs=epochs, grow=True)
    assert texts_of(resumed(examples, step(9, rows, 3)), rows) == before, "a run that is resumed in the last epoch"


@pytest.mark.parametrize(("sampling", "method", "most"), [("round-robin", "1", 4), ("sequential", "3", 3)])
def test_growing_works_with_every_sampling(
    opened: Make, augmentation: Make, texts_of: Make, sampling: str, method: str, most: int
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
        after = texts_of(examples, [3])[3, 0]
        counts[batch.task].append(len(changed_words(TEXTS[3], after)))
    for changes in counts.values():
        assert changes == sorted(changes)
        assert changes[0] < changes[-1] == most
