"""Named sets of settings for the first stage, as data."""

from minbert.training.cli import Presets

PRESETS: Presets = {
    "cbcl": (
        "CBCL: margin groups, root pacing, NT-Xent with hard negatives, on the pooled vector its heads see",
        {
            "pooler": "pooler",
            "temperature": 0.05,
            "power": 0.5,
            "margin": 0.2,
            "epochs": 10,
            "batch_size": 32,
            "lr": 2e-5,
        },
    ),
    "sample": (
        "for data/sample and the packaged weights: done in seconds",
        {"weights": "minilm", "pooler": "mean", "epochs": 3, "batch_size": 16, "lr": 2e-5, "margin": 0.2},
    ),
    "contrastive": ("the same without a curriculum", {"order": "none"}),
}
