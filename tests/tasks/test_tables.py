"""Guards: numbers and cells as they are shown.

python -m pytest --import-mode=importlib tests/tasks/test_tables.py
"""

import math

import pandas as pd
import pytest

from tasks.tables import Table, number


@pytest.mark.parametrize(
    ("value", "options", "text"),
    [
        (-0.004, {}, "0.00"),
        (0.004, {"sign": True}, "0.00"),
        (-0.125, {"times": 100, "sign": True}, "−12.50"),
        (0.5, {"digits": 1, "sign": True}, "+0.5"),
        (12345.6, {"digits": 0}, "12,346"),
        (math.nan, {}, "–"),
        (None, {"missing": ""}, ""),
    ],
)
def test_number_as_it_is_shown(value: float | None, options: dict, text: str) -> None:
    assert number(value, **options) == text


def test_markdown_has_no_markup_of_cells() -> None:
    table = Table("a_b", pd.DataFrame({"label": ["x|y <b> *z*"], "n": ["1"]}), notes=("[c]",))
    assert table.markdown().splitlines() == [
        "## a_b",
        "",
        "| label | n |",
        "| :--- | ---: |",
        r"| x\|y &lt;b> \*z\* | 1 |",
        "",
        r"\[c\]",
    ]
