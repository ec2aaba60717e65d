"""Curriculum-based contrastive pre-training of an encoder on NLI triplets.

python pretrain_cbcl.py --preset intermediate --run-dir runs/intermediate
python pretrain_cbcl.py --preset cbcl --run-dir runs/cbcl
"""

import sys
from functools import partial
from typing import TYPE_CHECKING

from minbert.train import cli
from minbert.train.settings import parse
from tasks.contrastive.settings import PRESETS, ContrastiveSettings

if TYPE_CHECKING:
    from minbert.train.start import Start


def main() -> None:
    """Read the settings, open the run, then train."""
    description, script = __doc__.splitlines()[0], "pretrain_cbcl.py"
    parsed = parse(ContrastiveSettings, PRESETS, sys.argv[1:], program=script, description=description, default="cbcl")
    from minbert.train import start  # it imports torch, which --help does not need

    with start.open_run(parsed) as started:
        train(started)


def train(started: "Start[ContrastiveSettings]") -> None:
    """Read the triplets, score, sort and pace them, fit, evaluate, save, write the page."""
    from minbert import weights
    from minbert.encoder import Encoder
    from minbert.optimizer import AdamW, decay_groups
    from minbert.train import distributed, loop, plan
    from tasks import augment
    from tasks.contrastive import curriculum, data, evaluation, scoring
    from tasks.contrastive.model import ContrastiveModel, ContrastiveTrainStep

    settings, training, run = started.settings, started.settings.training, started.run
    objective = settings.objective

    # read the triplets (or what else the objective trains on)
    data.check_files(settings)
    resources = augment.resources(settings.synonyms, settings.files.data)
    started, initial = started.with_encoder()
    settings = started.settings
    dataset = data.read(settings, initial.tokenizer, initial.max_length)
    identity = started.identify(initial, {**dataset.inputs, **resources})

    # score them with the starting encoder, sort them into easy, semi-hard and hard, pace them over the epochs
    pooler = settings.encoder.trained_pooler
    encoder = Encoder(initial.model, initial.tokenizer, pooler, precision=started.precision)
    scored = scoring.score(settings, encoder, dataset.train, initial.sha256)
    order, groups = curriculum.sort(objective.curriculum, scored, training.seed)
    paced = curriculum.pace(objective.curriculum, training, order, groups)

    # fit
    model = ContrastiveModel(settings, initial.model).to(started.device)
    optimizer = AdamW(decay_groups(model.parameters(), training.weight_decay), lr=training.lr)
    augmentation = objective.augmentation(settings, dataset.train, initial.tokenizer, run.path)
    step = ContrastiveTrainStep(objective, dataset.train, augmentation, training.chunk)
    started.write_manifest(
        identity,
        initial,
        data=dataset.entry,
        plan=plan.describe(paced.plan),
        training_rows={"nli": paced.row_count},
        curriculum=paced.manifest_entry(),
    )
    evaluation.print_summary(settings, dataset, paced, initial.model, started.describe(initial.model))
    dev = evaluation.Evaluation(settings, encoder, dataset, scored.rows)
    before = dev.evaluate()
    distributed.say(f"before training: {evaluation.as_text(before.numbers)}")
    state = loop.fit(
        model,
        optimizer,
        step,
        paced.plan,
        run,
        training,
        settings.run,
        dev.score,
        device=started.device,
        precision=started.precision,
        baseline=before.score,
    )

    # evaluate, save, write the page
    after = dev.kept(state)
    if distributed.rank():
        return
    folder, state_dict = run.path / "encoder", initial.model.state_dict()
    weights.save(folder, state_dict, initial.config, initial.tokenizer, encoder.pooler)
    evaluation.write(run, settings, dataset, scored, paced, [before, after], state)
    run.record_step(state.step)
    cli.run_module("tasks.report", str(run.path))
    cli.say(f"encoder in {folder}; next: {evaluation.next_command(settings, folder, initial.config.hidden_size)}")


command = partial(cli.run, main)
"""The console command `minbert-pretrain`."""

if __name__ == "__main__":
    command()
