"""Guards: no dead link in any page, every command of the scripts is understood, the figure's numbers are the tables'.

python -m pytest --import-mode=importlib tests/test_docs.py
"""

import json
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "ablations").rglob("*.md"))]


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_are_alive(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: there is no {target}"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_figure_shows_numbers_of_tables() -> None:
    lines = [line.lstrip("| ") for line in (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").splitlines()]
    figure = (ROOT / "docs" / "results.svg").read_text(encoding="utf-8")
    for name, value, _, _, start in json.loads((ROOT / "docs" / "results.json").read_text())["rows"]:
        rows = [line for line in lines if line.startswith(start) and f"| {value:.4f}".replace("0.", ".") in line]
        assert len(rows) == 1 and f"{name}: {value:.4f}" in figure


# Placeholders of the pages, and what their reader is to write.
VALUES = {"$seed": "1", "--seed N": "--seed 1", "ORDER": "none", "uniform ": "nt-xent ", "sst,cfimdb": "sst"}


TRAINING = r"\b(?:pretrain_cbcl\.py|multitask_train\.py|-m tasks\.contrastive\.(?:consert|simcse|nli)) .*"


def commands() -> list[str]:
    """The training commands in the pages' blocks of code and in their lines."""
    blocks = [code for page in PAGES for language, code in BLOCK.findall(page.read_text("utf-8")) if not language]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    lines += [code for page in PAGES for code in re.findall(r"`([^`]*)`", prose(page))]
    matches = (re.search(TRAINING, line.partition(" #")[0], re.S) for line in lines)
    return list(dict.fromkeys(" ".join(match[0].split()) for match in matches if match and " --" in match[0]))


@pytest.mark.parametrize("command", commands())
def test_documented_commands_parse(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VALUES.items():
        command = command.replace(name, value)
    name, *words = shlex.split(command.removeprefix("-m "))
    monkeypatch.chdir(tmp_path)
    for earlier in (word for word in words if word.startswith("runs/")):  # a run that another command makes
        Path(earlier).mkdir(parents=True, exist_ok=True)
    script = import_module(name.removesuffix(".py"))
    parsed: list[object] = []
    monkeypatch.setattr(script, "train", parsed.append)
    monkeypatch.setattr(sys, "argv", [name, *words])
    script.main()
    assert len(parsed) == 1
