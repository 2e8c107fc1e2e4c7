"""Whether ``pinchpoint serve`` stays as large as it was under load.

./run bench serve_load [--connections 1000] [--rate 100] [--minutes 10] [FOLDER]

Opens connections that say nothing and keeps them, then asks for the list and for reports of the
folder in turn, so many times a second, over other connections, several at once: where both sides
wait for a core, one request at a time asks less often than it should. Prints answers by their
status, the server's memory in each tenth of the time, and what a request took of a core on either
side; exits with 1 where an answer was no 200, where a connection was lost, or where the last tenth
is more than 20 MB above the second (each page is asked for once before).
"""

import argparse
import http.client
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

PARTS = 10
WORKERS = (
    16  # requests at once: on a full machine one took up to 100 ms, and a hundred a second come
)
MOST_GROWTH_BYTES = 20 << 20  # a page of a report takes a few; what grows by more grows on
SPARE_FILES = 100  # of this process
PAGE_BYTES = resource.getpagesize()
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Load:
    """What came of it."""

    answers: Counter[str] = field(default_factory=Counter)
    memory_bytes: list[int] = field(default_factory=list)  # at the end of each part
    lost: int = 0  # silent connections that were closed
    late_s: float = 0.0  # by how much the last request was asked later than its time

    @property
    def growth_bytes(self) -> int:
        """From the second part to the last."""
        return self.memory_bytes[-1] - self.memory_bytes[1]


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """A server of the folder in a process of its own: its port and its process id."""
    words = [sys.executable, "-m", "pinchpoint", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        if found is None:
            raise SystemExit(f"serve said: {said}")
        yield int(found[1]), process.pid
    finally:
        process.terminate()
        process.communicate()


def load(port: int, pid: int, connections: int, requests: int, rate: float | None) -> Load:
    """So many requests beside so many silent connections; ``rate`` a second, None: as they come."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found = Load()
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    asking = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(WORKERS)]
    try:
        addresses = list(links(asking[0]))
        for address in addresses:  # a page is made when it is asked for first
            ask(asking[0], address)
        began, counting = time.monotonic(), Lock()

        def work(worker: int) -> None:
            for number in range(worker, requests, WORKERS):
                if rate is not None:
                    time.sleep(max(0.0, began + number / rate - time.monotonic()))
                    found.late_s = max(0.0, time.monotonic() - began - number / rate)
                said = ask(asking[worker], addresses[number % len(addresses)])
                with counting:
                    found.answers[said] += 1
                    if found.answers.total() % max(1, requests // PARTS) == 0:
                        found.memory_bytes.append(memory_of(pid))

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(work, range(WORKERS)))
        for each in silent:
            each.setblocking(False)
            found.lost += closed(each)
    finally:
        for each in silent:
            each.close()
        for one in asking:
            one.close()
    return found


def links(connection: http.client.HTTPConnection) -> Iterator[str]:
    """The list, and what it links to."""
    connection.request("GET", "/")
    text = connection.getresponse().read().decode()
    yield "/"
    yield from sorted(set(re.findall(r'href="(/[^"#]+)"', text)))


def ask(connection: http.client.HTTPConnection, address: str) -> str:
    """The status of an answer that was read whole; a connection that was closed is opened again."""
    for _ in range(2):
        try:
            connection.request("GET", address)
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            connection.close()  # uvicorn ends those that were idle for five seconds
    return "none"


def closed(connection: socket.socket) -> bool:
    """Whether the other side ended it."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def memory_of(pid: int) -> int:
    """Resident bytes of a process (Linux)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def cpu_s(pid: int) -> float:
    """Time of a process on cores (Linux)."""
    spent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, spent)) / TICKS_PER_S


def main() -> int:
    """Load, print, judge."""
    options = argparse.ArgumentParser()
    options.add_argument("--connections", type=int, default=1000)
    options.add_argument("--rate", type=float, default=100.0)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("folder", type=Path, nargs="?", default=Path("tests/data/kineto"))
    chosen = options.parse_args()
    requests = int(chosen.rate * chosen.minutes * 60)
    with served(chosen.folder) as (port, pid):
        began, server, client = time.monotonic(), cpu_s(pid), cpu_s(os.getpid())
        found = load(port, pid, chosen.connections, requests, chosen.rate)
        took_s = time.monotonic() - began
        server, client = cpu_s(pid) - server, cpu_s(os.getpid()) - client
    parts = " ".join(f"{size / 1e6:.0f}" for size in found.memory_bytes)
    print(f"{chosen.connections:,} silent connections, {found.lost} of them lost")
    print(f"{requests:,} requests in {took_s:.0f} s ({requests / took_s:.0f}/s): {found.answers}")
    print(f"memory in MB: {parts}")
    print(
        f"a request took {1000 * server / requests:.2f} ms of a core in the server and "
        f"{1000 * client / requests:.2f} here; the last was asked {found.late_s:.2f} s late"
    )
    bad = set(found.answers) != {"200"} or found.lost or found.growth_bytes > MOST_GROWTH_BYTES
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
