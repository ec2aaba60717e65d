"""Resumable HTTP downloads: retried with exponential back-off, verified, and renamed only when complete."""

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import httpx
from tqdm import tqdm

from minbert.errors import UserError
from minbert.files import sync, write_atomic

Check = Callable[[Path], str]
"""Function from a complete file to the reason why it is not the expected one, or ""."""
LARGEST = 1 << 30  # default limit for one download, in bytes
_LONGEST_PAUSE = 60.0  # seconds
_TEMPORARY = (408, 425, 429)  # HTTP status codes that are retried, besides 5xx


class _RetryError(Exception):
    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class Downloader:
    """The downloads of one command.

    tries: most attempts in a row without progress. timeout: seconds without data; a third of it to connect. wait:
    seconds before the second attempt, doubled for each further one. largest: most bytes of one file. An unreachable
    host gets at most three attempts for the first file, and one for each later file.
    """

    def __init__(self, tries: int = 5, timeout: float = 30.0, wait: float = 1.0, largest: int = LARGEST) -> None:
        self.tries, self.wait, self.largest = tries, wait, largest
        self._unreachable: set[str] = set()
        limits = httpx.Timeout(timeout, connect=timeout / 3)
        headers = {"Accept-Encoding": "identity", "User-Agent": "minbert-get-data"}
        one = httpx.Limits(max_keepalive_connections=0)  # one connection per file, closed after it
        self._client = httpx.Client(timeout=limits, follow_redirects=True, headers=headers, limits=one)

    def fetch(self, url: str, target: Path, check: Check) -> None:
        """Download `url` to `target`. An interrupted download stays in `.NAME.part` and is resumed by the next call.

        Raises `UserError` for a permanent HTTP error, too many attempts, or a file that is too large or rejected by
        `check`; `target` is not written then.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise UserError(f"{url}: not an http or https address")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        failures, furthest = 0, _size(part)
        while True:
            try:
                self._attempt(url, part, target, check)
                return
            except (httpx.TooManyRedirects, httpx.InvalidURL) as error:
                raise UserError(f"{url}: {error}") from error
            except (_RetryError, httpx.TransportError) as error:
                failures = 1 if _size(part) > furthest else failures + 1
                furthest = max(furthest, _size(part))
                self._pause(url, error, failures)

    def _pause(self, url: str, error: Exception, failures: int) -> None:
        host, tries = urlsplit(url).netloc, self.tries
        why = f"{url}: {error or type(error).__name__}"
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            tries = 1 if host in self._unreachable else min(tries, 3)
            self._unreachable |= {host} if failures >= tries else set()
        pause = min(self.wait * 2 ** (failures - 1), _LONGEST_PAUSE)
        if isinstance(error, _RetryError) and error.after is not None:
            pause = error.after
        if pause > _LONGEST_PAUSE:
            raise UserError(f"{why}; the server asks to retry after {pause:.0f} s")
        if failures >= tries:
            raise UserError(f"{why} (attempts: {failures})")
        time.sleep(pause)

    def _attempt(self, url: str, part: Path, target: Path, check: Check) -> None:
        with open(part, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{part}: another process is downloading this file") from None
            try:
                resumed = self._transfer(url, part, file)
            finally:
                file.flush()
                if not _size(part):
                    _discard(part)
            if not _size(part):
                raise UserError(f"{url}: the answer is empty")
            sync(part)
            if why := check(part):
                _discard(part)
                if resumed:  # the earlier bytes may be of another version: start again
                    raise _RetryError(f"not the expected file: {why}")
                raise UserError(f"{url}: not the expected file: {why}")
            os.replace(part, target)
            _note(part).unlink(missing_ok=True)
        sync(target.parent)

    def _transfer(self, url: str, part: Path, file: IO[bytes]) -> bool:
        """Download the missing bytes into `file`; True if the download was resumed."""
        headers = _resumption(url, part)
        with self._client.stream("GET", url, headers=headers) as answer:
            start = _start(answer, url, part)
            file.truncate(start)
            length = answer.headers.get("Content-Length", "")
            total = start + int(length) if length.isdigit() else None
            validator = answer.headers.get("ETag", "")
            if not validator or validator.startswith("W/"):
                validator = answer.headers.get("Last-Modified", "")
            write_atomic(_note(part), json.dumps({"url": url, "validator": validator}))
            name = urlsplit(url).path.rpartition("/")[2]
            done = start
            with tqdm(
                desc=name, total=total, initial=start, unit="B", unit_scale=True, leave=False, disable=None
            ) as bar:
                for block in answer.iter_raw():
                    done += len(block)
                    if max(done, total or 0) > self.largest:
                        _discard(part)
                        raise UserError(f"{url}: larger than the {self.largest} bytes allowed")
                    file.write(block)
                    bar.update(len(block))
        return start > 0


def _resumption(url: str, part: Path) -> dict[str, str]:
    """Headers that request only the missing bytes, provided the file's ETag or Last-Modified date is unchanged."""
    try:
        note = json.loads(_note(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not _size(part) or note.get("url") != url or not note.get("validator"):
        return {}
    return {"Range": f"bytes={_size(part)}-", "If-Range": note["validator"]}


def _start(answer: httpx.Response, url: str, part: Path) -> int:
    """The offset in the file of the response's first byte. Raises if the response holds no part of the file."""
    if urlsplit(url).scheme == "https" and answer.url.scheme != "https":
        raise UserError(f"{url}: redirected from https to {answer.url}")
    status = answer.status_code
    if status == 200:
        return 0
    why = f"the server answers {status} {answer.reason_phrase}".rstrip()
    if status == 206:
        if answer.headers.get("Content-Range", "").startswith(f"bytes {_size(part)}-"):
            return _size(part)
        why = "the server sent another range than requested"
    if status in (206, 416):
        _discard(part)
        raise _RetryError(why)
    if status in _TEMPORARY or status >= 500:
        after = answer.headers.get("Retry-After", "")
        raise _RetryError(why, float(after) if after.isdigit() else None)
    raise UserError(f"{url}: {why}")


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)
