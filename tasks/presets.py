"""The presets of all commands, and `CBCL_RUN`, the folder in which stage two looks for stage one's encoder."""

from pathlib import Path

from minbert.train.settings import Presets, read_presets

CBCL_RUN = "runs/cbcl"
"""The default folder of CBCL's run, where stage two looks for its encoder."""
_FOLDER = Path(__file__).parent

PRESETS: Presets = {
    **read_presets(_FOLDER / "contrastive" / "presets.toml", "pretrain_cbcl.py"),
    **read_presets(_FOLDER / "presets.toml", "multitask_train.py"),
}
