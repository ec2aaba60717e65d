"""Curriculum-based contrastive pre-training of an encoder on NLI triplets.

python pretrain_cbcl.py --data data/sample --weights minilm
python pretrain_cbcl.py --preset cbcl --run-dir runs/cbcl
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert.training import cli
from minbert.training.settings import parse
from tasks.contrastive.presets import PRESETS
from tasks.contrastive.settings import IN_BATCH, PAIRS, TEXTS, TRIPLETS, ContrastiveSettings, slug

if TYPE_CHECKING:
    from minbert.bert import BertModel
    from minbert.tokenizer import Tokenizer
    from tasks.contrastive.data import Data
    from tasks.contrastive.model import ContrastiveModel
    from tasks.contrastive.pace import Paced
    from tasks.examples import Augmentation


def build(settings: ContrastiveSettings, encoder: "BertModel") -> "ContrastiveModel":
    """The encoder with what helps it in training."""
    import torch

    from minbert.seeds import torch_seed
    from tasks.contrastive.model import ContrastiveModel
    from tasks.readers.rows import NLI_CLASSES

    torch.manual_seed(torch_seed(settings.training.seed, "heads"))
    classes = len(NLI_CLASSES) if settings.objective.data_kind == PAIRS else 0
    return ContrastiveModel(encoder, settings.encoder.pooler, projection=settings.encoder.projection, classes=classes)


def augmentation(
    settings: ContrastiveSettings, read: "Data", tokenizer: "Tokenizer", folder: Path
) -> tuple["Augmentation[Any]", dict[str, Any]]:
    """What is done to the texts of a step, punctuation or synonyms, and the account of it for the manifest."""
    from tasks.augment import synonyms
    from tasks.augment.punctuation import Punctuation

    if settings.views.marks_most:
        source = 0 if settings.objective.data_kind == TEXTS else 1
        return Punctuation(
            tokenizer, source, seed=settings.training.seed, most=settings.views.marks_most, marks=settings.views.marks
        ), {}
    return synonyms.augmentation(
        settings.synonyms,
        settings.training,
        "pretrain",
        {"nli": read.train},
        tokenizer,
        data=settings.files.data,
        run=folder,
    )


def introduce(settings: ContrastiveSettings, read: "Data", paced: "Paced", encoder: "BertModel", where: str) -> None:
    """What is trained on what, in a few lines."""
    from minbert.training import start
    from minbert.training.cli import say
    from tasks.contrastive.objectives import chance

    mix = paced.account().get("curriculum", {})
    names = [name for name in ("easy", "semi-hard", "hard") if name in mix]
    groups = ", ".join(f"{mix[name]:,} {name}" for name in names) or "no groups"
    grouped = f" ({groups})" if settings.objective.data_kind == TRIPLETS else ""
    say(f"{_counted(paced.rows, settings.objective.data_kind)}{grouped}; {where}")
    kept = "of the last step" if settings.training.keep == "last" else f"that is best by {settings.evaluation.metric}"
    say(f"evaluated on {read.dev.shown}; the encoder {kept} is kept")
    shared = ", ".join(f"{count:,} in {name}" for name, count in read.dev.also_in.items() if count)
    if shared and settings.chooses:
        start.warn(f"of the {len(read.dev):,} pairs that choose the encoder there stand {shared}")
    if names:
        epochs = [f"{epoch}: " + "/".join(f"{share:.0%}" for share in row) for epoch, row in enumerate(paced.mix, 1)]
        shown = epochs if len(epochs) <= 10 else [*epochs[:5], "...", *epochs[-4:]]
        say(f"{'/'.join(names)} in epoch {', '.join(shown)}")
    known = chance(settings, paced.rows, read.train.cache.columns)
    guess = f"; a guess has a loss of {known:.3f}" if known else ""
    batch = _counted(min(settings.training.batch_size, paced.rows), settings.objective.data_kind)
    say(f"{_counted(paced.plan.total, 'steps')} of {batch}, {settings.objective.objective}{guess}")
    start.note_rows("the training set", paced.rows, settings.training)
    if paced.rows == 1 and settings.objective.objective in IN_BATCH:
        start.warn("a batch of one row has no in-batch negatives: nothing tells its texts from others")
    rates = encoder.config.hidden_dropout_prob, encoder.config.attention_probs_dropout_prob
    if settings.objective.objective == "simcse" and not any(rates):
        start.warn("--objective simcse: the encoder has no dropout, so both passes of a text are the same")


def next_command(settings: ContrastiveSettings, encoder: Path) -> str:
    """How stage two goes on from an encoder, on the same data."""
    data = ["--data", settings.files.data] if settings.files.data else []
    return shlex.join(["python", "multitask_train.py", "--encoder", str(encoder), *data])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what[:-1] if count == 1 else what}"


def refuse_ranks() -> None:
    """`UserError` in a group of processes: this stage runs in one."""
    from minbert.errors import UserError
    from minbert.training import ranks

    if ranks.world() > 1:
        raise UserError("contrastive pre-training runs in one process; start it without torchrun")


def main() -> None:
    """Settings, read, score, fit, write."""
    names = {"program": "pretrain_cbcl.py", "about": __doc__.splitlines()[0], "default": "cbcl"}
    parsed = parse(ContrastiveSettings, PRESETS, sys.argv[1:], **names)
    settings = parsed.settings

    from minbert import weights
    from minbert.config import BertConfig
    from minbert.encode import Encoder
    from minbert.optimizer import AdamW, decay_groups
    from minbert.training import loop, start
    from minbert.training.rundir import RunDir
    from tasks import record
    from tasks.augment import synonyms
    from tasks.contrastive import data, pace, validation
    from tasks.contrastive.outcome import Evaluation, Kept
    from tasks.contrastive.registry import OBJECTIVES
    from tasks.report import page

    start.warn(*settings.ignored(parsed.overrides))
    device = start.device(demanded=settings.run.use_gpu)
    refuse_ranks()
    precision = start.number_format(settings.training.precision, device)
    run = RunDir.open(Path(settings.run.run_dir), resume=settings.run.resume, identity=settings.identity())
    source = settings.encoder.source
    data.check(settings)
    resources = synonyms.hashes(settings.synonyms, "pretrain", settings.files.data) | pace.hashes(settings)
    bert, tokenizer, folder = start.encoder(source, settings.encoder.encoder_dropout)
    read = data.read(settings, tokenizer, start.max_length(settings.encoder.max_length, bert.config))
    identity = start.identity(settings, read.hashes | resources, folder, precision=precision, on=device)
    run.check(identity)

    encoder = Encoder(bert.to(device), tokenizer, settings.encoder.trained_pooler, precision=precision)
    model = build(settings, bert).to(device)
    augment, account = augmentation(settings, read, tokenizer, run.path)
    evaluation = Evaluation(settings, encoder, read)
    objective = OBJECTIVES[settings.objective.objective](read.train, settings, augment)
    manifest = start.manifest(parsed, identity, folder, precision=precision, on=device, data=read.account, **account)
    paced = pace.paced(settings, encoder, read.train, manifest["weights"]["sha256"])
    start.begin(run, manifest | paced.account() | {"selection": settings.selection})
    introduce(settings, read, paced, bert, f"{precision} on {device}, {start.attention_path(bert, precision, device)}")

    optimizer = AdamW(decay_groups(model.parameters(), settings.training.weight_decay), lr=settings.training.lr)
    before = evaluation.look()
    cli.say(f"before training: {validation.as_text(before.numbers)}")
    state = loop.fit(
        model,
        optimizer,
        objective,
        paced.plan,
        run,
        settings.training,
        settings.run,
        evaluation.evaluate,
        device=device,
        precision=precision,
        baseline=before.score,
        sentences=len(objective.texts),
        floors=validation.FLOORS,
    )
    kept = Kept.of(state, settings)
    weights.save(run.path / "encoder", bert.state_dict(), BertConfig.read(folder), tokenizer, encoder.pooler)
    after = evaluation.look()
    last_loss = evaluation.write(run, paced, before, after, kept)
    name = validation.graded(read.dev.pairs)
    record.write_rows(run.path, slug(name), record.cosine_rows(encoder, read.dev.pairs[name]))
    cli.say("\n".join(kept.said(before, after, last_loss)) + "\n")
    cli.say(f"report: {page.write_report([run.path])}")
    cli.say(f"encoder in {run.path / 'encoder'}; next: {next_command(settings, run.path / 'encoder')}")


if __name__ == "__main__":
    cli.run(main)
