"""Guards: a name is taken whatever its case, and the nearest known name is suggested for an unknown one.

python -m pytest --import-mode=importlib tests/minbert/test_errors.py
"""

import pytest

from minbert.errors import UserError, one_of
from minbert.training import cli

KNOWN = ("STS-B", "SICK", "en", "EN")


def test_names_are_taken_whatever_their_case() -> None:
    assert [one_of(word, KNOWN, "--sets") for word in ("STS-B", "sts-b", " Sick", "EN", "en")] == [
        *("STS-B", "STS-B", "SICK", "EN", "en")
    ]


@pytest.mark.parametrize(
    ("word", "end"), [("sts-c", "EN; did you mean 'STS-B'?"), ("sikc", "did you mean 'SICK'?"), ("weather", ", EN")]
)
def test_the_nearest_name_is_suggested(word: str, end: str) -> None:
    with pytest.raises(UserError, match=f"^--sets: '{word}' is not one of STS-B, SICK, en, EN") as caught:
        one_of(word, KNOWN, "--sets")
    assert str(caught.value).endswith(end)


def test_every_parser_suggests_the_nearest_choice() -> None:
    parser = cli.Parser(prog="x")
    parser.add_argument("--part", choices=("training", "scoring"))
    parser.add_subparsers(dest="command").add_parser("sample")
    with pytest.raises(UserError, match="--part: 'trianing' is not one of training, scoring; did you mean 'training'"):
        parser.parse_args(["--part", "trianing"])
    with pytest.raises(UserError, match="'smaple' is not one of sample; did you mean 'sample'"):
        parser.parse_args(["smaple"])
