"""Guards: a command that only prints its help or a list waits for none of the libraries that take seconds to import.

python -m pytest --import-mode=importlib tests/test_imports.py
"""

import re
import subprocess
import sys
from pathlib import Path

from minbert.training.settings import flags_of
from tasks import settings as multitask
from tasks.contrastive import settings as contrastive

ROOT = Path(__file__).parent.parent
SCRIPTS = {
    "./multitask_train.py": (multitask.MultitaskSettings, multitask.PRESETS),
    "./pretrain_cbcl.py": (contrastive.ContrastiveSettings, contrastive.PRESETS),
}
OTHERS = " ".join(f"tasks.contrastive.{name}" for name in ("consert", "simcse", "nli", "texts"))
"""Files of objectives that neither script has by default."""
# A command, the modules that it must not import, and what it prints.
COMMANDS = [
    ("data/get_data.py --help", "torch numpy pandas pooch requests tasks.data.fetch", ["senteval", "chinese", "check"]),
    ("tasks.benchmarks.sts_suite --help", "torch pandas", ["--pooler"]),
    ("tasks.benchmarks.transfer --help", "torch pandas", ["--folds"]),
    ("tasks.benchmarks.probes --help", "torch pandas", ["--probes"]),
    ("tasks.predict --help", "torch", ["--task"]),
    ("tasks.predictions --help", "torch", ["submit"]),
    ("ablations/run.py list", "torch", ["\nnumber-of-marks: ", "    --model roberta-base: EdaCSE, Table 10"]),
    *(
        (f"{script} {flag}", f"torch transformers pandas sklearn scipy {OTHERS}", words)
        for script, (kind, presets) in SCRIPTS.items()
        for flag, words in {
            "--help": ["--epochs"],
            "--help-all": [f"--{name.replace('_', '-')}" for name in flags_of(kind.kind({}))],
            "--list-presets": [*presets],
        }.items()
    ),
]
CHILDREN = """
import os, runpy, sys
for line in sys.stdin.read().splitlines():
    command, heavy = line.split("\\t")
    sys.stdout.flush()
    if not os.fork():
        name, *sys.argv[1:] = command.split()
        try:
            (runpy.run_path if "/" in name else runpy.run_module)(name, run_name="__main__")
        except SystemExit as stop:
            assert not stop.code
        print("\\nIMPORTED", *(sys.modules.keys() & {*heavy.split()}), flush=True)
        os._exit(0)
    os.wait()
"""


def test_help_and_lists_wait_for_no_heavy_library() -> None:
    lines = "".join(f"{command}\t{heavy}\n" for command, heavy, _ in COMMANDS)
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN], input=lines, capture_output=True, text=True, cwd=ROOT, timeout=100
    )
    *parts, end = re.split(r"^IMPORTED(.*)\n", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 2 * len(COMMANDS) and not end, done.stdout[-200:] + done.stderr
    for (command, _, words), shown, imported in zip(COMMANDS, parts[::2], parts[1::2], strict=True):
        assert not imported, command
        assert all(word in shown for word in words), command
