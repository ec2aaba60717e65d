"""Guards: both scripts, one after the other, leave whole run folders that other libraries open.

python -m pytest --import-mode=importlib tests/training/test_scripts_end_to_end.py
"""

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score
from transformers import AutoTokenizer, BertModel

import minbert
from tasks import evaluate, predict, record
from tasks.report import facts
from tasks.runs import read_run

Script = Callable[..., Any]
ROOT = Path(__file__).parent.parent.parent
COURSE = ROOT / "data" / "sample" / "course"
MULTITASK, PRETRAIN = "multitask_train.py", "pretrain_cbcl.py"
HEADERS = {
    "sst": b"id \t Predicted_Sentiment \n",
    "para": b"id \t Predicted_Is_Paraphrase \n",
    "sts": b"id \t Predicted_Similiary \n",
}
SOURCES = {
    "sst": ("ids-sst-dev.csv", "ids-sst-test-student.csv", "sentiment"),
    "para": ("quora-dev.csv", "quora-test-student.csv", "is_duplicate"),
    "sts": ("sts-dev.csv", "sts-test-student.csv", "similarity"),
}
FOLDERS = ["checkpoints", "encoder", "dev", "report-figures"]
EVERY_RUN = ["manifest.json", "metrics.jsonl", "scores.json", "report.html", *FOLDERS]
SENTENCES = ["A man is playing a guitar.", "nobody knows", "Is it?"]


