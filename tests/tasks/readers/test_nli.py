"""Guards: premise, hypothesis and label of every NLI form, and gold labels alone.

python -m pytest --import-mode=importlib tests/tasks/readers/test_nli.py
"""

import json
from collections.abc import Callable

import pytest

from minbert.token_cache import Issue, Row
from tasks.readers import open_as

# What each form below holds; the third pair has no gold label.
PAIRS = [
    ("A man naps.", '"Hush," he sleeps.', "entailment"),
    ("A man naps.", "He dreams of the sea.", "neutral"),
    ("A man naps.", "Unclear.", "-"),
    ("A man naps.", 'A man runs "fast', "contradiction"),
]
LABELS = {"entailment": 0.0, "neutral": 1.0, "contradiction": 2.0}

SNLI_HEAD = [
    *("gold_label", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"),
    *("sentence1", "sentence2", "captionID", "pairID", "label1", "label2", "label3", "label4", "label5"),
]


def tsv(head: list[str], *records: list[str]) -> str:
    return "\n".join("\t".join(cells) for cells in (head, *records)) + "\n"


def json_lines() -> str:
    rows = ({"gold_label": gold, "pairID": "1", "sentence1": a, "sentence2": b} for a, b, gold in PAIRS)
    return "".join(json.dumps(row) + "\n" for row in rows)


def snli(a: str, b: str, gold: str) -> list[str]:
    return [gold, "( x )", "( y )", "(ROOT x)", "(ROOT y)", a, b, "1.jpg#0", "1.jpg#0r1n", gold, "", "", "", ""]


FORMS = {
    "snli.jsonl": json_lines(),
    "snli.txt": tsv(SNLI_HEAD, *(snli(*pair) for pair in PAIRS)),
    "nli-pairs.tsv": tsv(["premise", "hypothesis", "label", "source"], *([*pair, "snli_dev"] for pair in PAIRS)),
    "comma.csv": "premise,hypothesis,label\n"
    + "".join('{},"{}",{}\n'.format(a, b.replace('"', '""'), gold) for a, b, gold in PAIRS),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_rows(write: Callable, name: str) -> None:
    first = 1 if name.endswith("jsonl") else 2
    data = open_as(write(FORMS[name], name), "nli")
    expected = [
        Row(str(line), (a, b), LABELS[gold]) for line, (a, b, gold) in enumerate(PAIRS, first) if gold in LABELS
    ]
    assert data.rows == expected
    assert data.skipped == [Issue(first + 2, "no gold label")]


def test_bad_labels_are_errors(write: Callable, refusal: Callable) -> None:
    path = write("premise\thypothesis\tlabel\na\tb\tmaybe\n")
    assert refusal(open_as, path, "nli").startswith("file.csv:2: label: 'maybe'")
