"""Guards: the report page in a real browser: silent, offline, themed with its figures, fit for a phone and paper.

python -m pytest --import-mode=importlib tests/tasks/report/test_browser.py
"""

import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tasks.report import page
from tasks.runs import read_run

Made = Callable[..., Path]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, driven by playwright; the tests are skipped where one of them is missing."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Debian's chromium is not installed (apt install chromium)")
    library = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (requirements-dev.txt)")
    with library.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class ReportTab:
    """A page opened from disk, with everything that it says or asks for."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def quiet(self) -> bool:
        """Nothing said, nothing asked for but the page itself and data inside it."""
        asked = [url for url in self.requests if url != self.requests[0] and not url.startswith("data:")]
        assert (self.complaints, asked) == ([], [])
        return self.page.evaluate("window.owned") is None

    def too_wide(self) -> list[str]:
        """What makes the page scroll sideways: elements that end right of the window, the bar on top aside."""
        over = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        out = "one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll')"
        wide = f"all => all.filter({out}).map(one => one.outerHTML.slice(0, 90))"
        return self.page.eval_on_selector_all("body *:not(nav *)", wide)[:5] if over > 0 else []


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., ReportTab]]:
    """A function that builds the page of some run folders and opens it."""
    tabs: list[ReportTab] = []

    def open_page(*folders: Path, **how: Any) -> ReportTab:
        path = tmp_path / "page.html"
        runs = [read_run(folder) for folder in folders]
        text = page.build(runs[0], resamples=20) if len(runs) == 1 else page.comparison(runs, resamples=20)
        path.write_text(text, encoding="utf-8")
        tabs.append(ReportTab(browser, path, **how))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_of_page_and_figures_follows_the_system_and_the_button(
    scheme: str, contrastive: Made, opened: Callable[..., ReportTab]
) -> None:
    tab = opened(contrastive(), color_scheme=scheme)

    def dark() -> bool:
        return tab.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]") < 128

    for _ in range(2):
        picture = tab.page.locator("img.chart").first.screenshot()
        low, high = Image.open(io.BytesIO(picture)).convert("L").getextrema()
        assert high > 200 and low < 60, "dark ink on white, or light ink on dark"
        tab.page.click("#theme")
    tab.page.click("#theme")
    assert dark() == (scheme == "light") and tab.quiet()


def test_no_page_scrolls_sideways_on_a_phone(
    multitask: Made, contrastive: Made, opened: Callable[..., ReportTab]
) -> None:
    long = ("word" * 200, "https://example.org/" + "path/" * 60, "一" * 300)
    folders = [multitask("a" * 90, texts=long, skill=0.2), multitask("second", seed=2), contrastive()]
    for chosen in ([folders[0]], [folders[2]], folders):
        tab = opened(*chosen, viewport={"width": 390, "height": 844})
        assert tab.too_wide() == []
        tab.page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
        assert tab.too_wide() == [] and tab.quiet()


@pytest.mark.usefixtures("undrawn")
def test_a_click_on_a_heading_sorts(multitask: Made, opened: Callable[..., ReportTab]) -> None:
    tab = opened(*(multitask(f"run-{skill}", skill=skill) for skill in (0.3, 0.9, 0.5)))
    rows = "table.sortable >> nth=0 >> tbody tr"

    def scores() -> list[float]:
        return tab.page.eval_on_selector_all(rows, "rows => rows.map(row => parseFloat(row.cells[3].textContent))")

    for down in (True, False):
        tab.page.click("table.sortable >> nth=0 >> thead button >> nth=3")
        assert scores() == sorted(scores(), reverse=down)
    assert tab.quiet()
