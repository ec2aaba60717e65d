"""The console commands that an installation brings, all through this module (`[project.scripts]` in pyproject.toml)."""

import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from minbert.training import cli

_MODULES = {
    "minbert-pretrain": "pretrain_cbcl",
    "minbert-train": "multitask_train",
    "minbert-predict": "tasks.predict",
    "minbert-report": "tasks.report.__main__",
    "minbert-ablate": "ablations.run",
    "minbert-suite": "",
}
_SUITES = {name: f"tasks.benchmarks.{name}" for name in ("sts_suite", "transfer", "probes")}


def main() -> NoReturn:
    """Run the command whose name this process was started under, and exit."""
    cli.run(_run)


def _run() -> None:
    module = _MODULES[Path(sys.argv[0]).stem] or _suite()
    import_module(module).main()


def _suite() -> str:
    """The module of the suite that is named first on the command line."""
    about, more = "Run a suite of measurements on encoders.", "minbert-suite NAME --help lists the flags of a suite."
    parser = cli.Parser(prog="minbert-suite", description=about, epilog=more)
    parser.add_argument("suite", choices=_SUITES, metavar="NAME", help=", ".join(_SUITES))
    name = parser.parse_args(sys.argv[1:2]).suite
    sys.argv[:2] = [" ".join(sys.argv[:2])]  # as the name of its parser
    return _SUITES[name]
