"""Guards: `--columns` of stage two belong to a task by its short name, and a name that is no task's is refused.

python -m pytest --import-mode=importlib tests/tasks/test_columns.py
"""

import pytest

from minbert import UserError
from tasks.settings import MultitaskSettings


def test_columns_are_said_of_a_task_by_its_short_name() -> None:
    spec = "sst:sentence=text,label=stars; para:sentence1=a,sentence2=b"
    data = MultitaskSettings.of(columns=spec).data
    assert data.columns_of("sst") == "sentence=text,label=stars"
    assert data.columns_of("quora") == "sentence1=a,sentence2=b" and data.columns_of("sts") == ""
    assert MultitaskSettings.of(tasks="quora", columns="sentence1=a").data.columns_of("quora") == "sentence1=a"
    assert MultitaskSettings.of().data.columns_of("sts") == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sentence=text", "sst:sentence=text"),
        ("quora:sentence1=a", "'quora' is not one of sst, para, sts"),
        ("sst:sentence=a;label=b", "label=b"),
    ],
)
def test_columns_of_no_known_task_are_refused(given: str, said: str) -> None:
    data = MultitaskSettings.of(columns=given).data
    with pytest.raises(UserError, match="--columns") as caught:
        for task in data.chosen:
            data.columns_of(task)
    assert said in str(caught.value)
