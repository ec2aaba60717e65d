"""The files of the Chinese sets of scored pairs, in the folder `zh` (EdaCSE, section 4.3.1).

The canonical form is `sentence1<TAB>sentence2<TAB>label`. The files in circulation differ: LCQMC and STS-B are
canonical, ATEC has a number before the texts, cnsd-sts (STS-B) separates by `||`, and BQ, PAWS-X and ATEC_CCKS have a
header and are read by it.
"""

from pathlib import Path

from tasks.readers.table import Table, fixed_columns

FOLDERS = {
    "ATEC": ("ATEC", "ATEC_CCKS"),
    "BQ": ("BQ",),
    "LCQMC": ("LCQMC",),
    "PAWS-X": ("PAWS-X", "PAWSX"),
    "STS-B": ("STS-B",),
}
"""Set -> the folders that may hold it; a split is taken from the first that has it."""
SUFFIXES = (".csv", ".tsv", ".txt", ".data")
_NUMBERED = ("number", "sentence1", "sentence2", "label")
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "test": "test"}  # word in a file's name -> split


def without_header(table: Table, kind: str) -> Table | None:
    """The table of a form without a header, if the first line fits one."""
    if kind not in ("pair-class", "pair-score"):
        return None
    return (
        # the ids of cnsd-sts are not unique, so the line is the id
        fixed_columns(table, "||", _NUMBERED)
        or fixed_columns(table, "\t", _NUMBERED, numbers=("number", "label"))
        or fixed_columns(table, "\t", _NUMBERED[1:])
    )


def folder(data: Path) -> Path:
    """The folder of the sets' folders: `zh` in the data folder, or the data folder itself."""
    inner = data / "zh"
    return inner if inner.is_dir() else data


def files(data: Path) -> dict[tuple[str, str], Path]:
    """The existing file of each split (train, dev, test) of each set, by set and split.

    Of several forms of a split in one folder it is the last by name.
    """
    base = folder(data)
    paths: dict[tuple[str, str], Path] = {}
    for name, folders in FOLDERS.items():
        for subfolder in reversed(folders):
            for path in sorted((base / subfolder).glob("*")):
                split = _split_of(path)
                if split and path.suffix in SUFFIXES:
                    paths[name, split] = path
    return paths


def _split_of(path: Path) -> str:
    for word, split in _SPLITS.items():
        if word in path.stem.lower():
            return split
    return ""
