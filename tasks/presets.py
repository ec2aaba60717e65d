"""The presets of every command, from the two TOML files next to their settings, and the run that joins both stages."""

from pathlib import Path

from minbert.train.settings import Presets, read_presets

CBCL_RUN = "runs/cbcl"
"""The default folder of CBCL's run, where stage two looks for its encoder."""
_FOLDER = Path(__file__).parent

PRESETS: Presets = {
    **read_presets(_FOLDER / "contrastive" / "presets.toml", "pretrain_cbcl.py"),
    **read_presets(_FOLDER / "presets.toml", "multitask_train.py"),
}
