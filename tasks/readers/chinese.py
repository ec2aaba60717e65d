"""The files of the Chinese sets of scored pairs, in the folder `zh` (EdaCSE, section 4.3.1).

Their forms differ: LCQMC, STS-B and ATEC have a layout of `kinds.LAYOUTS`, BQ, PAWS-X and ATEC_CCKS a header.
"""

from pathlib import Path

FOLDERS = {
    "ATEC": ("ATEC", "ATEC_CCKS"),
    "BQ": ("BQ",),
    "LCQMC": ("LCQMC",),
    "PAWS-X": ("PAWS-X", "PAWSX"),
    "STS-B": ("STS-B",),
}
"""Set -> the folders that may hold it; a split is taken from the first that has it."""
SUFFIXES = (".csv", ".tsv", ".txt", ".data")
_SPLITS = {"train": "train", "dev": "dev", "valid": "dev", "test": "test"}  # word in a file's name -> split


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
        # the preferred folder last: its files replace those of the others
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
