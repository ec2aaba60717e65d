"""Named sets of settings for the first stage, as data: one for each system that the papers compare."""

from minbert.training.settings import Presets

_CBCL = {
    "pooler": "pooler",
    "max_length": 32,
    "temperature": 0.05,
    "power": 0.5,
    "margin": 0.2,
    "epochs": 10,
    "batch_size": 32,
    "lr": 2e-5,
    "clip": 0.0,
    "mask_false_negatives": False,
    "sts_dev": "course",
    "keep": "last",
}
_SIMCSE = {
    "max_length": 32,
    "temperature": 0.05,
    "batch_size": 512,
    "lr": 5e-5,
    "lr_schedule": "linear",
    "evaluate_every": 125,
    "mask_false_negatives": False,
    "sts_dev": "stsb",
    "keep": "best",
}
_SBERT = {
    "pooler": "mean",
    "max_length": 75,
    "temperature": 0.05,
    "batch_size": 350,
    "lr": 2e-5,
    "lr_schedule": "linear",
    "warmup": 0.1,
    "weight_decay": 0.01,
    "mask_false_negatives": False,
    "sts_dev": "stsb",
    "keep": "best",
}
_SELF_TAUGHT = {"margin": 0.2, "power": 1.0, "epochs": 4}

_CONSERT = {
    "objective": "views",
    "views": "feature-cutoff:0.2,shuffle",
    "texts": "sts",
    "keep_duplicates": True,
    "pooler": "mean",
    "max_length": 64,
    "encoder_dropout": 0.0,
    "temperature": 0.1,
    "lr": 5e-7,
    "epochs": 10,
    "batch_size": 96,
    "lr_schedule": "linear",
    "warmup": 0.1,
    "evaluate_every": 200,
    "patience": 10,
    "protect_special": False,
    "sts_dev": "stsb",
    "keep": "best",
}
_EDACSE = {
    "objective": "simcse",
    "eda_weight": 0.6,
    "marks_most": 3,
    "texts": "chinese",
    "limit": 10_000,
    "pooler": "cls",
    "max_length": 64,
    "temperature": 0.05,
    "lr": 3e-5,
    "epochs": 1,
    "batch_size": 32,
    "lr_schedule": "cosine",
    "weight_decay": 0.01,
    "evaluate_every": 125,
    "weights": "bert-base-chinese",
    "sts_dev": "zh",
    "keep": "best",
}
_SUPERVISED = {
    "pooler": "mean",
    "max_length": 64,
    "lr": 2e-5,
    "epochs": 1,
    "batch_size": 96,
    "lr_schedule": "linear",
    "warmup": 0.1,
    "evaluate_every": 200,
    "sts_dev": "stsb",
    "keep": "best",
}

PRESETS: Presets = {
    "cbcl": (
        "CBCL: margin groups, root pacing, NT-Xent with hard negatives, on the pooled vector its heads see",
        _CBCL,
    ),
    "sample": (
        "for data/sample and the packaged weights: done in seconds",
        {
            "weights": "minilm",
            "pooler": "mean",
            "epochs": 3,
            "batch_size": 16,
            "lr": 1e-5,
            "margin": 0.2,
            "sts_dev": "course",
            "keep": "last",
        },
    ),
    "minilm": (
        "CBCL for the packaged weights: mean pooling, as they were trained, 3 epochs of batches of 64",
        _CBCL
        | {
            "weights": "minilm",
            "pooler": "mean",
            "max_length": 64,
            "batch_size": 64,
            "epochs": 3,
            "lr_schedule": "linear",
            "warmup": 0.1,
        },
    ),
    "contrastive": ("CBCL's contrastive arm: the same without a curriculum", _CBCL | {"order": "none"}),
    "cbcl-synonyms": (
        "CBCL with synonyms: in a quarter of the batches one adjective of each sentence is replaced by any WordNet has",
        _CBCL | {"synonyms": "3", "synonyms_senses": "all"},
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
        "supervised SimCSE: [CLS] with a projection that is kept as the pooler, 3 epochs, the best by STS dev",
        _SIMCSE | {"order": "none", "pooler": "cls", "projection": "kept", "epochs": 3},
    ),
    "sbert-nli": (
        "SBERT: classification of NLI pairs over [u; v; |u - v|], one epoch",
        {
            "objective": "softmax",
            "pooler": "mean",
            "max_length": 128,
            "epochs": 1,
            "batch_size": 16,
            "lr": 2e-5,
            "lr_schedule": "linear",
            "warmup": 0.1,
            "sts_dev": "stsb",
            "keep": "best",
        },
    ),
    "consert": ("ConSERT: feature cutoff and shuffling of the STS texts, at the paper's rates", _CONSERT),
    "consert-tuned": (
        "ConSERT at a rate of 2e-5 and a temperature of 0.05 (our choice; paper and released scripts: 5e-7 and 0.1), "
        "[CLS] and [SEP] protected",
        _CONSERT | {"lr": 2e-5, "temperature": 0.05, "protect_special": True},
    ),
    "consert-joint": (
        "ConSERT joint: classification of NLI pairs and two views of their texts, one epoch; rate, views and the sum "
        "of the losses are the released script's, the features [u; v; |u - v|] the paper's",
        _SUPERVISED
        | {
            "objective": "joint",
            "views": "none,token-cutoff:0.1",
            "alpha": 0.15,
            "temperature": 0.1,
            "protect_special": False,
        },
    ),
    "consert-sup": (
        "the first half of ConSERT sup-unsup: classification of NLI pairs, one epoch, at the released script's rate",
        _SUPERVISED | {"objective": "softmax"},
    ),
    "consert-sup-unsup": (
        "its second half: give --weights RUN/encoder of a run with consert-sup; the paper's settings (the released "
        "scripts contrast each text with itself under feature cutoff 0.1 and keep BERT's dropout)",
        _CONSERT | {"weights": ""},
    ),
    "consert-joint-unsup": (
        "the second half of ConSERT joint-unsup: give --weights RUN/encoder of a run with consert-joint; the paper's "
        "settings (the released scripts contrast each text with itself shuffled and keep BERT's dropout)",
        _CONSERT | {"weights": ""},
    ),
    "simcse": (
        "unsupervised SimCSE on the texts of EdaCSE: a text twice under dropout, without a projection",
        _EDACSE | {"eda_weight": 0.0, "marks_most": 0},
    ),
    "edacse-bert": ("EdaCSE for bert-base-chinese: 1 to 3 marks, lambda 0.6", _EDACSE),
    "edacse-roberta": (
        "EdaCSE for chinese-roberta-wwm-ext: 1 or 2 marks, lambda 0.3",
        _EDACSE | {"weights": "hfl/chinese-roberta-wwm-ext", "marks_most": 2, "eda_weight": 0.3},
    ),
    "edacse-roberta-large": (
        "EdaCSE for chinese-roberta-wwm-ext-large: 1 to 5 marks, lambda 0.6",
        _EDACSE | {"weights": "hfl/chinese-roberta-wwm-ext-large", "marks_most": 5, "lr": 5e-6, "batch_size": 16},
    ),
}
