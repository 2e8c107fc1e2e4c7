"""Does ``bench serve`` see what a server does? A server whose latencies and capacity are known.

    python benchmarks/serve_known.py [--requests 400] [--json serve.json]

The server runs on the loopback, in a process of its own. It answers ``SLOTS`` requests at a time:
the first text after ``FIRST_MS``, then a chunk every ``GAP_MS``; the others wait in a queue. It
keeps a log of when each request came in, and when each of its chunks went out. First, percentiles
of a closed load against that log; then a sweep and a ramp, whose knee must lie below the capacity
(slots over the time of an answer) and not far below half of it. On a busy machine client and server
wait for a CPU, and the client says how long (``generator lag``).
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SLOTS, FIRST_MS, GAP_MS, CHUNKS = 4, 60.0, 10.0, 8
CAPACITY_PER_S = SLOTS / ((FIRST_MS + (CHUNKS - 1) * GAP_MS) / 1e3)


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, places: asyncio.Semaphore
) -> None:
    """One request: read, wait for a slot, stream. Its times go to standard output."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    times = [time.perf_counter()]
    async with places:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        for i in range(CHUNKS):
            await asyncio.sleep((GAP_MS if i else FIRST_MS) / 1e3)
            event = json.dumps({"choices": [{"text": f"w{i}"}]})
            times.append(time.perf_counter())
            writer.write(f"data: {event}\n\n".encode())
            await writer.drain()
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()
    print(json.dumps(times), flush=True)


async def serve() -> None:
    """Until it is killed; the first line of the output is the port."""
    places = asyncio.Semaphore(SLOTS)
    server = await asyncio.start_server(lambda r, w: answer(r, w, places), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


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
    times = 1e3 * np.array(log)
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
            found = measured(Path(parent), str(options.requests))
        finally:
            server.terminate()
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def measured(folder: Path, requests: str) -> dict[str, object]:
    """Latency against the log, then where it saturates."""
    log = folder / "log"
    while not log.read_text().endswith("\n"):
        time.sleep(0.05)
    port = int(log.read_text().splitlines()[0])
    many = ("-n", requests, "--num-warmups", "0")
    closed = bench(port, folder / "closed", "--runs", "1", "--max-concurrency", str(SLOTS), *many)
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    off = compared(closed["runs"][0], lines)  # type: ignore[index]
    rates = ",".join(f"{CAPACITY_PER_S * share:.3g}" for share in (0.25, 0.5, 0.7, 0.85, 1.2, 1.6))
    sweep = bench(port, folder / "sweep", "--sweep", rates, *many)
    ramp = bench(port, folder / "ramp", "--ramp", f"1:{2 * CAPACITY_PER_S:.3g}", *many)
    knees = {"sweep": sweep["knee_per_s"], "ramp": ramp["knee_per_s"]}
    lag = closed["runs"][0]["counters"]["generator_lag_p95_ms"]  # type: ignore[index]
    return {
        "client over log, less 1": off,
        "generator lag, p95 ms": lag,
        "capacity_per_s": CAPACITY_PER_S,
        "knee_per_s": knees,
    }


if __name__ == "__main__":
    main()
