"""A process that has torch imported and forks a child for each run of a script: real processes, at a tenth of the cost.

Requests come as lines of JSON on stdin, answers go as lines of JSON to stdout. A request may ask for a signal at a
step of the plan, before a row of the metrics, in the midst of writing a checkpoint, or while a finished run deletes
what it no longer needs; or, without a signal, for parameters that drift from those of the other ranks.
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

import minbert.train.start  # noqa: F401
import tasks.contrastive.step
import tasks.contrastive.training
import tasks.registry  # noqa: F401
from minbert.optimizer import AdamW
from minbert.train import checkpoint, cli, plan, run

LIMIT = 100  # seconds after which a run that hangs is ended


def arm(number: int, place: str, at: int) -> None:
    """Let this process send itself a signal when it comes to a place."""

    def here() -> None:
        os.kill(os.getpid(), number)

    if place == "step":  # when `at` steps are done and the next one begins
        find = plan.Plan.at

        def asked(self: plan.Plan, step: int) -> plan.PlannedBatch:
            if step == at and sys._getframe(1).f_code.co_name == "fit":  # the loop asks, not who looks ahead
                here()
            return find(self, step)

        plan.Plan.at = asked  # type: ignore[method-assign]
    elif place == "after row":  # the row of step `at` is logged, its checkpoint is not written
        log = run.RunFolder.log

        def logged(self: run.RunFolder, row: dict[str, Any]) -> None:
            log(self, row)
            if row["step"] >= at:
                here()

        run.RunFolder.log = logged  # type: ignore[method-assign]
    elif place == "drift":  # with update `at`, one number of this process's parameters becomes another
        update, updates = AdamW.step, count(1)

        def drifted(self: AdamW) -> None:
            update(self)
            if next(updates) == at:
                self.param_groups[0]["params"][0].data.view(-1)[0] += 1e-3

        AdamW.step = drifted  # type: ignore[method-assign]
    elif place == "in strip":  # a finished run has deleted `at` of the files that it no longer needs
        unlink, done = checkpoint.Path.unlink, count(1)

        def unlinked(self: Path, missing_ok: bool = False) -> None:
            unlink(self, missing_ok=missing_ok)
            if sys._getframe(1).f_code.co_name == "strip" and next(done) == at:
                here()

        checkpoint.Path.unlink = unlinked  # type: ignore[method-assign]
    else:  # the tensors of a checkpoint are written, its state is not
        write = checkpoint.write_json

        def written(path: Path, value: dict[str, Any]) -> None:
            if value["step"] >= at:
                here()
            write(path, value)

        checkpoint.write_json = written


def come_late() -> None:
    """Look at the run folder half a second after the other ranks: none of them may have begun to write by then."""
    inner = run.RunFolder.check

    def late(self: run.RunFolder, *given: Any) -> None:
        time.sleep(0.5)
        inner(self, *given)

    run.RunFolder.check = late  # type: ignore[method-assign]


def child(request: dict[str, Any], rank: int) -> None:
    """Run the script of a request; never returns."""
    code = 1
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
        if not request["report"]:
            cli.run_module = lambda *_: None
        if request["signal"] and not rank:
            arm(*request["signal"])
        if rank:
            come_late()
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
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
