"""Guards: the house's floors: who may import whom, how long functions are, where pickle may be.

python -m pytest --import-mode=importlib tests/test_house.py
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A file imports only from lower floors, or from its own.
FLOORS = {
    "minbert.errors": 0, "minbert.files": 0, "minbert.seeds": 0, "minbert.config": 0, "minbert.ragged": 0,
    "minbert.precision": 0,
    "minbert.attention": 1, "minbert.layers": 1, "minbert.pooling": 1, "minbert.tokenizer": 1,
    "minbert.cache": 1, "minbert.token_cache": 2, "minbert.optimizer": 1, "minbert.weights": 1,
    "minbert.cpu": 2, "minbert.bert": 2,
    "minbert.encode": 3,
    "minbert.training": 4,
    "minbert.convert": 5,
    "tasks.charts": 5, "tasks.examples": 5, "tasks.metrics": 5, "tasks.readers": 5, "tasks.intervals": 6,
    "tasks.augment": 6, "tasks.task": 6,
    "tasks.sst": 7, "tasks.quora": 7, "tasks.sts": 7, "tasks.schedule": 7, "tasks.contrastive": 7,
    "tasks.registry": 8, "tasks.model": 8, "tasks.settings": 8,
    "tasks.record": 9, "tasks.compare": 9,
    "tasks.submission": 9, "tasks.evaluate": 9, "tasks.predictions": 9, "tasks.predict": 9,
    "tasks.benchmarks": 10, "tasks.report": 10,
}  # fmt: skip
# Import what is asked of them, lazily, and are imported by name only.
DOORS = {"minbert", "tasks"}
# Command lines that hand over to a higher floor when they are run, and not before.
LATE = {("minbert.weights", "minbert.convert")}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for folder in ("minbert", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))}
SCRIPTS = sorted(ROOT.glob("*.py"))
OTHERS = [
    path for folder in ("tests", "benchmarks", "ablations", "data") for path in sorted((ROOT / folder).rglob("*.py"))
]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (*FILES.values(), *SCRIPTS, *OTHERS)}


def floor(module: str) -> int:
    parts = module.split(".")
    known = [".".join(parts[:count]) for count in range(len(parts), 1, -1)]
    found = [FLOORS[name] for name in known if name in FLOORS]
    assert found, f"{module} has no floor: give it one in FLOORS"
    return found[0]


def imports(module: str) -> set[str]:
    """Modules of this project that a file names, at its head or later; those for type checkers alone do not count."""
    tree, found = TREES[FILES[module]], set()
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
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


@pytest.mark.parametrize("module", sorted(FILES.keys() - DOORS))
def test_a_file_imports_only_from_lower_floors(module: str) -> None:
    higher = {name for name in imports(module) if floor(name) > floor(module) and (module, name) not in LATE}
    assert not higher, f"{module} is on floor {floor(module)}"


@pytest.mark.parametrize("module", sorted(name for name in FILES if name.startswith("minbert")))
def test_minbert_never_imports_tasks(module: str) -> None:
    assert not {name for name in imports(module) if name.startswith("tasks")}
    assert not re.search(r"^\s*(from|import) tasks\b", FILES[module].read_text(encoding="utf-8"), re.MULTILINE)


def test_there_are_no_circles() -> None:
    graph = {
        module: {name for name in imports(module) if (module, name) not in LATE} for module in FILES.keys() - DOORS
    }
    while graph:
        free = {module for module, needed in graph.items() if not needed & graph.keys()}
        assert free, f"these import each other: {sorted(graph)}"
        graph = {module: needed for module, needed in graph.items() if module not in free}


def test_report_and_suites_do_not_import_each_other() -> None:
    for room, other in (("tasks.report", "tasks.benchmarks"), ("tasks.benchmarks", "tasks.report")):
        found = {name for module in FILES if module.startswith(room) for name in imports(module)}
        assert not {name for name in found if name.startswith(other)}


def test_every_floor_of_the_table_is_a_file_or_a_room() -> None:
    assert FLOORS.keys() <= FILES.keys()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_starts_with_its_commands(path: Path) -> None:
    assert f"python {path.name}" in (ast.get_docstring(TREES[path]) or "")


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[tuple[Function, bool]]:
    """Every function of a file, and whether it is public: nothing around it is private or a function."""

    def walk(node: ast.AST, public: bool) -> Iterator[tuple[Function, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                special = child.name.startswith("__") and child.name.endswith("__")
                yield child, public and (special or not child.name.startswith("_"))
                yield from walk(child, False)
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, public and not child.name.startswith("_"))
            else:
                yield from walk(child, public)

    return walk(TREES[path], True)


@pytest.mark.parametrize(
    "path",
    sorted(path for path in TREES if "tests" not in path.relative_to(ROOT).parts),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_function_is_over_60_lines(path: Path) -> None:
    long = {node.name: node.end_lineno - node.lineno + 1 for node, _ in functions(path) if node.end_lineno}
    assert not {name: lines for name, lines in long.items() if lines > 60}


@pytest.mark.parametrize("module", sorted(FILES))
def test_every_function_is_annotated_and_every_public_one_has_a_docstring(module: str) -> None:
    path = FILES[module]
    assert ast.get_docstring(TREES[path]), f"{module} has no docstring"
    for node, public in functions(path):
        where = f"{path.name}:{node.lineno} {node.name}"
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        arguments = [one for one in every if one]
        bare = [one.arg for one in arguments if one.annotation is None and one.arg not in ("self", "cls")]
        assert not bare, f"{where}: {bare} not annotated"
        assert node.returns is not None, f"{where}: no return annotation"
        torchs = bool(arguments) and arguments[0].arg == "ctx"  # the interface of torch.autograd.Function
        if public and not torchs and not node.name.startswith("__"):
            assert ast.get_docstring(node), f"{where}: no docstring"
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.name}:{node.lineno} {node.name}: no docstring"


UNPICKLES = re.compile(
    r"\btorch\.(load|save)\(|\bimport (pickle|dill|joblib|shelve|marshal)\b|\bfrom (pickle|dill|joblib) "
    r"|allow_pickle=True"
)


@pytest.mark.parametrize(
    "path", sorted(path for path in TREES if "tests" not in path.relative_to(ROOT).parts), ids=lambda path: path.name
)
def test_pickles_are_opened_by_the_convert_command_alone(path: Path) -> None:
    code = path.read_text(encoding="utf-8")
    if path == FILES["minbert.convert"]:
        assert code.count("weights_only=True") == len(re.findall(r"\btorch\.load\(", code)) == 1
    else:
        assert not UNPICKLES.search(code)


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=lambda path: path.name)
def test_a_test_file_says_what_it_guards_and_its_command(path: Path) -> None:
    text = ast.get_docstring(TREES[path]) or ""
    assert text.startswith("Guards")
    assert str(path.relative_to(ROOT)) in text
    assert "python -m pytest" in text
