"""Guards: damaged or hostile files of an encoder's folder end in one sentence, and nothing in them runs.

python -m pytest --import-mode=importlib tests/minbert/test_hostile.py
python -m pytest --import-mode=importlib tests/minbert/test_hostile.py -m slow      2,000 mutations instead of 100
"""

import json
import os
import pickle
import random
import resource
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from minbert import BertConfig, BertModel, Encoder, UserError, convert, weights
from minbert.convert import convert_checkpoint
from minbert.files import demand_text
from minbert.tokenizer import Tokenizer

Copy = Callable[..., Path]
FILES = ["config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json", "tokenizer.json", "minbert.json"]
FILES += ["1_Pooling/config.json"]
DEEP = "[" * 100_000


def deep(levels: int) -> dict[str, Any]:
    normalizer: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(levels):
        normalizer = {"type": "Sequence", "normalizers": [normalizer]}
    return normalizer


REGEX = {"type": "Split", "pattern": {"Regex": "(((("}, "behavior": "Isolated", "invert": False}
ODD: list[Any] = [None, True, -1, 0, 32.7, 10**9, 10**40, 1e308, "", "false", "x" * 10_000, [], [1], {}, {"a": 1}]
ODD += [float("inf"), float("nan"), "\ud800", [[[]]], deep(90)]
SPOILT = [
    ("tokenizer.json", {"normalizer": [1]}),
    ("tokenizer.json", {"normalizer": "lower"}),
    ("tokenizer.json", {"normalizer": deep(200)}),
    ("tokenizer.json", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}),
    ("tokenizer.json", {"model": {}}),
    ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": ["a"]}}),
    ("tokenizer.json", {"pre_tokenizer": REGEX}),
    ("tokenizer.json", DEEP),
    ("tokenizer_config.json", {"strip_accents": "no"}),
    ("tokenizer_config.json", {"do_lower_case": 3}),
    ("tokenizer_config.json", []),
    ("minbert.json", {"pooler": None}),
    ("minbert.json", {"pooler": ["mean"]}),
    ("minbert.json", []),
    ("1_Pooling/config.json", [1]),
    ("1_Pooling/config.json", "mean"),
    ("config.json", {"num_hidden_layers": 10_000_000}),
    ("config.json", {"num_hidden_layers": 60}),
    ("config.json", {"hidden_size": 10**9}),
    ("config.json", {"hidden_size": 9_999_996}),
    ("config.json", {"hidden_size": 32.7}),
    ("config.json", {"hidden_size": float("inf")}),
    ("config.json", {"intermediate_size": "false"}),
    ("config.json", {"layer_norm_eps": float("nan")}),
    ("config.json", {"vocab_size": False}),
    ("config.json", {"model_type": "x" * 10_000}),
    ("config.json", "[" + "9" * 5_000 + "]"),
]


