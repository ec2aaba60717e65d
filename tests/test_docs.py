"""Guards: no dead link in any page, every training command is understood, the figure's numbers are those of the rows.

python -m pytest --import-mode=importlib tests/test_docs.py
"""

import csv
import re
import shlex
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import pytest

from minbert.train import start

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "ablations").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page).lower(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_no_link_is_dead(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: there is no {target}"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_figure_shows_recorded_numbers() -> None:
    with open(ROOT / "ablations" / "results" / "recipe.csv", encoding="utf-8", newline="") as file:
        recorded = {(row["arm"], row["value"]) for row in csv.DictReader(file) if row["metric"] == "dev norm"}
    figure = (ROOT / "docs" / "results.svg").read_text(encoding="utf-8")
    drawn = re.findall(r">([^<>]+): (0\.\d{4})<", figure)
    assert len(drawn) == 8
    assert set(drawn) <= recorded


# Placeholders of the pages, and choices that an exercise adds.
VALUES = {"$seed": "1", "align-uniform": "nt-xent", "sst,cfimdb": "sst"}
COMMAND = re.compile(
    r"\b(pretrain_cbcl\.py|multitask_train\.py|tasks\.contrastive\.(?:consert|simcse|nli)) .*", re.DOTALL
)


def commands() -> list[str]:
    """The command lines of training, in the pages' blocks of code and in their lines."""
    lines = []
    for page in PAGES:
        for language, code in BLOCK.findall(page.read_text("utf-8")):
            if not language:
                lines += code.replace("\\\n", " ").splitlines()
        lines += re.findall(r"`([^`]*)`", prose(page))
    matches = []
    for line in lines:
        match = COMMAND.search(line.partition(" #")[0])
        # test_own_tasks.py runs the commands with --new-task, which read a file
        if match and "--" in match[0] and "--new-task" not in match[0]:
            matches.append(" ".join(match[0].split()))
    assert matches
    return list(dict.fromkeys(matches))


@pytest.mark.parametrize("command", commands())
def test_command_is_understood(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VALUES.items():
        command = command.replace(name, value)
    name, *words = shlex.split(command)
    monkeypatch.chdir(tmp_path)
    for word in words:
        if word.startswith("runs/"):  # a run that another command makes
            Path(word).mkdir(parents=True, exist_ok=True)
    script = import_module(name.removesuffix(".py"))
    parsed: list[object] = []
    monkeypatch.setattr(start, "open_run", nullcontext)
    monkeypatch.setattr(script, "train", parsed.append)
    monkeypatch.setattr(sys, "argv", [name, *words])
    script.main()
    assert len(parsed) == 1
