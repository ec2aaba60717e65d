"""One file over HTTP: resumed after a break, retried with growing pauses, checked, and only then given its name."""

import email.utils
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import httpx
from tqdm import tqdm

from data.fetch.disk import room
from minbert.errors import UserError
from minbert.files import sync, write_atomic

Check = Callable[[Path], str]
"""Looks at a whole file: "" where it is the wanted one, else why not."""


@dataclass(frozen=True)
class Policy:
    """How long a transfer is tried. Seconds, except `tries` (attempts in a row without progress) and `slowest`."""

    tries: int = 5
    wait: float = 1.0  # before the second attempt; doubles from there
    longest: float = 60.0  # no pause is longer; a server that asks for more is given up
    timeout: float = 30.0  # for a stall; to connect, it is a third of that
    knocks: int = 3  # attempts at a host that cannot be reached at all
    slowest: int = 1024  # bytes a second; less than that over `timeout` is a stall too


class _AgainError(Exception):
    def __init__(self, why: str, after: float | None = None, *, unreachable: bool = False) -> None:
        super().__init__(why)
        self.after, self.unreachable = after, unreachable


class Downloader:
    """HTTP transfers of one command. A host that could not be reached is asked only once afterwards."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._unreachable: set[str] = set()
        limits = httpx.Timeout(self.policy.timeout, connect=self.policy.timeout / 3)
        headers = {"Accept-Encoding": "identity", "User-Agent": "minbert-get-data"}
        self._client = httpx.Client(timeout=limits, follow_redirects=True, headers=headers)

    def fetch(self, url: str, target: Path, *, cap: int, check: Check) -> None:
        """Bring `url` to `target`, at most `cap` bytes. What arrived of a broken transfer stays in `.NAME.part`.

        Raises `UserError`: an answer that a retry cannot mend (404 and the like), attempts used up, more than `cap`
        bytes, a full disk, or a file that `check` refuses. Nothing is left under the final name then.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise UserError(f"{url}: not an http or https address")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        failures, furthest = 0, _size(part)
        while True:
            try:
                self._attempt(url, part, target, cap, check)
                return
            except _AgainError as trouble:
                failures = 1 if _size(part) > furthest else failures + 1
                furthest = max(furthest, _size(part))
                self._pause(url, trouble, failures)

    def _pause(self, url: str, trouble: _AgainError, failures: int) -> None:
        host = urlsplit(url).netloc
        tries = self.policy.tries
        if trouble.unreachable:
            tries = 1 if host in self._unreachable else min(tries, self.policy.knocks)
        if trouble.unreachable and failures >= tries:
            self._unreachable.add(host)
        pause = self.policy.wait * 2 ** (failures - 1) if trouble.after is None else trouble.after
        if trouble.after is not None and pause > self.policy.longest:
            raise UserError(f"{url}: {trouble}, and the server asks to come back in {pause:.0f} s")
        if failures >= tries:
            raise UserError(f"{url}: {trouble} (attempts: {failures})")
        time.sleep(min(pause, self.policy.longest))

    def _attempt(self, url: str, part: Path, target: Path, cap: int, check: Check) -> None:
        with _locked(part) as file:
            resumed = self._transfer(url, part, file, cap)
            file.flush()
            os.fsync(file.fileno())
            why = check(part)
            if why:
                _discard(part)
                if resumed:  # its first half may be of another version: once more, from the start
                    raise _AgainError(f"what came is not the file: {why}")
                raise UserError(f"{url}: what came is not the file: {why}")
            os.replace(part, target)
            _note(part).unlink(missing_ok=True)
        sync(target.parent)

    def _transfer(self, url: str, part: Path, file: IO[bytes], cap: int) -> bool:
        """Fill `file`; True where the transfer went on from bytes of an earlier one."""
        start, headers = _resumption(url, part)
        try:
            with self._client.stream("GET", url, headers=headers) as answer:
                start = _place(answer, url, part, start)
                total = _total(answer, start)
                if total is not None and total > cap:
                    raise UserError(f"{url}: {total} bytes are offered, more than the {cap} this file may have")
                room(part.parent, (total or 0) - start, url)
                file.truncate(start)
                file.seek(start)
                write_atomic(_note(part), json.dumps({"url": url, "validator": _validator(answer)}))
                self._stream(answer, file, url, start, total, cap)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects) as error:
            raise UserError(f"{url}: {error}") from error
        except httpx.TransportError as error:
            unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError)
            raise _AgainError(_words(error), unreachable=unreachable) from error
        return start > 0

    def _stream(
        self, answer: httpx.Response, file: IO[bytes], url: str, start: int, total: int | None, cap: int
    ) -> None:
        since, then, done = time.monotonic(), start, start
        name = urlsplit(url).path.rpartition("/")[2]
        with tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=name, disable=None, leave=False) as bar:
            for block in answer.iter_raw():
                done += len(block)
                if done > cap:
                    _discard(Path(file.name))
                    raise UserError(f"{url}: more than the {cap} bytes that this file may have")
                file.write(block)
                bar.update(len(block))
                if time.monotonic() - since > self.policy.timeout:
                    if done - then < self.policy.slowest * self.policy.timeout:
                        raise _AgainError(f"only {done - then} bytes came in {self.policy.timeout:g} s")
                    since, then = time.monotonic(), done


def _resumption(url: str, part: Path) -> tuple[int, dict[str, str]]:
    """Where to go on, and the headers that ask for it: only the same file by its ETag or date is ever continued."""
    start = _size(part)
    try:
        note = json.loads(_note(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0, {}
    if not start or note.get("url") != url or not note.get("validator"):
        return 0, {}
    return start, {"Range": f"bytes={start}-", "If-Range": note["validator"]}


def _place(answer: httpx.Response, url: str, part: Path, start: int) -> int:
    """The byte at which the answer's body begins. Raises where there is no body to have."""
    if urlsplit(url).scheme == "https" and answer.url.scheme != "https":
        raise UserError(f"{url}: the server leads from https to {answer.url}")
    if answer.status_code == 206:
        if not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            _discard(part)
            raise _AgainError("the server sent another range than was asked for")
        return start
    if answer.status_code == 200:
        return 0
    why = f"the server answers {answer.status_code} {answer.reason_phrase}".rstrip()
    if answer.status_code == 416:  # the file there is shorter than what lies here
        _discard(part)
        raise _AgainError(why)
    if answer.status_code in (408, 425, 429) or answer.status_code >= 500:
        raise _AgainError(why, _retry_after(answer))
    raise UserError(f"{url}: {why}")


def _total(answer: httpx.Response, start: int) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return start + int(length) if length.isdigit() else None


def _validator(answer: httpx.Response) -> str:
    tag = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified", "")


def _retry_after(answer: httpx.Response) -> float | None:
    value = answer.headers.get("Retry-After", "")
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, (email.utils.parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _words(error: httpx.TransportError) -> str:
    kinds: dict[type[Any], str] = {
        httpx.ConnectTimeout: "no connection in time",
        httpx.ReadTimeout: "the transfer stalled",
        httpx.ConnectError: "no connection",
    }
    return f"{kinds.get(type(error), 'the transfer broke')}{f': {error}' if str(error) else ''}"


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note(part).unlink(missing_ok=True)


@contextmanager
def _locked(part: Path) -> Iterator[IO[bytes]]:
    """The part file, open at both ends, for this process alone."""
    with open(part, "r+b" if part.exists() else "x+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{part}: another run is fetching this file") from None
        try:
            yield file
        except BaseException:
            if not _size(part):
                _discard(part)
            raise
