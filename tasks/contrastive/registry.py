"""Objectives of stage one by the name that `--objective` has for them."""

from tasks.contrastive.objectives import MarginLoss, NTXent, Softmax, Texts, TripletLoss
from tasks.contrastive.unsupervised import Joint, SimCSE, Views

OBJECTIVES: dict[str, type[Texts]] = {
    "nt-xent": NTXent, "triplet": TripletLoss, "margin": MarginLoss, "softmax": Softmax, "views": Views, "joint": Joint,
    "simcse": SimCSE,
}  # fmt: skip
