"""The presets of every command, from the two TOML files next to their settings."""

from pathlib import Path

from minbert.train.settings import Presets, read_presets

_FOLDER = Path(__file__).parent

PRESETS: Presets = {
    **read_presets(_FOLDER / "contrastive" / "presets.toml", "pretrain_cbcl.py"),
    **read_presets(_FOLDER / "presets.toml", "multitask_train.py"),
}