def records(name: str) -> list[dict[str, str]]:
    with open(COURSE / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_folder_is_complete(script: Script) -> None:
    run = script(MULTITASK, "--epochs", 2, "--lr", 1e-3, report=True)
    assert run.code == 0, run.err
    folder = run.folder
    assert names(folder) == sorted([*EVERY_RUN, "predictions"])
    manifest = run.manifest()
    assert manifest["command"].startswith("multitask_train.py --run-dir")
    assert {"settings", "weights", "environment", "data", "plan", "preset", "overrides", "precision"} <= manifest.keys()
    for split in ("train", "dev", "test"):
        for account in manifest["data"][split].values():
            assert account["read"] == account["kept"] + len(account["skipped"])
    kinds = [row["kind"] for row in run.rows()]
    assert kinds.count("evaluation") == 2
    written = [(folder / name).stat().st_mtime_ns for name in ("scores.json", "manifest.json", "report.html")]
    assert written == sorted(written), "the time that the page shows includes predicting, scoring and saving"
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["dev_norm"] == max(row["score"] for row in run.rows() if row["kind"] == "evaluation")
    check_predictions(folder, scores)
    check_encoder(folder)
    check_card(folder / "encoder" / "README.md", scores)


def check_predictions(folder: Path, scores: dict) -> None:
    assert len(list((folder / "predictions").iterdir())) == 6
    values: dict[str, list[float]] = {}
    for short, (dev, test, _) in SOURCES.items():
        for split, source in (("dev", dev), ("test", test)):
            content = (folder / "predictions" / f"{short}-{split}-output.csv").read_bytes()
            assert content.startswith(HEADERS[short])
            lines = content[len(HEADERS[short]) :].decode("utf-8").split("\n")
            assert lines.pop() == ""
            ids, written = zip(*(line.removesuffix(" ").split(" , ") for line in lines), strict=True)
            assert all(line.endswith(" ") for line in lines)
            assert list(ids) == [row["id"].strip().lower() for row in records(source)], "every id, in input order"
            assert all(repr(float(value)) == value or value.isdigit() for value in written), written[:3]
            if short == "sst":
                assert set(written) <= set("01234")
            if short == "para":
                assert set(written) <= {"0.0", "1.0"}
            values[f"{short}-{split}"] = [float(value) for value in written]
    golds = {short: [float(row[label]) for row in records(dev)] for short, (dev, _, label) in SOURCES.items()}
    sst, para = (accuracy_score(golds[short], values[f"{short}-dev"]) for short in ("sst", "para"))
    sts = pearsonr(golds["sts"], values["sts-dev"]).statistic
    assert [scores["tasks"][name]["score"] for name in ("sst", "quora", "sts")] == pytest.approx([sst, para, sts])
    assert scores["dev_norm"] == pytest.approx((sst + para + (sts + 1) / 2) / 3)


def check_encoder(folder: Path) -> None:
    """transformers, sentence-transformers and this project read the same encoder, that of the best checkpoint."""
    from sentence_transformers import SentenceTransformer

    theirs, loading = BertModel.from_pretrained(folder / "encoder", output_loading_info=True)
    assert not any(loading.values()), loading
    tokens = AutoTokenizer.from_pretrained(folder / "encoder")(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = theirs.eval()(**tokens).pooler_output.numpy()
    ours = minbert.Encoder.load(folder / "encoder", precision="fp32").encode(SENTENCES)
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    third = SentenceTransformer(str(folder / "encoder"), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(third, expected, atol=1e-5)
    best = json.loads((folder / "scores.json").read_text())["step"]
    checkpoint = load_file(folder / "checkpoints" / f"step-{best:08d}" / "model.safetensors")
    written = load_file(folder / "encoder" / "model.safetensors")
    torch.testing.assert_close(
        written["embeddings.word_embeddings.weight"], checkpoint["encoder.word_embedding.weight"], rtol=0, atol=0
    )


def check_card(path: Path, scores: dict) -> None:
    """The hub's reader finds no score of a head that is not there, and its three examples give the same vectors."""
    card = ModelCard.load(path)
    assert card.data.eval_results is None
    assert f"| dev norm | mean |  | – | {scores['dev_norm']:.3f} |" in card.text
    assert card.text.count("| training |") == card.text.count("| development |") == 3
    found = []
    for code in re.findall(r"```python\n(.*?)```", card.text, re.DOTALL):
        *lines, last = code.replace('"run"', repr(str(path.parent))).strip().splitlines()
        variables: dict[str, Any] = {}
        exec("\n".join(lines), variables)
        found.append(eval(last, variables))
    ours, third, hidden = found
    np.testing.assert_allclose(ours, third, atol=0.05)  # bf16 where the processor has it
    assert hidden.shape[0] == 1 and hidden.shape[2] == ours.shape[1]


def test_stage_one_feeds_stage_two(script: Script, tiny: Path, tmp_path: Path) -> None:
    """By the command that stage one names at its end."""
    data = tmp_path / "my data"
    data.symlink_to(ROOT / "data" / "sample")
    first = script(
        PRETRAIN, "--epochs", 2, "--lr", 1e-3, "--pooler", "mean", "--data", data, run_dir="a", data=False, report=True
    )
    assert first.code == 0, first.err
    assert f"report: {first.folder / 'report.html'}" in first.out.splitlines()
    assert names(first.folder) == sorted([*EVERY_RUN, "cosines.safetensors"])
    groups = first.manifest()["curriculum"]
    assert sum(groups[name] for name in ("easy", "semi-hard", "hard")) == 120
    drawn = {
        "loss-nli",
        "dev-sts_dev_spearman",
        "learning-rate",
        "gradient-norm",
        "mix",
        "groups",
        "cosines",
    }
    assert drawn < {path.stem for path in (first.folder / "report-figures").iterdir()}
    BertModel.from_pretrained(first.folder / "encoder")
    assert "| similarity | Spearman's rho | 50 | " in (first.folder / "encoder" / "README.md").read_text()
    trained = load_file(first.folder / "encoder" / "model.safetensors")
    name = "encoder.layer.0.output.dense.weight"
    assert not torch.equal(trained[name], load_file(tiny / "model.safetensors")[name])

    words = shlex.split(first.out.splitlines()[-1].partition("next: python ")[2])
    recommended = [MULTITASK, "--preset", "best", "--encoder", str(first.folder / "encoder")]
    assert words[:5] == recommended and words[-4:] == ["--data", str(data), "--run-dir", "runs/best"]
    flags = (*words[1:-2], "--fine_tune_mode", "last-linear-layer", "--epochs", 1)
    second = script(MULTITASK, *flags, run_dir="b", weights=False, data=False)
    assert second.code == 0, second.err
    kept = load_file(second.folder / "encoder" / "model.safetensors")
    assert all(torch.equal(kept[name], trained[name]) for name in kept), "frozen: stage one's weights to the bit"


def test_a_cross_encoder_of_stage_one_is_trained_on_beside_another_sentence_encoder(
    script: Script, tiny: Path, tiny_copy: Callable[..., Path], tmp_path: Path
) -> None:
    with open(ROOT / "data" / "sample" / "nli" / "nli-triplets.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:40]
    lines = [f"{row['sent0']}\t{row['sent1']}\tentailment\n{row['sent0']}\t{row['hard_neg']}\tneutral" for row in rows]
    (tmp_path / "pairs.tsv").write_text("\n".join(["premise\thypothesis\tlabel", *lines]) + "\n", encoding="utf-8")
    how = ("--objective", "cross", "--nli-pairs", tmp_path / "pairs.tsv", "--epochs", 1, "--lr", 1e-3)
    first = script(PRETRAIN, *how, "--pooler", "mean", run_dir="first")
    assert first.code == 0, first.err
    assert "a guess has a loss of 1.099" in first.out
    (tmp_path / "phrases.tsv").write_text("a fine film\t1\ndull\t0\n", encoding="utf-8")
    more = ("--phrases", tmp_path / "phrases.tsv", "--lr", 0, "--pooler", "mean")
    still = script(PRETRAIN, *how, *more, run_dir="still")
    assert still.code == 0 and "did not help" not in still.out, "sentence embeddings are not what it trains"
    assert f"{len(rows) * 2 + 2} pairs; " in still.out and "a guess" not in still.out

    copy = tiny_copy()
    flags = ("--encoder", first.folder, "--pairs", "joint", "--sentence-encoder", copy, "--max-steps", 3)
    second = script(MULTITASK, *flags, run_dir="second", weights=False)
    assert second.code == 0, second.err
    predictor = predict.load(second.folder)
    kept, given = predictor.model.starting.state_dict(), minbert.BertModel.from_pretrained(tiny).state_dict()
    assert all(torch.equal(kept[name], value) for name, value in given.items())
    task, (dev, *_) = predictor.model.tasks["sts"], SOURCES["sts"]
    examples = predictor.examples(task, [(row["sentence1"], row["sentence2"]) for row in records(dev)])
    recorded = record.read_rows(second.folder / "dev" / "sts.jsonl").predicted
    outputs = evaluate.outputs(predictor.model, task, examples, predictor.precision)
    np.testing.assert_allclose(task.predict(outputs), recorded, atol=2e-6)

    (copy / "model.safetensors").write_bytes((first.folder / "encoder" / "model.safetensors").read_bytes())
    again = script(MULTITASK, *flags, "--resume", run_dir="second", weights=False)
    assert again.code == 2 and "data sentence encoder (" in again.err, "other weights under the same name"


@pytest.mark.parametrize("name", [MULTITASK, PRETRAIN])
def test_a_limit_and_a_last_step_make_a_short_whole_run(script: Script, tmp_path: Path, name: str) -> None:
    """A second one has the same bits, whose output nobody reads, and tokenises nothing again."""
    how = "--limit 20 --batch-size 8 --max-steps 7 --log-every 2 --lr 5e-4 --lr-schedule linear"
    flags = (*how.split(), *(("--order", "none") if name == PRETRAIN else ()))
    cache = tmp_path / "cache"
    run = script(name, *flags, MINBERT_CACHE=str(cache))
    assert run.code == 0, run.err
    rates = {row["step"]: row["lr"] for row in run.rows() if row["kind"] == "train"}
    assert rates[7] == pytest.approx(5e-4 / 7), "the schedule comes to its end with the run"
    assert {2, 4, 6, 7} <= rates.keys()
    assert run.rows()[-1]["kind"] == "evaluation" and run.rows()[-1]["step"] == 7
    rows = run.manifest()["training_rows"]
    assert rows == ({"nli": 20} if name == PRETRAIN else dict.fromkeys(("sst", "quora", "sts"), 20))
    files = {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")}
    assert len(files) >= (2 if name == PRETRAIN else 9)
    unread = script(name, *flags, run_dir="unread", unread=True, MINBERT_CACHE=str(cache))
    assert (unread.code, unread.errors, unread.out) == (0, run.errors, "")
    assert unread.bits() == run.bits() and len(run.out.splitlines()) > 5
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.safetensors")} == files


def test_a_limit_of_the_evaluation_takes_the_first_rows_of_the_other_sets(script: Script) -> None:
    run = script(MULTITASK, "--limit", 8, "--limit-eval", 5, "--epochs", 1)
    assert run.code == 0, run.err
    for short, (dev, test, _) in SOURCES.items():
        for split, source in (("dev", dev), ("test", test)):
            lines = (run.folder / "predictions" / f"{short}-{split}-output.csv").read_text().splitlines()[1:]
            assert [line.split(" , ")[0] for line in lines] == [row["id"] for row in records(source)[:5]]
    entry = run.manifest()["data"]["dev"]["sst"]
    assert entry["kept"] == 5 and entry["read"] == 5 + len(entry["skipped"]) + entry["left_out"]


def test_the_heads_may_have_a_learning_rate_of_their_own(script: Script, tiny: Path) -> None:
    """One update of the same gradient: the heads as with one rate for all, the encoder twice as far."""
    left = []
    for rates in (("--lr", 1e-3), ("--lr", 2e-3, "--head-lr", 1e-3)):
        run = script(MULTITASK, *rates, "--weight-decay", 0, "--max-steps", 1, run_dir=f"run{len(rates)}")
        assert run.code == 0, run.err
        left.append(load_file(run.folder / "checkpoints" / "step-00000001" / "model.safetensors"))
    for name, start in minbert.BertModel.from_pretrained(tiny).state_dict().items():
        alike, twice = (weights[f"encoder.{name}"] - start for weights in left)
        torch.testing.assert_close(twice, 2 * alike, atol=1e-6, rtol=1e-3)
    heads = [name for name in left[0] if name.startswith("heads.")]
    assert heads and all(torch.equal(left[0][name], left[1][name]) for name in heads)
    assert not torch.equal(left[0]["encoder.word_embedding.weight"], left[1]["encoder.word_embedding.weight"])


def test_a_preset_of_the_other_papers_needs_sentevals_data_alone(script: Script, tmp_path: Path) -> None:
    data = tmp_path / "senteval"
    dev = data / "downstream" / "STS" / "STSBenchmark" / "sts-dev.csv"
    dev.parent.mkdir(parents=True)
    columns = ("id", "similarity", "sentence1", "sentence2")
    rows = ["\t".join(["main", "f", "2012", *(row[name] for name in columns)]) for row in records("sts-dev.csv")]
    dev.write_text("\n".join(rows) + "\n")
    triplets = COURSE.parent / "nli" / "nli-triplets.csv"
    how = ("--preset", "sbert-nli-v2", "--triplets", triplets, "--data", data, "--epochs", 1, "--batch-size", 32)
    run = script(PRETRAIN, *how, data=False)
    assert run.code == 0, run.err
    account = run.manifest()["data"]["sts_dev"]
    assert (account["name"], account["file"], account["kept"]) == ("stsb", str(dev), 50)
    how_chosen = {"keep": "best", "metric": "spearman", "patience": 0, "dev_set": "stsb", "by_dev_pairs": True}
    assert run.manifest()["selection"] == how_chosen
    refused = script(PRETRAIN, *how, "--sts-dev", "course", data=False, run_dir="refused")
    assert (
        refused.code == 2 and "--sts-dev course" in refused.errors[0] and "stsb (which is there)" in refused.errors[0]
    )


def test_pooling_comes_from_the_folder_of_the_weights_where_it_names_one(
    script: Script, tiny: Path, tmp_path: Path
) -> None:
    named = Path(shutil.copytree(tiny, tmp_path / "named"))
    (named / "1_Pooling").mkdir()
    (named / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    for name, more in ((PRETRAIN, ("--order", "none")), (MULTITASK, ("--tasks", "sst"))):
        cases = [
            (named, (), "mean", f"pooling: mean, as {named} says (--pooler)"),
            (named, ("--pooler", "cls"), "cls", ""),
            (tiny, (), "pooler", f"pooling: pooler, BERT's pooling layer as in the papers: {tiny} names none"),
        ]
        for weights, given, pooler, line in cases if name == PRETRAIN else cases[:1]:
            flags = ("--weights", weights, *given, *more, "--max-steps", 1, "--limit", 8)
            run = script(name, *flags, run_dir=f"{name}-{pooler}", weights=False)
            assert run.code == 0, run.err
            assert run.manifest()["settings"]["pooler"] == pooler and line in run.out
            assert ("pooling:" in run.out) == bool(line)
            assert minbert.Encoder.load(run.folder / "encoder").pooler == pooler


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_that_makes_the_encoder_worse_says_so(script: Script, tiny: Path, tmp_path: Path, keep: str) -> None:
    """The dev pairs are scored by the starting encoder itself: any change makes it worse."""
    encoder = minbert.Encoder.load(tiny, pooler="mean", precision="fp32")
    pairs = [(row["sentence1"], row["sentence2"]) for row in records("sts-dev.csv")]
    first, second = (encoder.encode([pair[side] for pair in pairs]) for side in (0, 1))
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    dev = tmp_path / "dev.tsv"
    lines = [f"{a}\t{b}\t{5 * max(0, float(score)):.7f}\n" for (a, b), score in zip(pairs, cosines, strict=True)]
    dev.write_text("sentence1\tsentence2\tscore\n" + "".join(lines))
    how = ("--sts-dev", dev, "--pooler", "mean", "--max-length", 64, "--epochs", 2, "--lr", 1e-2, "--keep", keep)
    run = script(PRETRAIN, *how)
    assert run.code == 0, run.err
    assert "best so far" not in run.out and "training did not help" in run.out
    scores = json.loads((run.folder / "scores.json").read_text())
    rho = scores["sts_dev_spearman"]
    assert rho["before"] > 0.999 and (rho["after"] == rho["before"]) == (keep == "best")
    assert (scores["step"], scores["best_step"], scores["last_step"]) == (0 if keep == "best" else 7, 0, 7)
    trained, started = (load_file(folder / "model.safetensors") for folder in (run.folder / "encoder", tiny))
    assert all(torch.equal(trained[name], started[name]) for name in trained) == (keep == "best")
    said = "after training (the encoder from before training)" if keep == "best" else "(step 7 of 7, the last)"
    assert said in run.out
    found = dict(facts.run_facts(read_run(run.folder)))
    assert found["kept"].startswith("the encoder from before training" if keep == "best" else "step 7, the last")
    assert found["last epoch's training loss"] == f"{scores['last_epoch_loss']:.4f}"


def test_a_metric_that_is_undefined_chooses_nothing_and_is_said(script: Script, tmp_path: Path) -> None:
    """One dev pair has no rank correlation: the last step is kept, as no evaluation can be the best."""
    dev = tmp_path / "dev.tsv"
    dev.write_text("sentence1\tsentence2\tscore\na cat\tthe cat\t5\n")
    run = script(PRETRAIN, "--sts-dev", dev, "--max-steps", 6, "--evaluate-every", 3, "--keep", "best", "--lr", 1e-3)
    assert run.code == 0, run.err
    assert [line for line in run.err.splitlines() if "undefined" in line] == [
        f"note: step {step}: the score is undefined, so this evaluation cannot be the best" for step in (3, 6)
    ]
    scores = json.loads((run.folder / "scores.json").read_text())
    assert scores["step"] == 6 and scores["sts_dev_spearman"] == {"before": None, "after": None}
    assert "after training (step 6 of 6, the last): STS dev spearman undefined" in run.out


def test_fine_tuning_keeps_the_last_step_where_it_is_told_to(script: Script) -> None:
    run = script(MULTITASK, "--epochs", 3, "--lr", 5e-3, "--keep", "last")
    assert run.code == 0, run.err
    evaluations = [row for row in run.rows() if row["kind"] == "evaluation"]
    scores = json.loads((run.folder / "scores.json").read_text())
    assert scores["dev_norm"] == evaluations[-1]["score"] and scores["step"] == evaluations[-1]["step"]
    assert max(evaluations, key=lambda row: row["score"])["step"] == scores["best_step"]
    assert run.manifest()["selection"]["by_dev_pairs"] is False


def test_the_pooler_of_the_heads_is_that_of_the_saved_encoder_and_of_predictions(script: Script) -> None:
    run = script(MULTITASK, "--max-steps", 3, "--lr", 1e-3, "--pooler", "mean", "--pairs", "joint")
    assert run.code == 0, run.err
    assert minbert.Encoder.load(run.folder / "encoder").pooler == "mean"
    predictor = predict.load(run.folder)
    for name, columns in (("sst", ["sentence"]), ("quora", ["sentence1", "sentence2"])):
        task, (dev, *_) = predictor.model.tasks[name], SOURCES[{"quora": "para"}.get(name, name)]
        examples = predictor.examples(task, [tuple(row[column] for column in columns) for row in records(dev)])
        outputs = evaluate.outputs(predictor.model, task, examples, predictor.precision)
        recorded = record.read_rows(run.folder / "dev" / f"{name}.jsonl").probabilities
        np.testing.assert_allclose(task.probabilities(outputs), recorded, atol=2e-6)


def test_out_flags_and_dev_rows_without_labels(script: Script, tmp_path: Path) -> None:
    """They are predicted and not scored; a set without any label has no score."""
    lines = (COURSE / "quora-dev.csv").read_text().splitlines()
    lines[3] = lines[3][:-3]  # no label
    index, name, first, *_ = lines[5].split("\t")
    lines[5] = "\t".join([index, name, first, "", ""])  # no sentence2, no label
    (tmp_path / "quora.csv").write_text("\n".join(lines) + "\n")
    flags = [f"--{short}_{split}_out" for short in SOURCES for split in ("dev", "test")]
    paths = [tmp_path / f"{flag.strip('-')}.txt" for flag in flags]
    given = [part for pair in zip(flags, paths, strict=True) for part in pair]
    run = script(MULTITASK, "--max-steps", 3, "--para_dev", tmp_path / "quora.csv", *given)
    assert run.code == 0, run.err
    for path in paths:
        assert path.read_bytes().startswith(HEADERS[path.name.split("_")[0]])
    assert not (run.folder / "predictions").exists()
    written = (tmp_path / "para_dev_out.txt").read_text().splitlines()[1:]
    expected = [line.split("\t")[1] for number, line in enumerate(lines) if number not in (0, 5)]
    assert [line.split(" , ")[0] for line in written] == expected
    assert json.loads((run.folder / "scores.json").read_text())["tasks"]["quora"]["rows"] == 48
    account = run.manifest()["data"]["dev"]["quora"]
    assert [row["line"] for row in account["skipped"]] == [6] and [row["line"] for row in account["noted"]] == [4]
    assert any("1 of 50 rows skipped" in line for line in run.err.splitlines())

    header, *rows = (COURSE / "quora-dev.csv").read_text().splitlines()
    (tmp_path / "quora.csv").write_text("\n".join([header, *(row[:-3] for row in rows)]) + "\n")
    flags = ("--max-steps", 2, "--tasks", "quora,sts", "--para_dev", tmp_path / "quora.csv")
    run = script(MULTITASK, *flags, run_dir="unlabelled")
    assert run.code == 0, run.err
    assert json.loads((run.folder / "scores.json").read_text())["tasks"]["quora"]["score"] is None
    assert len((run.folder / "predictions" / "para-dev-output.csv").read_text().splitlines()) == 51


@pytest.mark.parametrize(
    "flags",
    [
        "--preset paper --epochs 1 --sampling sequential",
        "--sampling hybrid --tasks sts,para --accumulate 3 --patience 1",
    ],
)
def test_other_settings_run_to_the_end(script: Script, flags: str) -> None:
    run = script(MULTITASK, "--epochs", 1, "--limit", 40, *flags.split())
    assert run.code == 0, run.err
    assert len(names(run.folder / "predictions")) in (4, 6)


AS_TYPED = """
import runpy, sys
from minbert.training import cli
cli.run_module = lambda *_: None  # the report is another process, with modules of its own
sys.modules["transformers"] = sys.modules["sentence_transformers"] = None  # an import of either fails
for command in {commands!r}:
    sys.argv = command
    try:
        runpy.run_path(command[0], run_name="__main__")
    except SystemExit as stop:
        assert stop.code == 0
import minbert
encoder = minbert.Encoder.load("runs/cbcl/encoder")
print(encoder.similarity(*encoder.encode(["the cat", "a dog"])).item())
"""


def test_scripts_and_scoring_do_without_transformers(tiny: Path, tmp_path: Path) -> None:
    """In a fresh interpreter, with $DATA_DIR and paths relative to the working folder."""
    short = ["--max-steps", "1", "--max_length", "16", "--weights"]
    commands = [
        [str(ROOT / PRETRAIN), *short, str(tiny), "--run-dir", "runs/cbcl"],
        [str(ROOT / MULTITASK), *short, "runs/cbcl", "--tasks", "sst"],
    ]
    run = subprocess.run(
        [sys.executable, "-c", AS_TYPED.format(commands=commands)],
        cwd=tmp_path,
        env=os.environ | {"DATA_DIR": str(ROOT / "data" / "sample")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "runs" / "multitask" / "predictions" / "sst-test-output.csv").is_file()
    assert "dev norm" in run.stdout
    assert -1.001 < float(run.stdout.splitlines()[-1]) < 1.001
