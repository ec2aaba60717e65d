"""What `get_data.py` noted when it fetched a set, held against what lies there now."""

from pathlib import Path
from typing import Any

from minbert.errors import UserError
from minbert.files import read_json, sha256_of

_NAMES = ("manifest.json", ".fetched.json")


def manifests(data: Path) -> list[dict[str, Any]]:
    """For each set's folder with a manifest: whether the set is whole, and the files missing or changed since."""
    folders = sorted(path for path in data.iterdir() if path.is_dir())
    found = [(folder, next((name for name in _NAMES if (folder / name).is_file()), "")) for folder in (data, *folders)]
    return [_compared(folder, folder / name, data) for folder, name in found if name]


def _compared(folder: Path, manifest: Path, data: Path) -> dict[str, Any]:
    result = {"manifest": manifest.relative_to(data).as_posix(), "complete": False, "files": 0, "broken": None}
    result |= {"missing": [], "changed": []}
    try:
        content = read_json(manifest)
        noted = {entry["path"]: entry["sha256"] for entry in content["files"]}
        result |= {"complete": content["complete"] is True, "files": len(noted)}
    except UserError as error:
        return result | {"broken": str(error)}
    except (KeyError, TypeError):
        return result | {"broken": f"{manifest}: not a manifest of get_data.py"}
    there = [path for path in noted if (folder / path).is_file()]
    changed = [path for path in there if sha256_of(folder / path) != noted[path]]
    return result | {"missing": sorted(noted.keys() - set(there)), "changed": changed}
