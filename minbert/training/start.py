"""What both scripts do before the first training step: device, data folder, encoder, and the run's manifest."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from minbert import attention, weights
from minbert.bert import BertModel
from minbert.config import BertConfig
from minbert.cpu import accelerate, keep_freed_memory
from minbert.errors import UserError
from minbert.files import data_path, expanded
from minbert.precision import AMX_CRASHES, choose, default_device
from minbert.tokenizer import Tokenizer
from minbert.training import ranks
from minbert.training.plan import Plan, first
from minbert.training.run import RunDir, environment
from minbert.training.settings import Parsed, TrainingSettings


@dataclass
class Start:
    """The start of a run: call `of`, then `encoder`, `check` and `begin`, in this order.

    Nothing but the lock of the run's folder is written before `begin`. `identity` holds all that determines the run's
    results: settings, the hashes of data, weights and vocabulary, the config, precision, device and processes.
    """

    parsed: Parsed[Any]
    run: RunDir
    device: torch.device
    precision: str
    source: str  # of the initial weights; a mistake in it is found before any data are read
    folder: Path = field(default_factory=Path)  # of the initial encoder
    config: BertConfig = field(default_factory=BertConfig)  # as it is in that folder
    identity: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, parsed: Parsed[Any]) -> "Start":
        """Choose device, precision and run folder, and warn of flags without effect. Raises `UserError`."""
        settings = parsed.settings
        notes = settings.ignored(parsed.overrides)
        on = device(demanded=settings.run.use_gpu)
        ranks.note(*notes)  # on the first rank only, which is known from here on
        precision = number_format(settings.training.precision, on)
        how = {"resume": settings.run.resume, "identity": settings.identity(), "tracked": settings.run.track}
        try:
            run = RunDir.open(expanded(settings.run.run_dir), **how)
        except (UserError, OSError):
            ranks.highest(1, on)  # so that no other rank waits for this one
            raise
        if ranks.highest(0, on):
            raise SystemExit(2)
        return cls(parsed, run, on, precision, settings.encoder.source)

    def encoder(self) -> tuple[BertModel, Tokenizer, int]:
        """The initial encoder, its tokenizer, and the longest input in tokens. Raises `UserError`."""
        asked = self.parsed.settings.encoder
        model, tokenizer, self.folder = encoder(self.source, asked.encoder_dropout)
        self.config = BertConfig.read(self.folder)
        config = {f"config {name}": value for name, value in asdict(self.config).items()}
        self.identity = {"vocabulary sha256": tokenizer.fingerprint, **config}
        return model.to(self.device), tokenizer, max_length(asked.max_length, model.config)

    def check(self, hashes: Mapping[str, str]) -> None:
        """Raises `UserError` if the run's folder belongs to a run of another identity.

        `hashes` holds the SHA-256 of everything that was read, by a name for it.
        """
        about = {"weights sha256": self.weights_sha256, "number format": self.precision, "on": self.device.type}
        data = {f"data {name}": sha256 for name, sha256 in hashes.items()}
        self.identity |= self.parsed.settings.identity() | data | about | {"number of processes": ranks.world()}
        self.run.check(self.identity)
        ranks.wait()  # no rank may write before all have checked the folder

    @cached_property
    def weights_sha256(self) -> str:
        """Hex SHA-256 of the initial weights."""
        return weights.sha256(self.folder)

    def begin(self, **account: Any) -> None:
        """Write the manifest, with `account` added, and warn if a resumed run's environment has changed.

        The manifest is everything that is needed to repeat the run. `variables` holds `$DATA_DIR` if the command has
        no `--data`, because the command then depends on it.
        """
        settings = self.parsed.settings
        here = os.environ.get("DATA_DIR")
        manifest = {
            "command": self.parsed.command,
            "preset": self.parsed.preset,
            "overrides": self.parsed.overrides,
            "settings": self.identity,
            "all_settings": settings.flat(),
            "weights": {"folder": str(self.folder), "sha256": self.weights_sha256},
            "precision": self.precision,
            "environment": environment(self.device),
            "variables": {"DATA_DIR": here} if here and not settings.files.data else {},
            "selection": settings.selection,
        }
        changed = self.run.begin(manifest | account)
        ranks.wait()  # damaged checkpoints are set aside
        if changed:
            other = ", ".join(changed)
            ranks.note(f"--resume: the run goes on with {other}, so its bits may differ from an unbroken run's")

    def where(self, model: BertModel) -> str:
        """Precision, device and attention path of a training step of this model, for display."""
        kind = torch.bfloat16 if self.precision == "bf16" else torch.float32
        rate = model.config.attention_probs_dropout_prob
        path = attention.path(torch.empty(0, dtype=kind, device=self.device), rate)
        return f"{self.precision} on {self.device}, {path} attention with dropout {rate:g}"


def device(*, demanded: bool) -> torch.device:
    """CUDA if available, else the CPU. Also turns on deterministic algorithms, keeps freed memory, and joins torchrun's
    process group.

    Raises `UserError` if CUDA is `demanded` and not available.
    """
    if demanded and not torch.cuda.is_available():
        raise UserError("--use-gpu: torch sees no CUDA device here")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms would import torch's compiler: 2 s
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    keep_freed_memory()
    chosen = default_device()
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    ranks.start(chosen)
    return chosen


def number_format(asked: str, on: torch.device) -> str:
    """The precision that `--precision` means on a device, with a warning where `auto` is fp32 though bf16 is usual."""
    chosen = choose(asked, on)
    if (asked, chosen) == ("auto", "fp32"):
        if on.type == "cuda":
            why = "fp16 needs loss scaling, which skips steps"
            ranks.note(f"--precision auto: this GPU has no bf16, so the run is in fp32 ({why})")
        elif AMX_CRASHES:
            why = "a virtual machine that hides the shape of AMX's tiles"
            ranks.note(f"--precision auto: bf16 products by AMX crash on this machine ({why}), so the run is in fp32")
    return chosen


def data_folder(given: str) -> Path:
    """`data_path`. Raises `UserError` if it is not a folder."""
    folder = data_path(given)
    if not folder.is_dir():
        raise UserError(f"--data {folder}: no such folder")
    return folder


def encoder(source: str, dropout: float | None) -> tuple[BertModel, Tokenizer, Path]:
    """An accelerated encoder, its tokenizer and its folder; `dropout` overrides the dropout rates of its config.

    Raises `UserError` if weights or tokenizer are missing or do not fit.
    """
    folder = weights.resolve(source, "--weights")
    if (folder / "manifest.json").is_file() and not (folder / "config.json").is_file():
        raise UserError(f"{folder}: this run has no encoder/ yet; finish it first with --resume")
    config = BertConfig.read(folder)
    tokenizer = Tokenizer.load(folder)
    tokenizer.check_fits(config.vocab_size, str(folder))
    if tokenizer.size < config.vocab_size:
        ranks.note(f"{folder}: the vocabulary has {tokenizer.size:,} pieces, the weights embed {config.vocab_size:,}")
    if dropout is not None:
        config = replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return accelerate(BertModel.with_weights(folder, config)), tokenizer, folder


def max_length(asked: int, config: BertConfig) -> int:
    """The longest input in tokens: as asked, or the encoder's number of positions for 0.

    Raises `UserError` if there are fewer positions, or for 1 to 7.
    """
    if asked > config.max_position_embeddings:
        raise UserError(f"--max-length {asked}: the encoder has only {config.max_position_embeddings} positions")
    if 0 < asked < 8:
        raise UserError(f"--max-length {asked}: less than 8 leaves no room for a pair")
    return asked or config.max_position_embeddings


def shortened(whole: Plan, settings: TrainingSettings) -> Plan:
    """The plan, cut to its first `--max-steps` steps; warns if it has fewer."""
    if settings.max_steps > whole.total:
        ranks.note(f"--max-steps {settings.max_steps:,}: the run has only {whole.total:,} steps")
    return first(whole, settings.max_steps)


def note_rows(what: str, count: int, settings: TrainingSettings) -> None:
    """Warn if a training set of `count` rows is smaller than one batch."""
    if count < settings.batch_size:
        rows = f"{count:,} row{'s' * (count != 1)}"
        ranks.note(f"{what}: {rows} to train on, less than one batch of {settings.batch_size:,} (--batch-size)")
