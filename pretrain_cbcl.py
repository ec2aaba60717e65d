"""Curriculum-based contrastive pre-training of an encoder on NLI triplets.

python pretrain_cbcl.py --data data/sample --weights minilm
python pretrain_cbcl.py --preset cbcl --run-dir runs/cbcl
"""

import sys
from typing import NoReturn

from minbert.training import cli
from minbert.training.settings import Parsed, parse
from tasks.contrastive.settings import PRESETS, ContrastiveSettings, slug


def main() -> None:
    """Read the settings, then train."""
    about = __doc__.splitlines()[0]
    train(parse(ContrastiveSettings, PRESETS, sys.argv[1:], program="pretrain_cbcl.py", about=about, default="cbcl"))


def train(parsed: Parsed[ContrastiveSettings]) -> None:
    """Read the triplets, score, sort and pace them, train, evaluate, save, and write the report."""
    from minbert import weights
    from minbert.encode import Encoder
    from minbert.optimizer import AdamW, decay_groups
    from minbert.training import loop, ranks
    from minbert.training.start import Start
    from tasks import record
    from tasks.contrastive import curriculum, data, evaluation, objectives, scoring

    settings, training = parsed.settings, parsed.settings.training
    started = Start.of(parsed)
    run = started.run
    resources = data.check(settings)
    bert, tokenizer, length = started.encoder()

    # read the triplets (or labelled pairs or texts, depending on --objective)
    read = data.read(settings, tokenizer, length)
    started.check(read.hashes | resources)

    # score them with the initial encoder, sort them into easy, semi-hard and hard, pace them over the epochs
    encoder = Encoder(bert, tokenizer, settings.encoder.trained_pooler, precision=started.precision)
    scored = scoring.score(settings, encoder, read.train, started.weights_sha256)
    order, groups = curriculum.sort(settings, scored)
    paced = curriculum.pace(settings, order, groups)

    # train
    model = objectives.ContrastiveModel.of(settings, bert).to(started.device)
    optimizer = AdamW(decay_groups(model.parameters(), training.weight_decay), lr=training.lr)
    objective, account = objectives.objective(settings, read.train, tokenizer, run.path)
    started.begin(data=read.account, **account, **paced.account())
    evaluation.introduce(settings, read, paced, bert, started.where(bert))
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

    # evaluate, save, write the report
    after = dev.evaluate()
    if ranks.rank():
        return
    weights.save(run.path / "encoder", bert.state_dict(), started.config, tokenizer, encoder.pooler)
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
