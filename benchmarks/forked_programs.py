"""Fresh processes without a fresh start: programs are forked from one that has imported already.

A client (``CLIENT``, run as ``python -S -c CLIENT SOCKET CODE ARG…``) hands its environment and
arguments to the server and ends with the exit code of the forked process.
"""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pinchpoint.inside import SITE

CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    asked = {"code": sys.argv[2], "argv": sys.argv[3:], "env": dict(os.environ)}
    server.sendall(json.dumps(asked).encode() + bytes([10]))
    answer = b""
    while not answer.endswith(bytes([10])):
        part = server.recv(4096)
        if not part:
            sys.exit(9)
        answer += part
said = json.loads(answer)
sys.stderr.write(said["error"])
sys.exit(said["exit_code"])
"""


@contextmanager
def forking_server(imports: str) -> Iterator[Path]:
    """A process that has run ``imports`` and forks on request; gives the path of its socket."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        env = dict(os.environ) | {
            "PYTHONPATH": os.pathsep.join([SITE, *sys.path]),
            "PINCHPOINT_STEP_FOLDER": "",
        }
        server = subprocess.Popen(
            [sys.executable, __file__, str(path), imports], env=env, stdout=subprocess.PIPE
        )
        try:
            if server.stdout is None or server.stdout.readline() != b"ready\n":
                raise SystemExit("the process to fork from did not start")
            yield path
        finally:
            server.terminate()
            server.wait()


def serve(path: str, imports: str) -> None:
    """Fork once for each connection, one after the other."""
    exec(imports, {})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            client, _ = listener.accept()
            with client:
                asked = json.loads(client.makefile("rb").readline())
                client.sendall(json.dumps(_forked(asked)).encode() + b"\n")


def _forked(asked: dict[str, object]) -> dict[str, object]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os._exit(_run(asked, write))
    os.close(write)
    with os.fdopen(read, "rb") as errors:
        said = errors.read().decode("utf-8", "replace")
    return {"exit_code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "error": said}


def _run(asked: dict[str, object], errors: int) -> int:
    """In the child: the program, and what Python does when it ends."""
    from pinchpoint.inside import step_recorder

    os.environ.clear()
    os.environ.update(asked["env"])  # type: ignore[call-overload]
    sys.argv = ["-c", *asked["argv"]]  # type: ignore[misc]
    try:
        step_recorder.start()
        exec(compile(str(asked["code"]), "<program>", "exec"), {"__name__": "__main__"})
        atexit._run_exitfuncs()
    except BaseException as error:
        os.write(errors, f"{type(error).__name__}: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    serve(*sys.argv[1:])
