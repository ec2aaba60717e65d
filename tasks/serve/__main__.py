"""Try finished runs in a browser: type sentences, and see classes, similarities and the nearest training rows.

python -m tasks.serve runs/multitask
python -m tasks.serve runs/cbcl runs/multitask --port 8000      # side by side
"""

import socket
from pathlib import Path

from minbert.errors import UserError
from minbert.training import cli


def main(arguments: list[str] | None = None) -> None:
    """Load the runs and serve the page on 127.0.0.1 until Ctrl-C."""
    parser = cli.Parser(prog="python -m tasks.serve", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="a finished run; several are shown together")
    parser.add_argument("--port", type=int, default=8017, metavar="N", help="port on 127.0.0.1 (default: 8017)")
    given = parser.parse_args(arguments)
    if not 0 < given.port < 1 << 16:
        raise UserError(f"--port: {given.port} is not from 1 to 65535")
    try:
        import uvicorn

        from tasks.serve import app
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; run `pip install fastapi uvicorn`") from error

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", given.port))
        except OSError as error:
            raise UserError(f"--port {given.port}: {error.strerror}") from error
        made = app.build(given.runs)
        cli.say(f"http://127.0.0.1:{given.port} (Ctrl-C ends it)")
        uvicorn.Server(uvicorn.Config(made, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    cli.run(main)
