"""Guards: who may import whom and in which order, without circles, where pickles may be opened, and the public names.

Annotations and docstrings of public names are ruff's (D1, ANN).

python -m pytest --import-mode=importlib tests/test_house.py
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from inspect import signature
from itertools import permutations
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import minbert
import pretrain_cbcl
from tasks import TASKS
from tasks.contrastive import consert, curriculum, losses, nli

ROOT = Path(__file__).parent.parent

# The lowest floor first: a file imports only from lower floors, or from its own. A room's files stand on its floor.
FLOORS = [
    "minbert.errors minbert.files minbert.seeds minbert.config minbert.ragged minbert.precision",
    "minbert.attention minbert.pooling minbert.optimizer minbert.tokenizer",
    "minbert.modules minbert.hub minbert.weights minbert.token_cache",
    "minbert.bert",
    "minbert.fast",
    "minbert.encoder",
    "minbert.fast.graphs",
    "minbert.train",
    "minbert.convert",
    "tasks.charts tasks.examples tasks.metrics tasks.presets tasks.readers tasks.tables",
    "tasks.intervals tasks.augment tasks.task tasks.manifests tasks.definitions",
    "tasks.own tasks.new_task",
    "tasks.settings",
    "tasks.record",
    "tasks.contrastive.losses tasks.contrastive.settings tasks.contrastive.unique_batches tasks.contrastive.views",
    "tasks.contrastive.curriculum tasks.contrastive.data",
    "tasks.contrastive.corpora tasks.contrastive.scoring",
    "tasks.contrastive.evaluation tasks.contrastive.pairs tasks.contrastive.triplets",
    "tasks.contrastive.step",
    "tasks.contrastive.fit",
    "tasks.contrastive",
    "tasks.sampling",
    "tasks.registry tasks.model tasks.splits",
    "tasks.runs tasks.compare tasks.evaluate tasks.predictions tasks.predict",
    "tasks.benchmarks",
    "tasks.report",
    "tasks.ensemble tasks.api tasks.difficulty",
]
FLOOR_OF: dict[str, int] = {}
for number, names in enumerate(FLOORS):
    FLOOR_OF |= dict.fromkeys(names.split(), number)
FLOOR_OF |= {kind.__module__: FLOOR_OF["tasks.sampling"] for kind in TASKS.values()}
DOORS = {"minbert", "tasks"}  # import what is asked of them, lazily, and are imported by name only


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in [*(ROOT / "minbert").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")]}
OTHERS = [*ROOT.glob("*.py")]
for folder in ("ablations", "benchmarks", "data"):
    OTHERS += (ROOT / folder).rglob("*.py")


def floor(module: str) -> int:
    """The floor of a file, else that of its room."""
    parts = module.split(".")
    for end in range(len(parts), 1, -1):
        name = ".".join(parts[:end])
        if name in FLOOR_OF:
            return FLOOR_OF[name]
    raise AssertionError(f"{module} has no floor: give it one in FLOORS")


def imported_by(nodes: Iterable[ast.AST], module: str) -> set[str]:
    """The files of this project that some statements of a file import."""
    names = set[str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: relative import"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in FILES else str(node.module))
    return {name for name in names if name in FILES} - {module} - DOORS


def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """What each file imports."""
    return {module: imported_by(ast.walk(tree(module)), module) for module in FILES.keys() - DOORS}


def test_files_import_from_lower_floors(graph: dict[str, set[str]]) -> None:
    assert FLOOR_OF.keys() <= FILES.keys(), "a floor of a file that is gone"
    for module, names in graph.items():
        for name in names:
            assert floor(name) <= floor(module), f"{module} imports {name}"


def test_minbert_never_imports_tasks() -> None:
    for module, path in FILES.items():
        if module.startswith("minbert"):
            code = path.read_text(encoding="utf-8")
            assert not re.search(r"^\s*(from|import) tasks\b", code, re.MULTILINE), module


def test_imports_have_no_circles(graph: dict[str, set[str]]) -> None:
    TopologicalSorter(graph).prepare()  # raises CycleError


# Files that import another one of this project late, because few of their uses need it and what it imports.
LATE = {"minbert.weights"}  # transformers, for names of the Hub


def test_imports_stand_at_the_head() -> None:
    """Only optional packages, and packages that take a second, are imported in functions."""
    for module in FILES.keys() - DOORS - LATE:
        inside: list[ast.AST] = []
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.FunctionDef):
                inside += ast.walk(node)
        assert not imported_by(inside, module), module


def compared(module: str) -> set[object]:
    """The constants that a file compares with an objective, a task or a name of one."""
    pairs: list[tuple[ast.AST, ast.AST]] = []
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Compare):
            pairs += permutations([node.left, *node.comparators], 2)
        elif isinstance(node, ast.Match):
            pairs += [(node.subject, case.pattern) for case in node.cases]
    constants = set[object]()
    for side, other in pairs:
        if re.search(r"\b(objective|task)('\]|\.name)?$", ast.unparse(side)):
            constants |= {part.value for part in ast.walk(other) if isinstance(part, ast.Constant)}
    return constants


def test_only_its_file_names_a_task(graph: dict[str, set[str]]) -> None:
    """The registry imports their files, and nobody asks which task it has."""
    homes = {kind.__module__ for kind in TASKS.values()}
    for module in graph.keys() - homes:
        assert not compared(module) & TASKS.keys(), module
        assert module == "tasks.registry" or not graph[module] & homes, module


def test_only_its_command_names_a_loss(graph: dict[str, set[str]]) -> None:
    """No file asks for another command's loss; only ConSERT's imports another command, whose loss it joins."""
    losses_of: dict[str, set[object]] = {}
    for command in (pretrain_cbcl, consert, nli):
        objective = get_type_hints(command.LossSettings)["objective"]
        losses_of[command.__name__] = set(get_args(objective))
    names = set[object]().union(*losses_of.values())
    commands = {"tasks.contrastive.consert", "tasks.contrastive.nli", "tasks.contrastive.simcse"}
    for module in graph:
        assert compared(module) & names <= losses_of.get(module, set()), module
        if module == "tasks.contrastive.consert":
            assert graph[module] & commands == {"tasks.contrastive.nli"}
        else:
            assert not graph[module] & commands, module


# ends a fresh process where torch is imported: 0 if OpenMP's variable is set by then
SPIN_COUNT = """
import importlib, os, sys

