"""Guards: a user's mistake ends in one sentence on stderr and exit code 2, with no traceback and nothing left behind.

python -m pytest --import-mode=importlib tests/e2e/test_scripts_bad_input.py
"""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minbert import Encoder
from tests.e2e.conftest import SAMPLE, Script

COURSE = SAMPLE / "course"
MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"


def refused(run: Any, *words: str, folder: bool = False) -> str:
    """The sentence of a run that must have been refused."""
    assert run.code == 2, run.err
    assert "Traceback" not in run.err
    assert len(run.errors) == 1, run.err
    assert run.errors[0].startswith("error: ")
    for word in words:
        assert word in run.errors[0], run.errors[0]
    assert run.folder.exists() == folder, "a refused run leaves no folder behind"
    return str(run.errors[0])


# A script, its flags, and what the sentence must name. The weights are not there: a mistake that is cheap to find is
# found before they are looked for. Mistakes of the parser alone are in test_settings.py.
BAD = [
    (MULTITASK, "--tasks sst,cola", "--tasks 'cola' sst quora sts"),
    (MULTITASK, "--use-gpu", "--use-gpu"),
    (MULTITASK, "--data no/such/folder", "--data no/such/folder"),
    (MULTITASK, "--sst_train no-such-file.csv", "no-such-file.csv"),
    (MULTITASK, "--sts_test_out {taken}", "--sts-test-out {taken}"),
    (MULTITASK, "--sst_dev {dev} --sst_dev_out {dev}", "{dev} --*_out"),
    (MULTITASK, "--sst_dev_out {taken}/out.csv --sts_dev_out {taken}/../taken/out.csv", "out.csv --*_out"),
    (MULTITASK, "--run-dir {taken}", "{taken} holds no run"),
    (MULTITASK, "--run-dir {dev}", "{dev}: File exists"),
    (MULTITASK, "", "--weights no-such-weights"),
    (PRETRAIN, "--triplets no-such-file.csv", "no-such-file.csv"),
    (PRETRAIN, "--data {taken}", "{taken} nli_for_simcse.csv --data"),
]
# What is found while rows are read, with the weights there.
READ = [
    (MULTITASK, "--sts_dev {headless}", "{headless}:1 cat"),
    (MULTITASK, "--sst_train {bad}", "{bad}:3: sentiment: '7'"),
    (MULTITASK, "--max-length 100", "--max-length 100 64"),
    (MULTITASK, "--sst_train {chinese}", "{chinese} --allow-unknown"),
    (MULTITASK, "--pairs joint --sentence-encoder minilm", "--sentence-encoder minilm sizes"),
    (PRETRAIN, "--triplets {chinese} --order none --synonyms none", "--allow-unknown"),
]


@pytest.mark.parametrize("name", [MULTITASK, PRETRAIN])
def test_bad_command_line_is_refused(script: Script, tmp_path: Path, name: str) -> None:
    paths = {name: tmp_path / name for name in ("taken", "headless", "dev", "bad", "chinese")}
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("precious")
    (tmp_path / "headless").write_text("cat,dog\nbird,tree\n")
    (tmp_path / "bad").write_text("\tid\tsentence\tsentiment\n0\ta1\t fine\t3\n1\ta2\t odd\t7\n")
    (tmp_path / "chinese").write_text("sentence\tlabel\tanchor\tpositive\n" + "怎么开通\t1\t怎么\t如何\n" * 9)
    shutil.copy(COURSE / "ids-sst-dev.csv", tmp_path / "dev")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    missing = ("--weights", "./no-such-weights")
    for weights, rows in ((missing, BAD), ((), READ)):
        for command, flags, words in rows:
            if command == name:
                run = script(name, *weights, *shlex.split(flags.format(**paths)), NLTK_DATA="")
                refused(run, *words.format(**paths).split())
                assert not flags or "no-such-weights" not in run.err
    assert {path: path.read_bytes() for path in before} == before
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["thesis.tex"]


def test_existing_run_folder_is_kept(script: Script, tiny_copy: Callable[..., Path]) -> None:
    """A changed setting is refused before the weights are read."""
    weights = tiny_copy()
    done = script(MULTITASK, "--weights", weights, "--max-steps", 1)
    assert done.code == 0, done.err
    (weights / "model.safetensors").unlink()
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in done.folder.rglob("*")}
    refused(script(MULTITASK, "--weights", weights, "--max-steps", 1), str(done.folder), "--resume", folder=True)
    changed = script(MULTITASK, "--weights", weights, "--max-steps", 2, "--resume")
    refused(changed, "--max-steps (was 1, now 2)", folder=True)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in done.folder.rglob("*")} == before


def test_extended_vocabulary_is_refused(script: Script, tiny: Path, tmp_path: Path) -> None:
    """Of an encoder that was saved here and changed since; `test_folders.py` has those of other programs."""
    folder = tmp_path / "encoder"
    Encoder.load(tiny).save(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["extra"] = len(tokenizer["model"]["vocab"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused(script(MULTITASK, "--weights", folder), str(folder), "vocabulary")


def test_warnings_name_truncation_and_leaks(script: Script, tmp_path: Path) -> None:
    """Truncated sentences, and a dev file that is the train file."""
    content = "\tid\tsentence\tsentiment\n0\ta\t the cat\t3\n"
    content += f"1\tb\t{' cat' * 7}\t1\n2\tc\t{' cat' * 6}\t1\n"
    (tmp_path / "sst.csv").write_text(content)
    flags = ("--tasks", "sst", "--sst-train", tmp_path / "sst.csv", "--max-length", 8, "--epochs", 1)
    run = script(MULTITASK, *flags, "--sst-dev", tmp_path / "sst.csv", "--para-train", "nowhere.csv")
    assert run.code == 0, run.err
    assert "--para-train has no effect with --tasks sst" in run.err
    assert any("1 of 3 inputs" in line and "sst.csv" in line for line in run.err.splitlines()), run.err
    assert "3 of 3 dev rows have the texts of a training row" in run.err
