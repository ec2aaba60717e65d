"""What a training command does before its first step: run folder, device, encoder and manifest."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic

import torch

from minbert import modules, weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError, format_count
from minbert.fast import accelerate, tune_allocator
from minbert.fast.gpu_attention import kernel_name
from minbert.files import expand_user
from minbert.precision import DTYPES, amx_crashes, choose, default_device
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.run import InputFiles, RunFolder, environment
from minbert.train.settings import EncoderSettings, Parsed, S, TrainingSettings


@dataclass(frozen=True)
class InitialEncoder:
    """The encoder that training starts from."""

    model: BertModel
    tokenizer: Tokenizer
    pooler: str  # how its hidden states become one vector
    max_length: int  # longest input in tokens
    folder: Path
    config: BertConfig  # as it is in that folder

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the initial weights."""
        return weights.sha256(self.folder)

    def save(self, folder: Path, pooler: str) -> None:
        """Write the encoder as it is now, with what it keeps of the settings in its own folder."""
        kept = modules.settings_kept_by_training(self.folder)
        weights.save(folder, self.model.state_dict(), self.config, self.tokenizer, pooler, kept)


@dataclass(frozen=True)
class OpenRun(Generic[S]):
    """A run whose folder is locked: nothing else is written to it before `begin_run`."""

    parsed: Parsed[S]
    folder: RunFolder
    device: torch.device
    precision: str

    @property
    def settings(self) -> S:
        """The settings of the command line."""
        return self.parsed.settings

    def describe(self, model: BertModel) -> str:
        """Precision, device and attention path of a training step of this model, for display."""
        config = model.config
        width = config.hidden_size // config.num_attention_heads
        rate = config.attention_probs_dropout_prob
        kernel = kernel_name(self.device, DTYPES[self.precision], width)
        return f"{self.precision} on {self.device}, {kernel} attention with dropout {rate:g}"


@contextmanager
def open_run(parsed: Parsed[S]) -> Iterator[OpenRun[S]]:
    """Open a run: choose device and precision, join torchrun's process group, lock the run's folder.

    At the end every rank waits for the others, because torchrun may end those that are still saving once one has
    exited. After an error no rank waits. Raises `UserError`.
    """
    settings: Any = parsed.settings
    device = set_up_device(required=settings.run.use_gpu)
    with distributed.group(device), ExitStack() as stack:
        precision = choose_precision(settings.training.precision, device)
        identity = {**settings.identity(), "program": parsed.program}
        if not settings.encoder.pooler:
            del identity["pooler"]  # it is that of the encoder, which is not loaded yet
        folder = expand_user(settings.run.run_dir)
        opened = RunFolder.open(folder, resume=settings.run.resume, identity=identity, tracked=settings.run.track)
        try:
            run = stack.enter_context(opened)
        except (UserError, OSError):
            distributed.max_over_ranks(1, device)  # so that no other rank waits for this one
            raise
        if distributed.max_over_ranks(0, device):
            raise SystemExit(2)
        yield OpenRun(parsed, run, device, precision)
        distributed.barrier()


def load_initial_encoder(
    settings: EncoderSettings, device: torch.device, *, source: str = "", flag: str = "--weights", origin: str = ""
) -> InitialEncoder:
    """The encoder of `--weights`, or of another `source` that `flag` names, on a device; prints what is read and why.

    `origin` says where the encoder comes from, if that is known.
    The pooler is `--pooler`, else the one that the folder names, else BERT's pooling layer; `Encoder.load` has the mean
    in the last case. Raises `UserError`, also if the pooler is BERT's pooling layer and the weights have none.
    """
    source = source or settings.weights
    if not source:
        raise UserError("--weights: name the encoder to start from, such as minilm or runs/consert-sup/encoder")
    model, tokenizer, folder = load_encoder(source, flag, settings.encoder_dropout)
    saved = saved_pooler(folder, source)
    pooler = settings.pooler or saved or "pooler"
    if pooler == "pooler":
        model.pooling_layer(f"{flag} {source}: ")  # before the run begins, and not at its first step
    if not settings.pooler:
        reason = f"as saved with {source}" if saved else f"BERT's pooling layer, as {source} names none"
    elif saved in (None, pooler):
        reason = "as set"
    else:
        reason = f"as set; {source} names {saved}"
    named = f"{flag}, {origin}" if origin else flag
    distributed.say(f"starting from {source} ({named}); pooler {pooler} ({reason}; --pooler)")
    length = resolve_max_length(settings.max_length, model.config)
    return InitialEncoder(model.to(device), tokenizer, pooler, length, folder, BertConfig.read(folder))


