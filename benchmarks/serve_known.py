"""Does ``bench serve`` see what a server does? A server whose latencies and capacity are known.

    python benchmarks/serve_known.py [--requests 400] [--closed-only] [--json serve.json]

The server runs on the loopback, in a process of its own. It answers ``SLOTS`` requests at a time:
the first text after ``FIRST_MS``, then a chunk every ``GAP_MS``; the others wait in a queue. It
keeps a log of when each request arrived at its socket (by the kernel: the server itself may wait
for a CPU, and that is its latency), and of when each chunk went out. First, percentiles of a closed
load against that log; then a sweep and a ramp, whose knee must lie below the capacity (slots over
the time of an answer) and not far below half of it. The load of the machine is told with it, and
how late the client was (``generator lag``).
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pinchpoint.bench.serve.connection import Connection, Stamped, stamping

SLOTS, FIRST_MS, GAP_MS, CHUNKS = 4, 60.0, 10.0, 8
CAPACITY_PER_S = SLOTS / ((FIRST_MS + (CHUNKS - 1) * GAP_MS) / 1e3)


async def answer(connection: Connection, places: asyncio.Semaphore) -> None:
    """One request: read, wait for a slot, stream. Its times go to standard output."""
    read = await connection.read()
    head, _, body = read.data.partition(b"\r\n\r\n")
    missing = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) - len(body)
    while missing > 0:
        read = await connection.read()
        missing -= len(read.data)
    times = [read.arrived_ns]
    async with places:
        await connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for i in range(CHUNKS):
            await asyncio.sleep((GAP_MS if i else FIRST_MS) / 1e3)
            event = json.dumps({"choices": [{"text": f"w{i}"}]})
            times.append(time.perf_counter_ns())
            await connection.send(f"data: {event}\n\n".encode())
    await connection.send(b"data: [DONE]\n\n")
    connection.close()
    print(json.dumps(times), flush=True)


async def serve() -> None:
    """Until it is killed; the first line of the output is the port."""
    places, loop, running = asyncio.Semaphore(SLOTS), asyncio.get_running_loop(), set()
    with stamping(socket.create_server(("127.0.0.1", 0), backlog=1024)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            one, _ = await loop.sock_accept(listening)
            task = asyncio.create_task(answer(Stamped(one), places))
            running.add(task)
            task.add_done_callback(running.discard)


def bench(port: int, folder: Path, *options: str) -> dict[str, object]:
    """``pinchpoint bench serve`` as a user calls it."""
    url = f"http://127.0.0.1:{port}/v1/completions"
    command = [sys.executable, "-m", "pinchpoint", "bench", "serve", url, "--json", *options]
    done = subprocess.run([*command, "-o", str(folder)], capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def compared(
    run: dict[str, dict[str, dict[str, float]]], log: list[list[float]]
) -> dict[str, float]:
    """What the client says over what the server's log says, less 1."""
    times = np.array(log) / 1e6
    ours = {"ttft": times[:, 1] - times[:, 0], "e2e": times[:, -1] - times[:, 0]}
    off = {}
    for kind, values in ours.items():
        for name, q in (("median", 50), ("p95", 95), ("p99", 99)):
            off[f"{kind} {name}"] = (
                run["latency_ms"][kind][name] / float(np.percentile(values, q)) - 1
            )
    return off


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--closed-only", action="store_true", help="no sweep and no ramp")
    parser.add_argument("--serve", action="store_true", help="be the server")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    command = [sys.executable, __file__, "--serve"]
    with (
        tempfile.TemporaryDirectory() as parent,
        (Path(parent) / "log").open("w+") as log,
        subprocess.Popen(command, stdout=log) as server,
    ):
        try:
            found = measured(Path(parent), str(options.requests), knees=not options.closed_only)
        finally:
            server.terminate()
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def measured(folder: Path, requests: str, *, knees: bool) -> dict[str, object]:
    """Latency against the log, then where it saturates."""
    log = folder / "log"
    while not log.read_text().endswith("\n"):
        time.sleep(0.05)
    port = int(log.read_text().splitlines()[0])
    before = os.getloadavg()[0]
    many = ("-n", requests, "--num-warmups", "0")
    closed = bench(port, folder / "closed", "--runs", "1", "--max-concurrency", str(SLOTS), *many)
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    load = (before, os.getloadavg()[0])
    off = compared(closed["runs"][0], lines)  # type: ignore[index]
    counters = closed["runs"][0]["counters"]  # type: ignore[index]
    found = {
        "load": load,
        "client over log, less 1": off,
        "generator lag, p95 ms": counters["generator_lag_p95_ms"],
        "first texts read with later ones": counters["first_texts_with_later_ratio"],
    }
    return found | (saturating(port, folder, many) if knees else {})


def saturating(port: int, folder: Path, many: tuple[str, ...]) -> dict[str, object]:
    """The knee, by a sweep and by a ramp."""
    rates = ",".join(f"{CAPACITY_PER_S * share:.3g}" for share in (0.25, 0.5, 0.7, 0.85, 1.2, 1.6))
    sweep = bench(port, folder / "sweep", "--sweep", rates, *many)
    ramp = bench(port, folder / "ramp", "--ramp", f"1:{2 * CAPACITY_PER_S:.3g}", *many)
    kinds = (("sweep", sweep), ("ramp", ramp))
    knees = {kind: (found["knee_per_s"], found["beyond_per_s"]) for kind, found in kinds}
    points: list[dict[str, object]] = sweep["points"]  # type: ignore[assignment]
    said = {f"{p['rate_per_s']:.3g}": p["why"] or "below the knee" for p in points}
    return {"capacity_per_s": CAPACITY_PER_S, "knee and beyond, per s": knees, "sweep": said}


if __name__ == "__main__":
    main()
