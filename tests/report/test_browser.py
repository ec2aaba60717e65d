"""Guards: the report page in a real browser: silent, offline, searchable, sortable, themed, fit for a phone and paper.

python -m pytest --import-mode=importlib tests/report/test_browser.py
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.report import collect, html, page
from tests.report.browsing import Tab
from tests.report.conftest import HOSTILE

Made = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("undrawn")


class ReportTab(Tab):
    """The report page."""

    def quiet(self) -> bool:
        """Nothing said, nothing asked for but the page itself and data inside it."""
        asked = [url for url in self.requests if url != self.requests[0] and not url.startswith("data:")]
        assert (self.complaints, asked) == ([], [])
        return self.page.evaluate("window.owned") is None

    def rows(self) -> list[list[str]]:
        """The cells of the list of errors."""
        return self.page.eval_on_selector_all(
            "#errors-table tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
        )

    def too_wide(self) -> list[str]:
        """What makes the page scroll sideways: elements that end right of the window, the bar on top aside."""
        over = self.page.evaluate("document.documentElement.scrollWidth - screen.width")
        out = "one => one.getBoundingClientRect().right > screen.width + 1"
        wide = f"all => all.filter({out}).map(one => one.outerHTML.slice(0, 90))"
        return self.page.eval_on_selector_all("body *:not(nav *)", wide)[:5] if over > 0 else []


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., ReportTab]]:
    """A function that builds the page of some run folders and opens it."""
    tabs: list[ReportTab] = []

    def open_page(*folders: Path, **how: Any) -> ReportTab:
        path = tmp_path / "page.html"
        runs = [collect.read_run(folder) for folder in folders]
        html.write_page(path, *page.build(runs, path, resamples=20))
        tabs.append(ReportTab(browser, path, **how))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.context.close()


def test_hostile_data_is_shown_and_never_runs(
    multitask: Made, contrastive: Made, opened: Callable[..., ReportTab]
) -> None:
    tab = opened(multitask(HOSTILE[2], texts=HOSTILE, skill=0.2, rows=100), contrastive())
    assert tab.quiet()
    tab.page.fill("#query", "window.owned")
    shown = " ".join(cell for row in tab.rows() for cell in row)
    assert HOSTILE[0] in shown
    assert tab.quiet()


def test_search_task_and_more_choose_what_is_listed(multitask: Made, opened: Callable[..., ReportTab]) -> None:
    tab = opened(multitask(skill=0.3, rows=120))
    assert len(tab.rows()) == 25
    tab.page.click("#more")
    assert len(tab.rows()) == 75
    tab.page.fill("#query", "NUMBER quora")
    assert {row[0].split()[0] for row in tab.rows()} == {"paraphrase"}
    tab.page.fill("#query", "sst-17")
    assert all("sst-17" in row[0] for row in tab.rows())
    tab.page.fill("#query", "no such words")
    assert tab.rows() == []
    assert tab.page.inner_text("#count") == "Nothing found"
    tab.page.fill("#query", "")
    tab.page.select_option("#of-task", "sts")
    assert {row[0].split()[0] for row in tab.rows()} == {"similarity"}
    assert tab.quiet()


def test_columns_sort_both_ways(multitask: Made, opened: Callable[..., ReportTab]) -> None:
    tab = opened(multitask(skill=0.3, rows=120))
    tab.page.select_option("#of-task", "sts")

    def errors() -> list[float]:
        return [float(row[-1].split()[-1]) for row in tab.rows()]

    assert errors() == sorted(errors(), reverse=True)
    tab.page.click("[data-sort=wrong]")
    assert errors() == sorted(errors())
    assert tab.page.get_attribute("th:has([data-sort=wrong])", "aria-sort") == "ascending"
    tab.page.click("[data-sort=gold]")
    gold = [float(row[2]) for row in tab.rows()]
    assert gold == sorted(gold)
    tab.page.select_option("#sort", "length")
    lengths = [len(row[1]) for row in tab.rows()]
    assert lengths == sorted(lengths, reverse=True)
    assert tab.quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(
    scheme: str, multitask: Made, opened: Callable[..., ReportTab]
) -> None:
    tab = opened(multitask(), color_scheme=scheme)

    def brightness() -> int:
        return tab.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")

    first = brightness()
    assert (first > 128) == (scheme == "light")
    tab.page.click("#theme")
    assert (brightness() > 128) != (first > 128)
    for _ in range(20):  # a busy browser stores what a page gives it a moment later
        tab.page.wait_for_timeout(500)
        tab.page.reload()
        if tab.page.evaluate("localStorage.getItem('report-theme')"):
            break
    tab.page.reload()
    assert (brightness() > 128) != (first > 128)
    tab.page.click("#theme")
    assert brightness() == first
    assert tab.quiet()


def test_a_phone_scrolls_one_way_only(multitask: Made, contrastive: Made, opened: Callable[..., ReportTab]) -> None:
    long = ("word" * 200, "https://example.org/" + "path/" * 60, "一" * 300)
    folders = [multitask("a" * 90, texts=long, skill=0.2), multitask("second", seed=2), contrastive()]
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    for chosen in ([folders[0]], [folders[2]], folders):
        tab = opened(*chosen, **phone)
        assert tab.too_wide() == []
        tab.page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
        assert tab.too_wide() == []
        assert tab.quiet()


def test_curves_are_plotted_zoomed_and_smoothed(contrastive: Made, opened: Callable[..., ReportTab]) -> None:
    tab = opened(contrastive())
    curves = tab.page.locator("[data-curve]")
    assert tab.page.locator(".uplot canvas").count() == curves.count() >= 4
    assert not tab.page.is_visible("[data-curve] img")
    plot = tab.page.locator("[data-curve=dev-sts_dev_spearman]")
    plot.scroll_into_view_if_needed()
    box = plot.locator(".u-over").bounding_box()
    tab.page.mouse.move(box["x"] + 2, box["y"] + 20)
    assert plot.locator(".u-value").all_inner_texts() == ["0", "0.8000"], "the point before training"
    tab.page.eval_on_selector(".smooth input", "one => { one.value = 0.9; one.dispatchEvent(new Event('input')); }")
    tab.page.click("#theme")
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 80, box["y"] + 20, steps=3)
    tab.page.mouse.up()
    assert tab.quiet()


def test_on_paper_it_is_light_and_without_controls(multitask: Made, opened: Callable[..., ReportTab]) -> None:
    tab = opened(multitask(), color_scheme="dark")
    tab.page.click("#theme")
    tab.page.click("#theme")
    tab.page.emulate_media(media="print")
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.page.evaluate("getComputedStyle(document.querySelector('h2')).color") == "rgb(27, 29, 32)"
    assert not tab.page.is_visible(".top")
    assert not tab.page.is_visible(".controls")
    assert tab.page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_the_rest_is_there(multitask: Made, opened: Callable[..., ReportTab]) -> None:
    tab = opened(multitask(), java_script_enabled=False)
    assert "needs JavaScript" in tab.page.inner_text("#errors")
    assert tab.page.is_visible("img.chart")