def audit(event, arguments):
    if event == "import" and arguments[0] == "torch":
        os._exit("GOMP_SPINCOUNT" not in os.environ)

sys.addaudithook(audit)
importlib.import_module(sys.argv[1])
os._exit(2)
"""
COMMANDS = [
    "pretrain_cbcl",
    "multitask_train",
    "tasks.predict",
    "tasks.contrastive.consert",
    "tasks.contrastive.nli",
    "tasks.contrastive.simcse",
    "benchmarks.train_speed",
]


@pytest.mark.parametrize("module", COMMANDS)
def test_spin_count_is_set_before_torch(module: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    command = [sys.executable, "-c", SPIN_COUNT, module]
    assert subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


UNPICKLES = re.compile(
    r"\btorch\.(load|save)\(|\bimport (pickle|dill|joblib|shelve|marshal)\b|\bfrom (pickle|dill|joblib) "
    r"|allow_pickle=True"
)


def test_only_convert_opens_pickles() -> None:
    convert = FILES["minbert.convert"]
    files = [*FILES.values(), *OTHERS]
    assert [path for path in files if UNPICKLES.search(path.read_text(encoding="utf-8"))] == [convert]
    code = convert.read_text(encoding="utf-8")
    assert len(re.findall(r"\btorch\.load\(", code)) == 1
    assert code.count("weights_only=True") == 1


def test_public_names_exist() -> None:
    """Scripts outside this project rely on them."""
    assert {"AdamW", "BertConfig", "BertModel", "Encoder", "Ragged"} <= set(minbert.__all__) <= set(dir(minbert))
    for name in minbert.__all__:
        assert getattr(minbert, name).__module__.startswith("minbert.")
    arguments = signature(minbert.AdamW).parameters.keys()
    assert {"params", "lr", "betas", "eps", "weight_decay", "correct_bias"} <= arguments
    assert list(signature(minbert.BertModel.forward).parameters)[:3] == ["self", "input_ids", "attention_mask"]
    assert list(TASKS)[:3] == ["sst", "quora", "sts"]
    assert list(signature(losses.nt_xent).parameters) == ["anchor", "positive", "hard_negative", "temperature"]
    assert list(signature(curriculum.difficulty).parameters) == ["pos_sim", "neg_sim", "margin"]
    assert list(signature(curriculum.eligible).parameters)[:4] == ["epoch", "epochs", "size", "power"]
