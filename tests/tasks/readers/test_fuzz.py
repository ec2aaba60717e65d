"""Guards: a damaged data file gives the rows of its undamaged lines, or one error; nothing hangs or is raised besides.

python -m pytest --import-mode=importlib tests/tasks/readers/test_fuzz.py
python -m pytest --import-mode=importlib tests/tasks/readers/test_fuzz.py -m slow      10,000 files instead of 500
"""

import random
import re
from pathlib import Path

import pytest

from minbert import UserError
from minbert.token_cache import Row
from tasks.readers import open_as
from tests.tasks.readers.test_layouts import GOOD
from tests.tasks.readers.test_nli import FORMS

ODD = [b"\0", b'"', b'""', b"\t", b",", b"\n", b"\r", b"||", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe"]
ODD += [b"\\ud800", b"nan", b"-1", b"1e999", b"9" * 5_000, b"[" * 5_000, b"x" * 300_000]
ODD += [b"{", b"}", b" ", b"\xe2\x80\xa8", b"null"]


def files() -> list[tuple[str, str, str, bytes]]:
    """(kind, name, split, content) of every layout; its row is repeated, with other ids where it has one."""
    made = []
    for kind, name, content, split, ident, *_ in GOOD:
        row = content.splitlines(keepends=True)[-1]
        if "id" in content.splitlines()[0].lower():
            rows = [
                re.sub(rf"(?i)(?<![^\t,]){ident}(?=[\t,\n])", f"{ident}{number}", row, count=1) for number in range(6)
            ]
        else:
            rows = [row] * 6
        made.append((kind, name, split, (content + "".join(rows)).encode()))
    return made + [("nli", name, "train", content.encode()) for name, content in FORMS.items()]


def damaged(content: bytes, draw: random.Random) -> tuple[bytes, int]:
    """The content with a few bytes of one line changed, cut out or put in; and the number of the line."""
    lines = content.splitlines(keepends=True)
    number = draw.randrange(len(lines))
    line = lines[number]
    body = line.rstrip(b"\r\n")
    place, size = draw.randrange(len(body) + 1), draw.choice([0, 0, 1, 3, 20])
    put = draw.choice([b"", draw.randbytes(draw.choice([1, 4])), draw.choice(ODD), draw.choice(ODD)])
    lines[number] = body[:place] + put + body[place + size :] + line[len(body) :]
    return b"".join(lines), number + 1


def rows(path: Path, kind: str, split: str) -> list[tuple[str, ...]]:
    return [row.texts for row in open_as(path, kind, split).rows if isinstance(row, Row)]


@pytest.mark.parametrize("number", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_damaged_file_gives_the_rows_of_its_other_lines_or_one_error(tmp_path: Path, number: int) -> None:
    draw, every, outcomes = random.Random(8), files(), {"read": 0, "refused": 0}
    for turn in range(number):
        kind, name, split, content = every[turn % len(every)]
        path = tmp_path / name
        after, line = damaged(content, draw)
        others = b"".join(one for at, one in enumerate(content.splitlines(keepends=True), 1) if at != line)
        path.write_bytes(others)
        expected = rows(path, kind, split) if line > 1 else []
        try:
            path.write_bytes(after)
            found = rows(path, kind, split)
        except UserError as error:
            said = str(error)
            assert "\n" not in said and len(said) < len(str(path)) + 1_500, (turn, said[:1_000])
            outcomes["refused"] += 1
        else:
            left = iter(found)
            missing = [row for row in expected if row not in left]
            assert not missing, (turn, kind, name, after, missing)
            outcomes["read"] += 1
    assert min(outcomes.values()) > number // 8, outcomes
