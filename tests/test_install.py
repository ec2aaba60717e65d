"""Guards: the wheel holds every file, its commands run from any folder, and the lock fits the requirements.

python -m pytest --import-mode=importlib tests/test_install.py
"""

import os
import re
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
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def source_files() -> set[str]:
    files = {"pretrain_cbcl.py", "multitask_train.py"}
    for path in (*(ROOT / "minbert").rglob("*"), *(ROOT / "tasks").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files.add(str(path.relative_to(ROOT)))
    return files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources by the setuptools that is installed."""
    copy = tmp_path_factory.mktemp("source")
    built = tmp_path_factory.mktemp("wheel")
    for name in {*source_files(), "pyproject.toml", "requirements.txt", "README.md", "LICENSE"}:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", built, copy]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, capture_output=True)
    (path,) = built.glob("minbert-*.whl")
    return path


def test_wheel_holds_every_file(wheel: Path) -> None:
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


def output_of(command: Path, *words: str | Path, folder: Path, **variables: str) -> str:
    """What a command prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "guard")} | variables
    done = subprocess.run([command, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


STAGE_TWO = """
import minbert, multitask_train
encoder = minbert.Encoder.load("runs/cbcl/encoder")
print("similarity", encoder.similarity(*encoder.encode(["the cat", "a dog"])).item())
multitask_train.command()
"""


@pytest.mark.slow
def test_both_stages_run_from_another_folder(commands: Path, tiny: Path, tmp_path: Path) -> None:
    data = ROOT / "data" / "sample"
    words = ("--preset", "sample", "--max-steps", "2", "--data", data, "--weights", tiny, "--max-length", "24")
    output = output_of(commands / "minbert-pretrain", *words, folder=tmp_path)
    assert output.splitlines()[-1] == f"next: minbert-train --preset sample --encoder runs/cbcl/encoder --data {data}"
    assert (tmp_path / "runs/cbcl/report.html").is_file()

    words = ("--max-steps", "1", "--max-length", "16", "--tasks", "sst")
    output = output_of(commands / "python", "-c", STAGE_TWO, *words, folder=tmp_path, DATA_DIR=str(data))
    assert "starting from runs/cbcl (--encoder, a run with --preset " in output and "dev norm" in output
    assert -1.001 < float(output.split("similarity ")[1].split()[0]) < 1.001
    assert (tmp_path / "runs/multitask/predictions/sst-test-output.csv").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("command", [*PYPROJECT["project"]["scripts"]])
def test_every_command_has_help(command: str, commands: Path, tmp_path: Path) -> None:
    assert "usage: " in output_of(commands / command, "--help", folder=tmp_path)


def test_lock_fits_every_requirement() -> None:
    versions = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if "==" in line:
            name, _, rest = line.partition("==")
            versions[canonicalize_name(name)] = rest.split()[0]
        else:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    for extra in PYPROJECT["project"]["optional-dependencies"].values():
        lines += extra
    for line in lines:
        if not line.startswith(("#", "minbert[")):
            requirement = Requirement(line)
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement
