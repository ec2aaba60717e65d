"""What was fetched, from where: a record while a set is incomplete, `manifest.json` when it is whole."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data.fetch.sources import Part
from minbert.files import read_json, sha256_of, write_json

MANIFEST, RECORD = "manifest.json", ".fetched.json"


@dataclass
class Ledger:
    """The entries of one set's folder by path: source, bytes, sha256, rows, licence, citation."""

    folder: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> "Ledger":
        """Read what an earlier run wrote, whole or not."""
        for name in (MANIFEST, RECORD):
            if (folder / name).exists():
                return cls(folder, {entry["path"]: entry for entry in read_json(folder / name)["files"]})
        return cls(folder)

    def sha256(self, path: str, source: str = "") -> str:
        """The hash recorded when the file was first fetched (from `source`, where one is given), or ""."""
        entry = self.entries.get(path, {})
        return entry.get("sha256", "") if not source or entry.get("source") == source else ""

    def add(self, path: str, *, source: str, rows: int, part: Part, pinned: bool) -> None:
        """Note a file that lies in the folder."""
        file = self.folder / path
        self.entries[path] = {
            "path": path, "part": part.name, "source": source, "bytes": file.stat().st_size,
            "sha256": sha256_of(file), "rows": rows, "pinned": pinned,
            "licence": part.licence, "citation": part.citation,
        }  # fmt: skip

    def reopen(self) -> None:
        """The set is about to change: until it is whole again there is no manifest."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.save()
        (self.folder / MANIFEST).unlink(missing_ok=True)

    def save(self) -> None:
        """Keep the entries of a set that is not whole yet."""
        write_json(self.folder / RECORD, self._content(False, []))

    def close(self, notes: list[str], **facts: Any) -> None:
        """Write the manifest: the set is whole."""
        write_json(self.folder / MANIFEST, self._content(True, notes) | facts)
        (self.folder / RECORD).unlink(missing_ok=True)

    def _content(self, complete: bool, notes: list[str]) -> dict[str, Any]:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        files = [self.entries[path] for path in sorted(self.entries) if (self.folder / path).is_file()]
        return {"complete": complete, "written": when, "notes": notes, "files": files}
