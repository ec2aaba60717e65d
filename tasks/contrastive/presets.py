"""Named sets of settings for the first stage, as data: one for each system that the papers compare."""

from minbert.training.cli import Presets

_CBCL = {
    "pooler": "pooler", "max_length": 32, "temperature": 0.05, "power": 0.5, "margin": 0.2, "epochs": 10,
    "batch_size": 32, "lr": 2e-5, "mask_false_negatives": False,
}  # fmt: skip
_SIMCSE = {
    "max_length": 32, "temperature": 0.05, "batch_size": 512, "lr": 5e-5, "lr_schedule": "linear",
    "evaluate_every": 125, "mask_false_negatives": False,
}  # fmt: skip
_SBERT = {
    "pooler": "mean", "max_length": 75, "temperature": 0.05, "batch_size": 350, "lr": 2e-5, "lr_schedule": "linear",
    "warmup": 0.1, "weight_decay": 0.01, "mask_false_negatives": False,
}  # fmt: skip
_SELF_TAUGHT = {"margin": 0.2, "power": 1.0, "epochs": 4}

PRESETS: Presets = {
    "cbcl": (
        "CBCL: margin groups, root pacing, NT-Xent with hard negatives, on the pooled vector its heads see",
        _CBCL,
    ),
    "sample": (
        "for data/sample and the packaged weights: done in seconds",
        {"weights": "minilm", "pooler": "mean", "epochs": 3, "batch_size": 16, "lr": 2e-5, "margin": 0.2},
    ),
    "contrastive": ("CBCL's contrastive arm: the same without a curriculum", _CBCL | {"order": "none"}),
    "cbcl-synonyms": (
        "CBCL with synonyms: in a quarter of the batches one adjective of each sentence is replaced",
        _CBCL | {"synonyms": "3"},
    ),
    "selfccl-bert": (
        "SelfCCL-BERT: self-taught margin groups, linear pacing, average of first and last layer, batch 512",
        _SIMCSE | _SELF_TAUGHT | {"pooler": "avg-first-last"},
    ),
    "selfccl-sbert": (
        "SelfCCL-SBERT: self-taught margin groups, linear pacing, mean pooling, batch 350",
        _SBERT | _SELF_TAUGHT,
    ),
    "sbert-nli-v2": (
        "SelfCCL's baseline: multiple negatives ranking loss without a curriculum, 3 epochs",
        _SBERT | {"order": "none", "epochs": 3},
    ),
    "simcse-sup": (
        "supervised SimCSE: [CLS] with a projection in training only, 3 epochs, the best by STS dev",
        _SIMCSE | {"order": "none", "pooler": "cls", "projection": True, "epochs": 3},
    ),
    "sbert-nli": (
        "SBERT: classification of NLI pairs over [u; v; |u - v|], one epoch",
        {
            "objective": "softmax", "pooler": "mean", "max_length": 128, "epochs": 1, "batch_size": 16, "lr": 2e-5,
            "lr_schedule": "linear", "warmup": 0.1,
        },
    ),
}  # fmt: skip
