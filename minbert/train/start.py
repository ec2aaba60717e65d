"""What both scripts do before the first training step: device, encoder, the run's identity and its manifest."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from minbert import attention, weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.errors import UserError
from minbert.fast import accelerate, keep_freed_memory
from minbert.files import expand_user
from minbert.precision import DTYPES, amx_crashes, choose, default_device
from minbert.tokenizer import Tokenizer
from minbert.train import distributed
from minbert.train.plan import Plan, first_steps
from minbert.train.run import InputFiles, RunFolder, environment
from minbert.train.settings import Parsed, TrainingSettings

S = TypeVar("S", bound=Any)  # the settings of a script
Identity = Mapping[str, Any]
"""All that determines a run's results: its settings, the hashes of what it reads, the encoder's config, precision,
device and number of processes."""


@dataclass(frozen=True)
class InitialEncoder:
    """The encoder that training starts from."""

    model: BertModel
    tokenizer: Tokenizer
    max_length: int  # longest input in tokens
    folder: Path
    config: BertConfig  # as it is in that folder

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the initial weights."""
        return weights.sha256(self.folder)


@dataclass(frozen=True)
class Start(Generic[S]):
    """A run that has been opened: nothing but the lock of its folder is written before `write_manifest`."""

    parsed: Parsed[S]
    run: RunFolder
    device: torch.device
    precision: str

    @property
    def settings(self) -> S:
        """The settings of the command line."""
        return self.parsed.settings

    def with_encoder(self) -> tuple["Start[S]", InitialEncoder]:
        """The initial encoder, and this run with its pooler: `--pooler`, else that of the folder, else `pooler`.

        Raises `UserError`.
        """
        options = self.settings.encoder
        model, tokenizer, folder = load_encoder(options.source, options.source_flag, options.encoder_dropout)
        length = resolve_max_length(options.max_length, model.config)
        settings = self.settings if options.pooler else self.settings.changed(pooler=pooler_of(folder))
        initial = InitialEncoder(model.to(self.device), tokenizer, length, folder, BertConfig.read(folder))
        return replace(self, parsed=replace(self.parsed, settings=settings)), initial

    def identify(self, encoder: InitialEncoder, inputs: InputFiles) -> Identity:
        """The run's identity; `inputs` are all files that were read besides the encoder.

        Raises `UserError` if the run's folder was started with a different identity.
        """
        inputs = {f"data {name}": source for name, source in inputs.items()}
        inputs["weights sha256"] = encoder.folder, encoder.sha256
        inputs["vocabulary sha256"] = encoder.folder, encoder.tokenizer.fingerprint
        identity = {
            **{f"config {name}": value for name, value in asdict(encoder.config).items()},
            **self.settings.identity(),
            "chosen precision": self.precision,
            "device type": self.device.type,
            "number of processes": distributed.world(),
        }
        self.run.check(identity, inputs)
        distributed.barrier()  # no rank may write before all have checked the folder
        return identity | {name: sha256 for name, (_, sha256) in inputs.items()}

    def write_manifest(self, identity: Identity, encoder: InitialEncoder, **sections: Any) -> None:
        """Write everything needed to repeat the run, and warn if a resumed run's environment has changed.

        `sections` are further parts of the manifest; those that are None are left out. `variables` holds `$DATA_DIR`
        if the command has no `--data`, because the command then depends on it.
        """
        data_dir = os.environ.get("DATA_DIR")
        manifest = {
            "command": self.parsed.command,
            "preset": self.parsed.preset,
            "overrides": self.parsed.overrides,
            "settings": dict(identity),
            "all_settings": self.settings.flat(),
            "weights": {"folder": str(encoder.folder), "sha256": encoder.sha256},
            "precision": self.precision,
            "environment": environment(self.device),
            "variables": {"DATA_DIR": data_dir} if data_dir and not self.settings.files.data else {},
            "selection": self.settings.training.selection,
            **{name: section for name, section in sections.items() if section is not None},
        }
        changed = self.run.start_session(manifest)
        if changed:
            differences = ", ".join(changed)
            distributed.note(
                f"--resume: the run goes on with {differences}, so its bits may differ from an unbroken run's"
            )

    def describe(self, model: BertModel) -> str:
        """Precision, device and attention path of a training step of this model, for display."""
        config = model.config
        width = config.hidden_size // config.num_attention_heads
        rate = config.attention_probs_dropout_prob
        kernel = attention.kernel_name(self.device, DTYPES[self.precision], width, rate)
        return f"{self.precision} on {self.device}, {kernel} attention with dropout {rate:g}"