def begin_run(run: OpenRun[Any], encoder: InitialEncoder, inputs: InputFiles, **sections: Any) -> None:
    """Begin or resume the run: check its identity, find the newest whole checkpoint, write what is needed to repeat it.

    `inputs` are all files that were read besides the encoder; `sections` are further parts of the manifest, and those
    that are None are left out. `variables` holds `$NLTK_DATA`, and `$DATA_DIR` if the command has no `--data`, because
    the command depends on them. Raises `UserError` if the run's folder was started with other settings or data.
    """
    settings = run.settings
    training = settings.training
    files = {f"data {name}": source for name, source in inputs.items()}
    files["weights sha256"] = encoder.folder, encoder.sha256
    files["vocabulary sha256"] = encoder.folder, encoder.tokenizer.fingerprint
    identity = {
        **{f"config {name}": value for name, value in asdict(encoder.config).items()},
        **settings.identity(),
        "program": run.parsed.program,
        "pooler": encoder.pooler,
        "chosen precision": run.precision,
        "device type": run.device.type,
        "number of processes": distributed.world(),
    }
    run.folder.check(identity, files)
    distributed.barrier()  # no rank may write before all have checked the folder

    data_dir = os.environ.get("DATA_DIR")
    variables = {}
    if data_dir and not settings.files.data:
        variables["DATA_DIR"] = data_dir
    if os.environ.get("NLTK_DATA"):
        variables["NLTK_DATA"] = os.environ["NLTK_DATA"]
    manifest = {
        "command": run.parsed.command,
        "preset": run.parsed.preset,
        "overrides": run.parsed.overrides,
        "settings": {**identity, **{name: sha256 for name, (_, sha256) in files.items()}},
        "all_settings": settings.flat() | {"pooler": encoder.pooler},
        "weights": {"folder": str(encoder.folder.absolute()), "sha256": encoder.sha256},
        "precision": run.precision,
        "environment": environment(run.device),
        "variables": variables,
        "selection": {
            "keep": training.keep,
            "metric": training.metric,
            "patience": training.patience,
            "by_dev_pairs": training.selects_by_dev,
        },
        **{name: section for name, section in sections.items() if section is not None},
    }
    changed = run.folder.start_session(manifest)
    if changed:
        differences = ", ".join(changed)
        distributed.note(
            f"--resume: the run continues with {differences}, so its bits may differ from an unbroken run's"
        )


def set_up_device(*, required: bool) -> torch.device:
    """CUDA if available, else the CPU. Also turns on deterministic algorithms, and tunes the allocator.

    Raises `UserError` if CUDA is `required` and not available, or if this process of several has no GPU of its own.
    """
    if required and not torch.cuda.is_available():
        raise UserError("--use-gpu: torch sees no CUDA device here")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # torch.use_deterministic_algorithms would import torch's compiler, which takes 2 s
    torch.set_deterministic_debug_mode("error")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    tune_allocator()

    chosen = default_device()
    if chosen.type == "cpu":
        # Until this call MKL takes fewer threads for some products than torch for the rest (mkl_set_dynamic), and the
        # bits depend on the number.
        torch.set_num_threads(torch.get_num_threads())
        return chosen
    local = int(os.environ.get("LOCAL_RANK", "0"))
    count = torch.cuda.device_count()
    if local >= count:
        raise UserError(f"--nproc-per-node: process {local + 1} has no GPU of its own, torch sees {count}")
    chosen = torch.device("cuda", local)
    torch.cuda.set_device(chosen)
    return chosen


def choose_precision(requested: str, device: torch.device) -> str:
    """Resolve `--precision` on a device; warns if `auto` falls back to fp32 because bf16 products crash."""
    chosen = choose(requested, device)
    if requested == "auto" and chosen == "fp32" and amx_crashes():
        cause = "a virtual machine that hides the shape of AMX's tiles"
        distributed.note(
            f"--precision auto: bf16 products by AMX crash on this machine ({cause}), so the run is in fp32"
        )
    return chosen


def load_encoder(source: str, flag: str, dropout: float | None) -> tuple[BertModel, Tokenizer, Path]:
    """An accelerated encoder, its tokenizer and its folder; `dropout` overrides the dropout rates of its config.

    Raises `UserError` if weights or tokenizer are missing or do not fit; the message begins with `flag` or the folder.
    """
    folder = weights.resolve(source, flag)
    if (folder / "manifest.json").is_file() and not (folder / "config.json").is_file():
        raise UserError(f"{folder}: this run has no encoder/ yet; finish it first with --resume")
    config = BertConfig.read(folder)
    tokenizer = Tokenizer.load(folder)
    if tokenizer.size < config.vocab_size:
        distributed.note(
            f"{flag} {source}: the vocabulary has {tokenizer.size:,} pieces, the weights embed {config.vocab_size:,}"
        )
    if dropout is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return accelerate(BertModel.with_weights(folder, config)), tokenizer, folder


def saved_pooler(folder: Path, source: str) -> str | None:
    """The pooler that a folder of weights names; None if it names none.

    Prints a note, which calls the folder `source`, of what sentence-transformers and `Encoder` do with it but training
    leaves out: layers over the pooled vector, except its scaling to length 1, a truncation of it, and a prompt before
    every text.
    """
    pipeline = modules.read_pipeline(folder)
    left_out = [type(layer).__name__ for layer in pipeline.layers if not isinstance(layer, modules.Normalize)]
    if pipeline.default_prompt_name is not None:
        left_out.append(f"the prompt {pipeline.default_prompt_name}")
    if pipeline.truncate_dim is not None:
        left_out.append(f"the truncation to {pipeline.truncate_dim} dimensions")
    if left_out:
        distributed.note(f"{source}: training leaves out {', '.join(left_out)}, so its vectors are not {source}'s own")
    return pipeline.pooler


def resolve_max_length(requested: int, config: BertConfig) -> int:
    """The longest input in tokens; 0 stands for the encoder's number of positions. Raises `UserError`."""
    positions = config.max_position_embeddings
    # less than 8 tokens leave no room for a pair
    if requested and not 8 <= requested <= positions:
        raise UserError(f"--max-length {requested}: must be from 8 to the encoder's {positions} positions")
    return requested or positions


def note_rows(name: str, count: int, settings: TrainingSettings) -> None:
    """Warn if a training set of `count` rows is smaller than one batch."""
    if count < settings.batch_size:
        rows = format_count(count, "rows")
        distributed.note(f"{name}: {rows} to train on, less than one batch of {settings.batch_size:,} (--batch-size)")
