"""A process that has torch imported and forks a child for each run of a script: real processes, at a tenth of the cost.

Requests come as lines of JSON on stdin, answers go as lines of JSON to stdout. A request may ask for a signal in a step
of the plan, or for a kill before the n-th change of a file.
"""

import json
import os
import runpy
import signal
import sys
import time
import traceback
from itertools import count
from pathlib import Path
from typing import Any

import sklearn.metrics  # noqa: F401
import tokenizers  # noqa: F401
import torch.fx.experimental.symbolic_shapes  # noqa: F401  (torch imports it, and sympy, for an empty tensor)

import minbert.train.start  # noqa: F401
import tasks.contrastive.fit
import tasks.registry  # noqa: F401
from minbert.train import cli, loop, run

LIMIT = 100  # seconds after which a run that hangs is ended
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")  # audit events, besides a file that is opened for writing


def send_in_step(number: int, step: int) -> None:
    """Send this process a signal when `step` steps are done, and in the next one the learning rate is set."""
    lr_factor = loop.lr_factor

    def signalled(schedule: Any, at: int, *rest: Any) -> float:
        if at == step:
            os.kill(os.getpid(), number)
        return lr_factor(schedule, at, *rest)

    loop.lr_factor = signalled


def kill_before_change(limit: int) -> "count[int]":
    """Kill this process before its change of a file number `limit`, from 0; returns the counter of changes.

    What a run leaves differs only between changes, so these are all moments at which a kill can matter.
    """
    changes = count()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and next(changes) == limit:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    return changes


def come_late() -> None:
    """Look at the run folder a little after the other ranks: none of them may have begun to write by then."""
    check = run.RunFolder.check

    def late(self: run.RunFolder, *arguments: Any) -> None:
        time.sleep(0.2)
        check(self, *arguments)

    run.RunFolder.check = late  # type: ignore[method-assign]


def child(request: dict[str, Any], rank: int) -> None:
    """Run the script of a request; never returns."""
    code = 1
    changes = None
    try:
        signal.alarm(LIMIT)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{request[name]}{rank or ''}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        if request["unread"]:  # standard output is a pipe whose reader has gone
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(request["cwd"])
        os.environ.update(request["env"], RANK=str(rank), LOCAL_RANK=str(rank))
        sys.argv = request["argv"]
        sys.orig_argv = [sys.executable, *sys.argv]
        if not request["report"]:
            cli.run_module = lambda *_: None
        if rank:
            come_late()
        elif request["signal"]:
            send_in_step(*request["signal"])
        elif request["kill"] is not None:
            changes = kill_before_change(request["kill"])
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    if changes is not None:
        Path(f"{request['out']}.changes").write_text(str(next(changes)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    """Answer requests until stdin closes. An exit code is negative where a signal ended the process."""
    for line in sys.stdin:
        request = json.loads(line)
        children = []
        for rank in range(int(request["env"].get("WORLD_SIZE", "1"))):
            process = os.fork()
            if not process:
                child(request, rank)
            children.append(process)
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in children]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    serve()
