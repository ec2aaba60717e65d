"""Downloads by pooch, which retries them and writes only complete files."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests

from minbert.errors import UserError

pooch.get_logger().setLevel("WARNING")


class Downloader:
    """The downloads of one command.

    tries: most attempts per file; a host that cannot be connected to gets one for each later file. timeout: seconds
    without data.
    """

    def __init__(self, tries: int = 5, timeout: float = 30.0) -> None:
        self.tries, self.timeout = tries, timeout
        self._unreachable: set[str] = set()

    def fetch(self, url: str, target: Path) -> None:
        """Download `url` to `target`, which must not exist. Raises `UserError` if the last attempt fails."""
        host = urlsplit(url).netloc
        retries = 0 if host in self._unreachable else self.tries - 1
        store = pooch.Pooch(target.parent, "", {target.name: None}, {target.name: url}, retry_if_failed=retries)
        load = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 20, timeout=self.timeout)
        try:
            store.fetch(target.name, downloader=load)
        except requests.RequestException as error:
            if isinstance(error, requests.ConnectionError):
                self._unreachable.add(host)
            raise UserError(f"{url}: {error}") from error
