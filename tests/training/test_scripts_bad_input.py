"""Guards: a user's mistake ends in one sentence on stderr and exit code 2, with no traceback and nothing left behind.

python -m pytest --import-mode=importlib tests/training/test_scripts_bad_input.py
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
COURSE = ROOT / "data" / "sample" / "course"
MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"


def refused(run, *words: str, folder: bool = False) -> str:
    """The sentence of a run that must have been refused."""
    assert run.code == 2, run.err
    assert "Traceback" not in run.err
    assert len(run.errors) == 1, run.err
    assert run.errors[0].startswith("error: ")
    for word in words:
        assert word in run.errors[0], run.errors[0]
    assert run.folder.exists() == folder, "a refused run leaves no folder behind"
    return run.errors[0]


@pytest.mark.parametrize(("name", "flags", "words"), [
    (MULTITASK, ["--learning-rate", "1"], ["--learning-rate"]),
    (MULTITASK, ["--epochs", "many"], ["--epochs", "'many'", "whole number"]),
    (MULTITASK, ["--epochs", "1.5"], ["--epochs", "'1.5'"]),
    (MULTITASK, ["--epochs", "0"], ["--epochs", "0", "1"]),
    (MULTITASK, ["--lr", "nan"], ["--lr", "nan"]),
    (MULTITASK, ["--lr", "inf"], ["--lr", "inf"]),
    (MULTITASK, ["--lr", "-1"], ["--lr", "-1"]),
    (MULTITASK, ["--lr"], ["--lr"]),
    (MULTITASK, ["--hidden_dropout_prob", "1"], ["--hidden-dropout-prob"]),
    (MULTITASK, ["--sampling", "squared"], ["--sampling", "squared", "round-robin"]),
    (MULTITASK, ["--fine-tune-mode", "half"], ["--fine-tune-mode", "last-linear-layer"]),
    (MULTITASK, ["--preset", "none"], ["--preset", "none", "paper"]),
    (MULTITASK, ["--encoder", "runs/x/encoder"], ["--encoder", "--weights"]),
    (MULTITASK, ["--accumulate", "40"], ["--accumulate", "--batch-size"]),
    (MULTITASK, ["--option", "finetune", "--fine-tune-mode", "full-model"], ["--option", "--fine-tune-mode"]),
    (MULTITASK, ["--tasks", "sst,cola"], ["--tasks", "'cola' is not one of sst, para, sts"]),
    (MULTITASK, ["--tasks", "sst,sst"], ["--tasks", "sst"]),
    (MULTITASK, ["--tasks", ","], ["--tasks"]),
    (MULTITASK, ["--max-length", "100"], ["--max-length", "100", "64"]),
    (MULTITASK, ["--max-length", "4"], ["--max-length", "4"]),
    (MULTITASK, ["--use-gpu"], ["--use-gpu"]),
    (MULTITASK, ["--data", "no/such/folder"], ["--data", "no/such/folder"]),
    (MULTITASK, ["--sst_train", "no-such-file.csv"], ["no-such-file.csv"]),
    (MULTITASK, ["--sst_dev_out", "no/such/folder/out.csv"], ["--sst-dev-out", "no/such/folder"]),
    (MULTITASK, ["--weights", "./no-such-folder"], ["--weights", "no-such-folder"]),
    (MULTITASK, ["--weights", "bert-base-uncased"], ["bert-base-uncased", "pip install", "--weights minilm"]),
    (MULTITASK, ["extra"], ["extra"]),
    (PRETRAIN, ["--batch-size", "1"], ["--batch-size"]),
    (PRETRAIN, ["--temperature", "0"], ["--temperature"]),
    (PRETRAIN, ["--pooler", "sum"], ["--pooler", "sum", "mean"]),
    (PRETRAIN, ["--triplets", "no-such-file.csv"], ["no-such-file.csv"]),
    (PRETRAIN, ["--encoder", "x"], ["--encoder"]),
    (PRETRAIN, ["--views", "feature-cutof:0.2,shuffle"], ["--views", "feature-cutof"]),
])  # fmt: skip
def test_a_bad_command_line(script: Callable, name: str, flags: list[str], words: list[str]) -> None:
    refused(script(name, *flags), *words)


SYNONYMS = ["--synonyms", "1"]
EARLY = [
    (MULTITASK, ["--run-dir", "{taken}"], ["{taken}", "--resume"]),
    (MULTITASK, ["--sst_train", "no-such-file.csv"], ["no-such-file.csv"]),
    (MULTITASK, ["--sts_dev", "{headless}"], ["{headless}:1", "cat"]),
    (MULTITASK, ["--columns", "sst:label=stars"], ["ids-sst-train.csv:1", "stars"]),
    (MULTITASK, ["--para_test_out", "no/such/folder.csv"], ["--para-test-out"]),
    (MULTITASK, ["--sst_dev", "{dev}", "--sst_dev_out", "{dev}"], ["{dev}", "--*_out"]),
    (MULTITASK, SYNONYMS, ["WordNet"]),
    (MULTITASK, ["--data", "no/such/folder"], ["--data no/such/folder"]),
    (PRETRAIN, ["--run-dir", "{taken}"], ["{taken}", "--resume"]),
    (PRETRAIN, ["--triplets", "no-such-file.csv"], ["no-such-file.csv"]),
    (PRETRAIN, ["--triplets", "{headless}"], ["{headless}:1", "cat"]),
    (PRETRAIN, ["--objective", "softmax", "--nli-pairs", "{headless}"], ["{headless}:1", "cat"]),
    (PRETRAIN, ["--objective", "simcse", "--texts", "no-such-file.txt"], ["no-such-file.txt"]),
    (PRETRAIN, ["--sts-dev", "{headless}"], ["{headless}:1", "cat"]),
    (PRETRAIN, SYNONYMS, ["WordNet"]),
    (PRETRAIN, [*SYNONYMS, "--marks-most", "2"], ["--synonyms", "--marks-most"]),
    (PRETRAIN, ["--scorer", "./no-such-scorer"], ["--scorer ./no-such-scorer"]),
]


@pytest.mark.parametrize(("name", "flags", "words"), EARLY)
def test_cheap_checks_come_before_the_weights(
    script: Callable, tmp_path: Path, name: str, flags: list[str], words: list[str]
) -> None:
    """The weights are not there: what is said is the other mistake, so it was found first."""
    places = {name: tmp_path / name for name in ("taken", "headless", "dev")}
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("precious")
    (tmp_path / "headless").write_text("cat,dog\nbird,tree\n")
    shutil.copy(COURSE / "ids-sst-dev.csv", tmp_path / "dev")
    flags, words = ([word.format(**places) for word in some] for some in (flags, words))
    run = script(name, "--weights", "./no-such-weights", *flags, NLTK_DATA=str(tmp_path))
    refused(run, *words)
    assert "no-such-weights" not in run.err


@pytest.mark.parametrize("name", [MULTITASK, PRETRAIN])
def test_a_changed_setting_is_refused_before_the_weights_are_read(script: Callable, name: str, tiny_copy) -> None:
    weights = tiny_copy()
    assert script(name, "--weights", weights, "--max-steps", 1).code == 0
    (weights / "model.safetensors").unlink()
    refused(script(name, "--weights", weights, "--max-steps", 2, "--resume"), "--max-steps (was 1, now 2)", folder=True)


def test_small_sets_and_settings_without_effect_get_a_note(script: Callable, tmp_path: Path) -> None:
    two = tmp_path / "two.csv"
    two.write_text("anchor,positive\na cat,the cat\na dog,the dog\n")
    run = script(PRETRAIN, "--triplets", two, "--order", "none", "--epochs", 2, "--max-steps", 3, "--lr", 0)
    assert run.code == 0, run.err
    for words in ("2 rows to train on, less than one batch of 32", "--lr 0: nothing is learnt", "--max-steps 3: "):
        assert f"{words}" in run.err
    run = script(MULTITASK, "--tasks", "sts", "--limit", 2, "--epochs", 1, run_dir="other")
    assert "note: sts: 2 rows to train on, less than one batch of 32" in run.err


def test_a_bad_file_is_named_with_line_and_column(script: Callable, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("\tid\tsentence\tsentiment\n0\ta1\t fine\t3\n1\ta2\t odd\t7\n")
    refused(script(MULTITASK, "--sst_train", bad), f"{bad}:3: sentiment:", "'7'")


def test_a_file_without_one_usable_row_is_refused(script: Callable, tmp_path: Path) -> None:
    bad = tmp_path / "triplets.csv"
    bad.write_text("sent0,sent1,hard_neg\n,b,c\n")
    refused(script(PRETRAIN, "--triplets", bad), str(bad))
    other = tmp_path / "quora.csv"
    other.write_text("\tid\tsentence1\tsentence2\tis_duplicate\n0\tx1\ta\tb\t\n")
    refused(script(MULTITASK, "--para_train", other), str(other))


def test_a_metric_that_the_rows_do_not_give_is_refused(script: Callable, tmp_path: Path) -> None:
    two = tmp_path / "two.csv"
    two.write_text("anchor,positive\na cat,the cat\na dog,the dog\n")
    refused(script(PRETRAIN, "--triplets", two, "--order", "none", "--metric", "accuracy"), "--metric accuracy")
    refused(script(PRETRAIN, "--triplets", two, "--order", "none", "--hard-weight", 1), str(two), "--hard-weight")


def test_a_preset_that_goes_on_from_a_run_asks_for_it(script: Callable) -> None:
    refused(script(PRETRAIN, "--preset", "consert-sup-unsup", weights=False), "--weights", "runs/consert-sup/encoder")


def test_a_single_row_is_said_to_have_no_negatives(script: Callable, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a cat sat\nthe dog runs\n")
    run = script(
        PRETRAIN, "--objective", "views", "--views", "feature-cutoff:0.2,shuffle", "--texts", tmp_path / "texts.txt",
        "--limit", 1, "--epochs", 1,
    )  # fmt: skip
    assert run.code == 0, run.err
    assert "no in-batch negatives" in run.err and "a guess has a loss" not in run.out
    assert "\n1 text; " in f"\n{run.out}" and "\n1 step of 1 text, views\n" in run.out


@pytest.mark.parametrize("rate", [0, 0.1])
def test_two_passes_without_dropout_are_said_to_be_the_same(script: Callable, tmp_path: Path, rate: float) -> None:
    (tmp_path / "texts.txt").write_text("a cat sat\nthe dog runs\na bird\n")
    run = script(
        PRETRAIN, "--objective", "simcse", "--texts", tmp_path / "texts.txt", "--encoder-dropout", rate, "--epochs", 1
    )
    assert run.code == 0, run.err
    assert ("both passes of a text are the same" in run.err) == (rate == 0)
    assert "evaluated on 50 pairs of " in run.out


def test_missing_data_says_what_to_type(script: Callable, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    sentence = refused(script(MULTITASK, "--data", empty), str(empty), "ids-sst-train.csv")
    assert "--data data/sample" in sentence or "--data DIR" in sentence
    refused(script(PRETRAIN, "--data", empty), str(empty), "nli_for_simcse.csv", "--data")


def test_an_existing_run_folder_is_refused_and_untouched(script: Callable) -> None:
    for name in (MULTITASK, PRETRAIN):
        done = script(name, "--epochs", 1, run_dir=name)
        assert done.code == 0, done.err
        before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in done.folder.rglob("*")}
        refused(script(name, "--epochs", 1, run_dir=name), str(done.folder), "--resume", folder=True)
        assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in done.folder.rglob("*")} == before


def test_a_foreign_folder_is_refused_and_untouched(script: Callable, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("precious")
    refused(script(MULTITASK), str(tmp_path / "run"), folder=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_run_folder_that_is_a_file_or_lies_under_one(script: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place, flags in (("file", []), ("file", ["--resume"]), ("file/run", [])):
        sentence = refused(
            script(MULTITASK, "--run-dir", tmp_path / place, *flags), "--run-dir", str(tmp_path / "file")
        )
        assert ("file: is a file, not a folder" in sentence) == (place == "file")
        assert (tmp_path / "file").read_text() == "x"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no folders")
def test_a_run_folder_that_cannot_be_made(script: Callable) -> None:
    refused(script(MULTITASK, "--run-dir", "/proc/x/y"), "--run-dir /proc/x/y: ")


def test_an_output_that_cannot_be_written_is_refused_before_training(script: Callable, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    refused(script(MULTITASK, "--sts_test_out", tmp_path / "taken"), "--sts-test-out", str(tmp_path / "taken"))


def test_a_damaged_manifest_is_named(script: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for content in ("{", "[]", "{}"):
        (folder / "manifest.json").write_text(content)
        refused(script(MULTITASK, "--resume"), str(folder / "manifest.json"), folder=True)


def test_a_vocabulary_that_does_not_fit_the_weights(script: Callable, tiny_copy: Callable) -> None:
    folder = tiny_copy()
    with open(folder / "vocab.txt", "a") as file:
        file.write("extra\n")
    for name in (MULTITASK, PRETRAIN):
        refused(script(name, "--weights", folder), str(folder), "vocabulary")


def test_weights_that_do_not_fit_their_config(script: Callable, tiny_copy: Callable) -> None:
    folder = tiny_copy()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    refused(script(MULTITASK, "--weights", folder), "missing", "encoder.layer.2")


def test_a_pickle_is_refused_with_the_command_that_converts_it(script: Callable, tiny_copy: Callable) -> None:
    folder = tiny_copy("model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"x")
    refused(script(MULTITASK, "--weights", folder), f"python -m minbert.weights convert {folder}")


@pytest.mark.parametrize("name", [MULTITASK, PRETRAIN])
def test_a_loss_that_is_not_finite_stops_the_run(script: Callable, name: str) -> None:
    run = script(name, "--lr", 1e30, "--clip", 0, "--epochs", 4, "--save-every", 1)
    sentence = refused(run, "step", "--lr", folder=True)
    assert "nan" in sentence or "inf" in sentence
    for folder in (run.folder / "checkpoints").iterdir():
        assert all(map(_finite, folder.glob("*.safetensors"))), "a checkpoint with NaN is worth nothing"


def _finite(path: Path) -> bool:
    from safetensors.torch import load_file

    return all(bool(tensor.isfinite().all()) for tensor in load_file(path).values())


def test_flags_without_effect_are_said(script: Callable) -> None:
    run = script(MULTITASK, "--power", 0.3, "--epochs", 1, "--tasks", "sst")
    assert run.code == 0
    assert any("--power" in line and "--sampling" in line for line in run.err.splitlines())
    run = script(PRETRAIN, "--order", "none", "--margin", 0.1, "--epochs", 1, run_dir="other")
    assert run.code == 0, run.err
    assert any("--margin" in line and "--order" in line for line in run.err.splitlines())


def test_cut_sentences_are_counted_and_said(script: Callable, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(COURSE, data)
    (data / "ids-sst-train.csv").write_text(
        "\tid\tsentence\tsentiment\n0\ta\t the cat\t3\n1\tb\t" + " cat" * 7 + "\t1\n2\tc\t" + " cat" * 6 + "\t1\n"
    )
    run = script(MULTITASK, "--data", data, "--max-length", 8, "--epochs", 1, "--tasks", "sst", data=False)
    assert run.code == 0, run.err
    assert any("1 of 3 inputs" in line and "ids-sst-train.csv" in line for line in run.err.splitlines()), run.err
