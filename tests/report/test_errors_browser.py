"""Guards: the annotation page in a real browser: keys, undo, what is kept, export and import, hostile texts, a phone.

python -m pytest --import-mode=importlib tests/report/test_errors_browser.py
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.report import annotation
from tasks.report.annotation import NAMES, Item
from tests.report.browsing import Tab
from tests.report.conftest import HOSTILE

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}

KEYS = list(NAMES)


def items(count: int = 6, texts: tuple[str, ...] = ()) -> list[Item]:
    groups = list(annotation.GROUPS)
    words = [*texts, *(f"Question {number}?" for number in range(len(texts), count))]
    return [
        Item(groups[n % 3], f"id {n}", (text, f"the other of {text}"), "different", "paraphrase")
        for n, text in enumerate(words)
    ]


class AnnotationTab(Tab):
    """The annotation page."""

    def quiet(self) -> bool:
        asked = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
        assert (self.complaints, asked) == ([], [])
        return self.page.evaluate("window.owned") is None

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def said(self, id_: str) -> str:
        return self.page.inner_text(f"#{id_}")

    def export(self, path: Path) -> dict[str, Any]:
        with self.page.expect_download() as download:
            self.page.click("#export")
        download.value.save_as(path)
        return json.loads(path.read_text())

    def load(self, path: Path) -> None:
        self.page.evaluate("document.getElementById('message').textContent = ''")
        self.page.set_input_files("#file", path)
        # The page's content policy forbids the polling of wait_for_function.
        self.page.locator("#message", has_text=path.name).wait_for()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., AnnotationTab]]:
    tabs: list[AnnotationTab] = []

    def open_page(drawn: list[Item] | None = None, name: str = "page.html", **how: Any) -> AnnotationTab:
        path = tmp_path / name
        path.write_text(
            annotation.build_annotation(drawn or items(), run="run", task="quora", seed=0), encoding="utf-8"
        )
        tabs.append(AnnotationTab(browser, path, **how))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.context.close()


def test_keys_sort_undo_and_move(opened: Callable[..., AnnotationTab], tmp_path: Path) -> None:
    tab = opened()
    assert (tab.said("place"), tab.said("count")) == ("Pair 1 of 6", "0 of 6 sorted")
    tab.press("1", "8", "3")
    assert (tab.said("place"), tab.said("count")) == ("Pair 4 of 6", "3 of 6 sorted")
    tab.press("u")
    assert (tab.said("place"), tab.said("chosen")) == ("Pair 3 of 6", "Not sorted yet")
    tab.press("ArrowLeft", "5")  # another choice for the second pair, on to the next unsorted
    assert (tab.said("place"), tab.said("count")) == ("Pair 3 of 6", "2 of 6 sorted")
    tab.press("Control+z")
    assert tab.said("place") == "Pair 2 of 6" and tab.said("chosen") == "Sorted: Wrong label"
    tab.press("9", "0", "x", "ArrowRight", "ArrowRight", "7")
    found = tab.export(tmp_path / "a.json")
    assert [one["category"] for one in found["items"]] == [
        KEYS[0],
        KEYS[7],
        None,
        KEYS[6],
        None,
        None,
    ]
    tab.press("Backspace", "Backspace", "Backspace", "Backspace", "Backspace")
    assert tab.said("count") == "0 of 6 sorted" and tab.page.is_disabled("#undo")
    assert tab.quiet()


def test_a_key_held_down_sorts_one_pair(opened: Callable[..., AnnotationTab]) -> None:
    tab = opened()
    for _ in range(4):  # without a release between them, a browser takes them for repeats
        tab.page.keyboard.down("2")
    tab.page.keyboard.up("2")
    assert tab.said("count") == "1 of 6 sorted"


def test_buttons_sort_as_keys_do_and_the_end_is_said(opened: Callable[..., AnnotationTab]) -> None:
    tab = opened(items(3))
    for number in range(3):
        assert tab.said("texts").split("\n")[0] == f"Question {number}?"
        tab.page.click(f"[data-category={KEYS[number]}]")
    assert tab.said("message") == "All pairs are sorted: export them."
    assert tab.page.evaluate("document.getElementById('bar').value") == 3 and tab.page.is_disabled("#open")
    assert tab.page.get_attribute(f"[data-category={KEYS[2]}]", "aria-pressed") == "true"
    assert tab.quiet()


def test_names_are_typed_and_sort_nothing(opened: Callable[..., AnnotationTab], tmp_path: Path) -> None:
    tab = opened()
    tab.page.click("#annotator")
    tab.page.keyboard.type("Ada 1815 u")
    assert tab.said("count") == "0 of 6 sorted"
    assert tab.export(tmp_path / "a.json")["annotator"] == "Ada 1815 u"


def test_work_is_kept_in_the_browser_for_its_own_sample(opened: Callable[..., AnnotationTab]) -> None:
    tab = opened()
    tab.press("2", "4")
    for _ in range(20):  # Chromium commits localStorage to its browser process asynchronously
        tab.page.wait_for_timeout(500)
        tab.page.reload()
        if tab.said("place") != "Pair 1 of 6":
            break
    assert (tab.said("place"), tab.said("count")) == ("Pair 3 of 6", "2 of 6 sorted")
    tab.press("u")
    assert tab.said("place") == "Pair 2 of 6"
    other = annotation.build_annotation(items(7), run="run", task="quora", seed=0)
    path = Path(tab.page.url.removeprefix("file://"))
    path.write_text(other)
    tab.page.reload()
    assert tab.said("count") == "0 of 7 sorted"
    tab.page.evaluate("for (const key of Object.keys(localStorage)) localStorage.setItem(key, '{\"answers\":[9]}')")
    tab.page.reload()
    assert tab.said("count") == "0 of 7 sorted"
    assert tab.quiet()


def test_exports_are_read_here_and_imported_there(opened: Callable[..., AnnotationTab], tmp_path: Path) -> None:
    first = opened()
    first.press("1", "2", "3", "4")
    first.export(tmp_path / "a.json")
    read = annotation.read_annotation(tmp_path / "a.json")
    assert (len(read.categories), len(read.items), read.sample) == (4, 6, annotation.fingerprint(items()))
    second = opened()
    second.press("8")
    second.load(tmp_path / "a.json")
    assert (second.said("count"), second.said("place")) == ("4 of 6 sorted", "Pair 5 of 6")
    assert second.export(tmp_path / "b.json")["items"] == json.loads((tmp_path / "a.json").read_text())["items"]
    second.press("u", "u", "u", "u")  # an import is undone like any choice
    assert second.said("count") == "1 of 6 sorted" and second.said("chosen") == "Sorted: Wrong label"
    second.press("u")
    for change in ({"format": "x"}, {"sample": "other"}, {"items": [{"group": "dev", "id": "x", "category": "luck"}]}):
        (tmp_path / "bad.json").write_text(json.dumps(json.loads((tmp_path / "a.json").read_text()) | change))
        second.load(tmp_path / "bad.json")
        assert second.said("message").startswith("bad.json ") and second.said("count") == "0 of 6 sorted"
    (tmp_path / "worse.json").write_text("{")
    second.load(tmp_path / "worse.json")
    assert "no exported annotation" in second.said("message")
    assert first.quiet() and second.quiet()


def test_hostile_texts_are_shown_and_never_run(opened: Callable[..., AnnotationTab]) -> None:
    tab = opened(items(6, HOSTILE))
    for text in HOSTILE:
        assert tab.page.evaluate("document.querySelector('#texts p').textContent") == text
        tab.press("ArrowRight")
    assert tab.page.locator("main img, main svg, main script").count() == 0
    assert tab.quiet()


def test_a_phone_scrolls_one_way_and_returns_to_the_pair(opened: Callable[..., AnnotationTab]) -> None:
    tab = opened(items(4, ("word" * 120, "https://example.org/" + "path/" * 60)), **PHONE)
    assert tab.page.evaluate("document.documentElement.scrollWidth <= screen.width")
    tab.page.tap(f"[data-category={KEYS[7]}]")
    assert tab.said("place") == "Pair 2 of 4" and tab.page.evaluate("scrollY") == 0
    assert tab.quiet()
