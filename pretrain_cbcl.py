"""Curriculum-based contrastive pre-training of an encoder on NLI triplets.

python pretrain_cbcl.py --data data/sample --weights minilm
python pretrain_cbcl.py --preset cbcl --run-dir runs/cbcl
"""

import sys
from typing import TYPE_CHECKING, NoReturn

from minbert.training import cli
from minbert.training.settings import parse
from tasks.contrastive.settings import PRESETS, ContrastiveSettings, slug

if TYPE_CHECKING:
    from minbert.training.start import Start


def main() -> None:
    """Read the settings, open the run, then train."""
    about, script = __doc__.splitlines()[0], "pretrain_cbcl.py"
    parsed = parse(ContrastiveSettings, PRESETS, sys.argv[1:], program=script, about=about, default="cbcl")
    from minbert.training import start  # it imports torch, which --help does not need

    with start.begin(parsed) as started:
        train(started)


def train(started: "Start[ContrastiveSettings]") -> None:
    """Read the triplets, score, sort and pace them, fit, evaluate, save, write the page."""
    from minbert import weights
    from minbert.encode import Encoder
    from minbert.optimizer import AdamW, decay_groups
    from minbert.training import loop, plan, ranks
    from tasks import record
    from tasks.contrastive import curriculum, data, evaluation, objectives, scoring

    settings, training, run = started.settings, started.settings.training, started.run

    # read the triplets (or labelled pairs or texts, depending on --objective)
    data.check(settings)
    resources = data.resources(settings)
    initial = started.encoder()
    read = data.read(settings, initial.tokenizer, initial.max_length)
    identity = started.identify(initial, {**read.inputs, **resources})

    # score them with the initial encoder, sort them into easy, semi-hard and hard, pace them over the epochs
    pooler = settings.encoder.trained_pooler
    encoder = Encoder(initial.model, initial.tokenizer, pooler, precision=started.precision)
    scored = scoring.score(settings, encoder, read.train, initial.sha256)
    order, groups = curriculum.sort(settings, scored)
    paced = curriculum.pace(settings, order, groups)

    # fit
    model = objectives.ContrastiveModel.of(settings, initial.model).to(started.device)
    optimizer = AdamW(decay_groups(model.parameters(), training.weight_decay), lr=training.lr)
    objective, synonyms = objectives.objective(settings, read.train, initial.tokenizer, run.path)
    started.write_manifest(
        identity,
        initial,
        data=read.account,
        plan=plan.describe(paced.plan),
        training_rows={"nli": paced.rows},
        curriculum=paced.manifest_entry(),
        synonyms=synonyms,
    )
    evaluation.introduce(settings, read, paced, initial.model, started.describe(initial.model))
    dev = evaluation.Evaluation(settings, encoder, read)
    before = dev.evaluate()
    ranks.say(f"before training: {evaluation.as_text(before.numbers)}")
    state = loop.fit(
        model,
        optimizer,
        objective,
        paced.plan,
        run,
        training,
        settings.run,
        dev.score,
        device=started.device,
        precision=started.precision,
        baseline=before.score,
        floors=objectives.FLOORS,
    )

    # evaluate, save, write the page
    after = dev.evaluate()
    if ranks.rank():
        return
    state_dict = initial.model.state_dict()
    weights.save(run.path / "encoder", state_dict, initial.config, initial.tokenizer, encoder.pooler)
    evaluation.write(run, settings, read, scored, [before, after], state)
    name = evaluation.graded(read.dev.pairs)
    record.write_rows(run.path, slug(name), evaluation.dev_rows(read.dev.pairs[name], after.dev_cosines[name]))
    run.reached(state.step, ended=True)
    cli.run_module("tasks.report", str(run.path), "--card")
    cli.say(f"encoder in {run.path / 'encoder'}; next: {evaluation.next_command(settings, run.path / 'encoder')}")


def command() -> NoReturn:
    """The console command `minbert-pretrain`: run `main`, and exit with its code."""
    cli.run(main)


if __name__ == "__main__":
    command()
