"""Guards: who may import whom, without circles and exemptions, where pickles may be opened, and the public names.

Annotations and docstrings of public names are ruff's (D1, ANN).

python -m pytest --import-mode=importlib tests/test_house.py
"""

import ast
import inspect
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import minbert
from tasks import TASKS
from tasks.contrastive import curriculum, losses
from tasks.contrastive import settings as contrastive_settings

ROOT = Path(__file__).parent.parent

# The lowest floor first: a file imports only from lower floors, or from its own. A room's files stand on its floor.
FLOORS = [
    "minbert.errors minbert.files minbert.seeds minbert.config minbert.ragged minbert.precision",
    "minbert.attention minbert.pooling minbert.optimizer minbert.tokenizer",
    "minbert.hub minbert.weights minbert.token_cache",
    "minbert.bert",
    "minbert.fast",
    "minbert.encoder",
    "minbert.fast.graphs",
    "minbert.train",
    "minbert.convert",
    "tasks.charts tasks.examples tasks.metrics tasks.readers tasks.tables",
    "tasks.intervals tasks.augment tasks.task tasks.manifests tasks.record",
    "tasks.sst tasks.quora tasks.sts tasks.sampling tasks.contrastive",
    "tasks.registry tasks.model tasks.settings tasks.splits",
    "tasks.runs tasks.compare tasks.evaluate tasks.predictions tasks.predict",
    "tasks.benchmarks",
    "tasks.report",
    "tasks.ensemble",
]
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names.split()}
DOORS = {"minbert", "tasks"}  # import what is asked of them, lazily, and are imported by name only


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for folder in ("minbert", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))}
OTHERS = [
    *ROOT.glob("*.py"),
    *(path for folder in ("ablations", "benchmarks", "data") for path in (ROOT / folder).rglob("*.py")),
]


def floor(module: str) -> int:
    parts = module.split(".")
    found = [FLOOR_OF[name] for end in range(len(parts), 1, -1) if (name := ".".join(parts[:end])) in FLOOR_OF]
    assert found, f"{module} has no floor: give it one in FLOORS"
    return found[0]


def imports(module: str) -> set[str]:
    """Modules of this project that a file names, at its head or later; those for type checkers alone do not count."""
    tree, found = ast.parse(FILES[module].read_text(encoding="utf-8")), set()
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    skipped = {id(node) for block in blocks for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: relative import"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in FILES else str(node.module) for name in whole}
    return {name for name in found if name in FILES} - {module} - DOORS


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """What each file imports."""
    return {module: imports(module) for module in FILES.keys() - DOORS}


def test_a_file_imports_only_from_lower_floors(graph: dict[str, set[str]]) -> None:
    assert FLOOR_OF.keys() <= FILES.keys(), "a floor of a file that is gone"
    pairs = {(module, name) for module, names in graph.items() for name in names}
    assert not {(module, name) for module, name in pairs if floor(name) > floor(module)}


def test_minbert_never_imports_tasks() -> None:
    code = {module: path.read_text(encoding="utf-8") for module, path in FILES.items() if module.startswith("minbert")}
    assert not {module for module, text in code.items() if re.search(r"^\s*(from|import) tasks\b", text, re.MULTILINE)}


def test_there_are_no_circles(graph: dict[str, set[str]]) -> None:
    TopologicalSorter(graph).prepare()  # raises CycleError


def compared(module: str) -> set[object]:
    """The constants that a file compares with an objective, a task or a name of one."""
    pairs: list[tuple[ast.AST, ast.AST]] = []
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs += [(one, other) for one in sides for other in sides if one is not other]
        elif isinstance(node, ast.Match):
            pairs += [(node.subject, case.pattern) for case in node.cases]
    about = [other for one, other in pairs if re.search(r"\b(objective|task)('\]|\.name)?$", ast.unparse(one))]
    return {part.value for other in about for part in ast.walk(other) if isinstance(part, ast.Constant)}


def test_nothing_outside_its_file_names_an_objective_or_a_task(graph: dict[str, set[str]]) -> None:
    """A table names their files, and nobody asks which one it has."""
    homes = {name: kind.__module__ for name, kind in TASKS.items()}
    homes |= {name: place.partition(":")[0] for name, place in contrastive_settings.OBJECTIVES.items()}
    for module in graph.keys() - set(homes.values()):
        assert not compared(module) & homes.keys(), module
        assert not graph[module] & set(homes.values()), module


UNPICKLES = re.compile(
    r"\btorch\.(load|save)\(|\bimport (pickle|dill|joblib|shelve|marshal)\b|\bfrom (pickle|dill|joblib) "
    r"|allow_pickle=True"
)


def test_pickles_are_opened_by_the_convert_command_alone() -> None:
    paths = {*FILES.values(), *OTHERS}
    assert {path for path in paths if UNPICKLES.search(path.read_text(encoding="utf-8"))} == {FILES["minbert.convert"]}
    code = FILES["minbert.convert"].read_text(encoding="utf-8")
    assert code.count("weights_only=True") == len(re.findall(r"\btorch\.load\(", code)) == 1


def test_the_public_names_are_there() -> None:
    """Scripts outside this project rely on them."""
    assert {"AdamW", "BertConfig", "BertModel", "Encoder", "Ragged"} <= set(minbert.__all__) <= set(dir(minbert))
    assert all(getattr(minbert, name).__module__.startswith("minbert.") for name in minbert.__all__)
    arguments = [*inspect.signature(minbert.AdamW).parameters]
    assert {"params", "lr", "betas", "eps", "weight_decay", "correct_bias"} <= {*arguments}
    assert [*inspect.signature(minbert.BertModel.forward).parameters][:3] == ["self", "input_ids", "attention_mask"]
    assert list(TASKS) == ["sst", "quora", "sts"]
    names = [*inspect.signature(losses.nt_xent).parameters], [*inspect.signature(curriculum.difficulty).parameters]
    assert [found[:3] for found in names] == [["anchor", "positive", "hard_negative"], ["pos_sim", "neg_sim", "margin"]]
    assert [*inspect.signature(curriculum.eligible).parameters][:4] == ["epoch", "epochs", "size", "power"]
