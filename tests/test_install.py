"""Guards: the wheel holds every file, its commands run from any folder, and the lock fits the requirements.

python -m pytest --import-mode=importlib tests/test_install.py
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FOLDERS, FILES = ("minbert", "tasks"), ("pretrain_cbcl.py", "multitask_train.py")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def source_files() -> set[str]:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    files = {str(path.relative_to(ROOT)) for path in paths if path.is_file() and "__pycache__" not in path.parts}
    return {*files, *FILES}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources by the setuptools that is installed."""
    copy, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in {*source_files(), "pyproject.toml", "requirements.txt", "README.md", "LICENSE"}:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", built, copy]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, capture_output=True)
    (path,) = built.glob("minbert-*.whl")
    return path


def test_the_wheel_holds_every_file_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == source_files()


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel, which borrows every other package from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    words = ["--python", folder / "bin" / "python", "install", "--quiet", "--no-deps", "--no-index"]
    words += ["--ignore-installed", wheel]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, capture_output=True)
    return folder / "bin"


def ran(command: Path, *words: str | Path, folder: Path, **variables: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it imports."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "guard"), "PYTHONPROFILEIMPORTTIME": "1"} | variables
    done = subprocess.run([command, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


STAGE_TWO = """
import minbert, multitask_train
from minbert.train import cli
encoder = minbert.Encoder.load("runs/cbcl/encoder")
print("similarity", encoder.similarity(*encoder.encode(["the cat", "a dog"])).item())
cli.run_module = lambda *_: None  # the report is another process, with modules of its own
multitask_train.command()
"""


def test_both_stages_run_from_another_folder(commands: Path, tiny: Path, tmp_path: Path) -> None:
    """It waits for none of the libraries that take seconds to import and that it does not need."""
    data = ("--data", ROOT / "data" / "sample", "--weights", tiny, "--max-length", "24")
    words = ("--preset", "sample", "--max-steps", "2", *data)
    out, imported = ran(commands / "minbert-pretrain", *words, folder=tmp_path)
    assert "; next: minbert-train --preset best --encoder runs/cbcl/encoder " in out.splitlines()[-1]
    manifest = json.loads((tmp_path / "runs" / "cbcl" / "manifest.json").read_text())
    assert manifest["command"].startswith("minbert-pretrain --preset sample ")
    assert "report: runs/cbcl/report.html" in out
    assert "</html>" in (tmp_path / "runs" / "cbcl" / "report.html").read_text()
    heavy = {"torch._dynamo", "sklearn", "matplotlib", "transformers", "tensorboard", "wandb"}
    assert "torch" in imported and not heavy & imported

    words = ("--weights", "runs/cbcl", "--max-steps", "1", "--max_length", "16", "--tasks", "sst")
    variables = {"DATA_DIR": str(ROOT / "data" / "sample")}
    out, imported = ran(commands / "python", "-c", STAGE_TWO, *words, folder=tmp_path, **variables)
    assert "dev norm" in out and not {"transformers", "sentence_transformers"} & imported
    assert -1.001 < float(out.split("similarity ")[1].split()[0]) < 1.001
    assert (tmp_path / "runs" / "multitask" / "predictions" / "sst-test-output.csv").is_file()


@pytest.mark.parametrize("command", [*PYPROJECT["project"]["scripts"]])
def test_every_command_knows_its_flags(command: str, commands: Path, tmp_path: Path) -> None:
    assert f"usage: {command} " in ran(commands / command, "--help", folder=tmp_path)[0]


def test_the_lock_fits_every_requirement() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    locked = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    extras = PYPROJECT["project"]["optional-dependencies"]
    asked = [line.partition("#")[0] for line in (ROOT / "requirements.txt").read_text().splitlines()]
    asked += [line for words in extras.values() for line in words if not line.startswith("minbert[")]
    for one in map(Requirement, filter(None, asked)):
        assert one.specifier.contains(locked[canonicalize_name(one.name)]), one
