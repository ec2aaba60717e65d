"""Curriculum-based contrastive pre-training of an encoder on NLI triplets.

python pretrain_cbcl.py --data data/sample --weights minilm
python pretrain_cbcl.py --preset cbcl --run-dir runs/cbcl
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minbert.training import cli
from tasks.contrastive.presets import PRESETS
from tasks.contrastive.settings import ContrastiveSettings

if TYPE_CHECKING:
    from minbert.encode import Encoder
    from minbert.tokenizer import Tokenizer
    from minbert.training.plan import Plan
    from tasks.examples import Pair, Triplet


def open_data(settings: ContrastiveSettings, tokenizer: "Tokenizer", length: int) -> "tuple[Triplet, Pair]":
    """The triplets, and the similarity pairs that choose the best epoch."""
    from minbert import token_cache
    from minbert.errors import UserError
    from minbert.training import start
    from tasks import readers
    from tasks.examples import Triplet
    from tasks.sts import Similarity

    def find(given: str, folder: str, *names: str) -> Path:
        return Path(given) if given else readers.find(start.data_folder(settings.data), folder, names)

    source = find(settings.triplets, "nli", "nli_for_simcse.csv", "nli-triplets.csv")
    cache = token_cache.load(source, readers.triplets, "triplets", 3, tokenizer)
    triplets = Triplet(cache, tokenizer.cls, tokenizer.sep, length)
    if not len(triplets):
        raise UserError(f"{source}: no usable row")
    cut = triplets.truncated(2, joined=False)
    if cut:
        start.warn(f"{source}: {cut} of {3 * len(triplets)} sentences are longer than {length} tokens and are cut")
    if cache.skipped:
        start.warn(f"{source}: {len(cache.skipped)} rows skipped (listed in manifest.json)")
    path = find(settings.sts_dev, "course", "sts-dev.csv")
    sts = Similarity("bi").open(path, "dev", tokenizer, length)
    cut = sts.truncated(2, joined=False)
    if cut:
        start.warn(f"{path}: {cut} of {2 * len(sts)} sentences are longer than {length} tokens and are cut")
    return triplets, sts


def curriculum_plan(
    settings: ContrastiveSettings, encoder: "Encoder", triplets: "Triplet", weights_sha256: str
) -> "tuple[Plan, dict[str, int]]":
    """The order of the triplets, and how many there are of each difficulty (none are counted without a curriculum)."""
    import numpy as np

    from tasks.contrastive import curriculum, scoring

    order, power, mix = np.arange(len(triplets)), 0.0, {}
    if settings.order == "curriculum":
        cosines = scoring.similarities(encoder, triplets, weights_sha256)
        groups = curriculum.difficulty(cosines.positive, cosines.negative, settings.margin)
        mix = {name: int((groups == group).sum()) for group, name in enumerate(curriculum.GROUPS)}
        order, power = curriculum.by_difficulty(groups, settings.seed), settings.power
    how = {"epochs": settings.epochs, "batch_size": settings.batch_size, "seed": settings.seed}
    return curriculum.plan(order, **how, power=power), mix


def main() -> None:
    """Settings, read, score, fit, write."""
    about = __doc__.splitlines()[0]
    parsed = cli.parse(
        ContrastiveSettings, PRESETS, sys.argv[1:], program="pretrain_cbcl.py", about=about, default="cbcl"
    )
    settings = parsed.settings

    from minbert import weights
    from minbert.config import BertConfig
    from minbert.encode import Encoder
    from minbert.errors import UserError
    from minbert.files import write_json
    from minbert.optimizer import AdamW, decay_groups
    from minbert.precision import choose
    from minbert.training import loop, plan, ranks, start
    from minbert.training.rundir import RunDir
    from tasks.contrastive import validation
    from tasks.contrastive.objectives import TripletObjective

    for note in settings.ignored(parsed.overrides):
        start.warn(note)
    device = start.device(demanded=settings.use_gpu)
    if ranks.world() > 1:
        raise UserError("contrastive pre-training runs in one process; start it without torchrun")
    precision = choose(settings.precision, device)
    model, tokenizer, folder = start.encoder(settings.source, settings.encoder_dropout)
    triplets, sts = open_data(settings, tokenizer, start.max_length(settings.max_length, model.config))
    accounts = {"triplets": triplets.cache.account(), "sts_dev": sts.cache.account()}
    hashes = {name: one["sha256"] for name, one in accounts.items()}
    identity = start.identity(settings, hashes, folder, precision=precision, on=device)
    run = RunDir.open(Path(settings.run_dir), resume=settings.resume, identity=identity)

    model.to(device)
    manifest = start.manifest(parsed, identity, folder, precision=precision, on=device, data=accounts)
    encoder = Encoder(model, tokenizer, settings.pooler, precision=precision)
    steps, mix = curriculum_plan(settings, encoder, triplets, manifest["weights"]["sha256"])
    run.begin(manifest | {"curriculum": mix, "plan": plan.describe(steps)})
    shown = ", ".join(f"{count:,} {name}" for name, count in mix.items()) or "no curriculum"
    print(
        f"{len(triplets):,} triplets ({shown}), {steps.total:,} steps of {settings.batch_size}, {precision} on {device}"
    )

    optimizer = AdamW(decay_groups(model.parameters(), settings.weight_decay), lr=settings.rate)
    evaluate = validation.sts_spearman(encoder, sts)
    objective = TripletObjective(triplets, settings.pooler, settings.temperature)
    how = start.loop_settings(settings, precision)
    before = evaluate()[1]["sts_dev_spearman"]
    print(f"STS dev Spearman before training {validation.said(before)}")
    state = loop.fit(model, optimizer, objective, steps, run, how, evaluate, device=device, resume=settings.resume)
    weights.save(run.path / "encoder", model.state_dict(), BertConfig.read(folder), tokenizer, settings.pooler)
    after = evaluate()[1]["sts_dev_spearman"]
    scores = {"sts_dev_spearman": {"before": before, "after": after}, "step": state.best_step}
    write_json(run.path / "scores.json", scores)
    print(f"STS dev Spearman {validation.said(after)} (best of the evaluations, at step {state.best_step:,})")
    print(f"encoder in {run.path / 'encoder'}; next: python multitask_train.py --encoder {run.path / 'encoder'}")


if __name__ == "__main__":
    cli.run(main)
