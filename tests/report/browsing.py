"""A headless Chromium for the pages' tests, and a tab that remembers what its page says and asks for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def started() -> Iterator[Any]:
    """Debian's Chromium, driven by playwright; the test is skipped where one of them is missing."""
    if CHROMIUM is None:
        pytest.skip("Debian's chromium is not installed (apt install chromium)")
    library = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (requirements-dev.txt)")
    with library.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Tab:
    """A page opened from disk, with everything that it says or asks for."""

    def __init__(self, browser: Any, path: Path, **how: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **how})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