@pytest.fixture(scope="module")
def saved(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder as we save it, with every file that is read."""
    path = tmp_path_factory.mktemp("saved") / "encoder"
    state, config = BertModel.from_pretrained(tiny).state_dict(), BertConfig.read(tiny)
    weights.save(path, state, config, Tokenizer.load(tiny), "max")
    return path


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "encoder"))


def spoil(folder: Path, name: str, change: Any) -> None:
    """Change some values of a JSON file, or replace the file. `vocab.txt` and `minbert.json` hide the files after."""
    hiding = {"tokenizer.json": "vocab.txt", "1_Pooling/config.json": "minbert.json"}
    if name in hiding:
        (folder / hiding[name]).unlink(missing_ok=True)
    if isinstance(change, dict):
        change = json.loads((folder / name).read_text()) | change
    (folder / name).write_text(change if isinstance(change, str) else json.dumps(change))


@contextmanager
def bounded(seconds: float = 20, memory: int = 2 << 30) -> Iterator[None]:
    """Neither hangs nor takes much memory."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    yield
    assert time.process_time() - start < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < memory >> 10


def refused(folder: Path) -> str:
    with bounded(), pytest.raises(UserError) as caught:
        Encoder.load(folder)
    said = str(caught.value)
    assert said.startswith(str(folder)) and "\n" not in said and len(said) < len(str(folder)) + 1_500
    return said


@pytest.mark.parametrize(("name", "change"), SPOILT, ids=[f"{name}-{str(what)[:40]}" for name, what in SPOILT])
def test_a_spoilt_file_is_refused_by_name(folder: Path, name: str, change: Any) -> None:
    spoil(folder, name, change)
    said = refused(folder)
    assert name in said or "the weights do not fit the encoder" in said


@pytest.mark.parametrize(("piece", "number"), [("tree", 10**9), ("tree", 0), ("tree", 5_000), ("[UNK]", None)])
def test_ids_that_the_embedding_does_not_have_are_refused(folder: Path, piece: str, number: int | None) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    if number is None:
        del content["model"]["vocab"][piece]
    else:
        content["model"]["vocab"][piece] = number
    spoil(folder, "tokenizer.json", content)
    assert "tokenizer.json" in refused(folder)


def test_a_message_lists_ten_keys_at_most_and_cuts_long_ones(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), **{f"{n}" + "x" * 10_000: torch.zeros(1) for n in range(50)}}, path)
    said = refused(folder)
    assert said.count("unknown") == 10 and "and 40 more" in said


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Bytes changed, cut out, doubled or put in; or, in JSON, a value anywhere replaced."""
    try:
        tree = json.loads(content)
    except ValueError:
        tree = None
    if isinstance(tree, dict) and draw.random() < 0.7:
        node: Any = tree
        while True:
            places = list(node) if isinstance(node, dict) else list(range(len(node)))
            place = draw.choice(places)
            if not isinstance(node[place], dict | list) or not node[place] or draw.random() < 0.3:
                break
            node = node[place]
        if draw.random() < 0.2:
            del node[place]
        else:
            node[place] = draw.choice(ODD)
        return json.dumps(tree).encode()
    place = draw.randrange(min(len(content), draw.choice([64, 2_000, len(content)])))
    size = draw.choice([1, 2, 8, 300])
    put = draw.choice([b"", draw.randbytes(size), content[place : place + size] * 2, b"\0" * size, b"9" * size])
    return content[:place] if draw.random() < 0.1 else content[:place] + put + content[place + size :]


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_mutated_files_load_or_end_in_one_sentence(folder: Path, count: int) -> None:
    """Nothing else is raised, nothing is written, and what loads gives vectors."""
    draw, whole = random.Random(15), {name: (folder / name).read_bytes() for name in FILES}
    outcomes = {"loaded": 0, "refused": 0}
    for number in range(count):
        name = FILES[number % len(FILES)]
        changed = {name: mutated(whole[name], draw)}
        hidden = {"tokenizer.json": "vocab.txt", "1_Pooling/config.json": "minbert.json"}.get(name, "")
        for one, content in {**whole, **changed}.items():
            (folder / one).write_bytes(content)
        (folder / hidden).unlink() if hidden else None
        before = sorted(folder.parent.rglob("*"))
        try:
            with bounded():
                encoder = Encoder.load(folder)
            assert encoder.encode(["the cat sat", "a b c!"]).shape[0] == 2
            outcomes["loaded"] += 1
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < len(str(folder)) + 1_500, name
            outcomes["refused"] += 1
        assert sorted(folder.parent.rglob("*")) == before
    assert min(outcomes.values()) > count // 8, outcomes


def test_saved_weights_have_the_mode_of_the_umask(folder: Path, tiny: Path, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        weights.write(tmp_path / "model.safetensors", load_file(tiny / "model.safetensors"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model.safetensors").stat().st_mode) == 0o640
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o666 & ~before}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_denied_permission_is_reported_as_one(tiny_copy: Copy) -> None:
    folder = tiny_copy()
    (folder / "model.safetensors").chmod(0o600)
    for path in (folder, *folder.parents):
        path.chmod(path.stat().st_mode | 0o755)
    code = (
        f"import os; from pathlib import Path; from minbert import UserError, weights\n"
        f"os.setuid(65534)\ntry: weights.load_safetensors(Path({str(folder / 'model.safetensors')!r}))\n"
        f"except UserError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{folder / 'model.safetensors'}: cannot be read: Permission denied\n"


def test_a_full_disk_leaves_the_old_vocabulary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    tokenizer = Tokenizer.load(folder)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        tokenizer.save(folder, 512)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("form", ["zip", "older form"])
def test_a_pickle_of_endless_items_ends(tiny: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_MOST_OPERATIONS", 100_000)
    bomb, path = b"\x80\x02](" + b"N" * 5_000_000 + b"e.", tmp_path / "bomb.pt"
    if form == "zip":
        torch.save({"a": torch.zeros(1)}, path)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, bomb if name.endswith("data.pkl") else content)
    else:
        magic = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
        path.write_bytes(b"".join(pickle.dumps(one, 2) for one in magic) + bomb)
    with bounded(), pytest.raises(UserError, match="it has more than 100000 operations"):
        convert_checkpoint(path, str(tiny), tmp_path / "new")


TEXT = "Ein Satz.\nNoch einer, größer.\n"
BINARY = {
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-32": TEXT.encode("utf-32"),
    "compressed by gzip": b"\x1f\x8b\x08\x00rest",
    "a zip archive": b"PK\x03\x04rest",
    "binary, or UTF-16 without a byte-order mark": TEXT.encode("utf-16-le"),
}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
@pytest.mark.parametrize("name", BINARY)
def test_what_is_no_text_is_refused_by_its_name(tmp_path: Path, name: str, encoding: str) -> None:
    (tmp_path / "file").write_bytes(BINARY[name])
    wanted = {"utf-8-sig": "UTF-8", "latin-1": "Latin-1"}[encoding]
    with pytest.raises(UserError, match=rf"file: {name}.*, not {wanted} text$"):
        demand_text(tmp_path / "file", encoding)


def test_text_passes_and_a_mark_of_utf_8_is_not_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content, encoding in ((TEXT.encode("utf-8-sig"), "utf-8-sig"), (TEXT.encode("latin-1"), "latin-1"), (b"", "")):
        path.write_bytes(content)
        demand_text(path, encoding)
    path.write_bytes(TEXT.encode("utf-8-sig"))
    with pytest.raises(UserError, match="UTF-8 with a byte-order mark, not Latin-1 text"):
        demand_text(path, "latin-1")
    path.write_bytes(b"x" * 3_000_000 + b"\0")
    with pytest.raises(UserError, match="NUL"):
        demand_text(path)