@contextmanager
def open_run(parsed: Parsed[S]) -> Iterator[Start[S]]:
    """Open a run: choose device and precision, join torchrun's process group, lock the run's folder.

    At the end every rank waits for the others, because torchrun may end those that are still saving once one has
    exited. After an error no rank waits. Raises `UserError`.
    """
    chosen = set_up_device(demanded=parsed.settings.run.use_gpu)
    with distributed.group(chosen), ExitStack() as stack:
        settings = parsed.settings
        _ = settings.encoder.source  # a mistake in it is found before any data are read
        identity = {name: value for name, value in settings.identity().items() if name != "pooler" or value}
        precision = number_format(settings.training.precision, chosen)
        folder, options = expand_user(settings.run.run_dir), settings.run
        opened = RunFolder.open(folder, resume=options.resume, identity=identity, tracked=options.track)
        try:
            run = stack.enter_context(opened)
        except (UserError, OSError):
            distributed.max_over_ranks(1, chosen)  # so that no other rank waits for this one
            raise
        if distributed.max_over_ranks(0, chosen):
            raise SystemExit(2)
        yield Start(parsed, run, chosen, precision)
        distributed.barrier()


def set_up_device(*, demanded: bool) -> torch.device:
    """CUDA if available, else the CPU. Also turns on deterministic algorithms, and keeps freed memory.

    Raises `UserError` if CUDA is `demanded` and not available, or if this process of several has no GPU of its own.
    """
    if demanded and not torch.cuda.is_available():
        raise UserError("--use-gpu: torch sees no CUDA device here")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # torch.use_deterministic_algorithms would import torch's compiler, which takes 2 s
    torch.set_deterministic_debug_mode("error")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    keep_freed_memory()

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


def number_format(requested: str, device: torch.device) -> str:
    """Resolve `--precision` on a device; warns if `auto` falls back to fp32 because bf16 products crash."""
    chosen = choose(requested, device)
    if (requested, chosen) == ("auto", "fp32") and amx_crashes():
        cause = "a virtual machine that hides the shape of AMX's tiles"
        distributed.note(
            f"--precision auto: bf16 products by AMX crash on this machine ({cause}), so the run is in fp32"
        )
    return chosen


def load_encoder(source: str, flag: str, dropout: float | None) -> tuple[BertModel, Tokenizer, Path]:
    """An accelerated encoder, its tokenizer and its folder; `dropout` overrides the dropout rates of its config.

    Raises `UserError` if weights or tokenizer are missing or do not fit; messages begin with `flag`.
    """
    folder = weights.resolve(source, flag)
    if (folder / "manifest.json").is_file() and not (folder / "config.json").is_file():
        raise UserError(f"{folder}: this run has no encoder/ yet; finish it first with --resume")
    config = BertConfig.read(folder)
    tokenizer = Tokenizer.load(folder)
    tokenizer.check_fits(config.vocab_size, str(folder))
    if tokenizer.size < config.vocab_size:
        distributed.note(
            f"{folder}: the vocabulary has {tokenizer.size:,} pieces, the weights embed {config.vocab_size:,}"
        )
    if dropout is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return accelerate(BertModel.with_weights(folder, config)), tokenizer, folder


def pooler_of(folder: Path) -> str:
    """The pooler that a folder of weights names, else BERT's own as in the papers; prints which one."""
    named = weights.saved_pooler(folder)
    origin = f"as {folder} says" if named else f"BERT's pooling layer as in the papers: {folder} names none"
    distributed.say(f"pooling: {named or 'pooler'}, {origin} (--pooler)")
    return named or "pooler"


def resolve_max_length(requested: int, config: BertConfig) -> int:
    """The longest input in tokens; 0 stands for the encoder's number of positions.

    Raises `UserError` above that number, and for 1 to 7.
    """
    if requested > config.max_position_embeddings:
        raise UserError(f"--max-length {requested}: the encoder has only {config.max_position_embeddings} positions")
    if 0 < requested < 8:
        raise UserError(f"--max-length {requested}: less than 8 leaves no room for a pair")
    return requested or config.max_position_embeddings


def shortened(full: Plan, settings: TrainingSettings) -> Plan:
    """The plan, cut to its first `--max-steps` steps; warns if it has fewer."""
    if settings.max_steps > full.total:
        distributed.note(f"--max-steps {settings.max_steps:,}: the run has only {full.total:,} steps")
    return first_steps(full, settings.max_steps)


def note_rows(name: str, count: int, settings: TrainingSettings) -> None:
    """Warn if a training set of `count` rows is smaller than one batch."""
    if count < settings.batch_size:
        rows = f"{count:,} row{'s' * (count != 1)}"
        distributed.note(f"{name}: {rows} to train on, less than one batch of {settings.batch_size:,} (--batch-size)")
