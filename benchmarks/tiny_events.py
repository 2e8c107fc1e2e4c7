"""What each reader needs of memory and CPU for files of the smallest events there are.

./run bench tiny_events [--mb 20] [FORMAT ...]

A file of each format is made of nothing but tiny events, the command that answers about it runs in
a process of its own, and its largest memory and its CPU are printed, also as a multiple of the
file. The bars: 10 times the file, or 300 MB where that is more, and 10 s at 20 MB.
"""

import argparse
import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

MEMORY_TIMES, FLOOR_BYTES, CPU_S_AT_20_MB = 10, 300 << 20, 10
MOST_NAMES = (1 << 17) - 2  # that a Perfetto trace may have, beside no name and no category
AT_NS = 1_700_000_000_000_000_000
Rows = Callable[[int], bytes]


def text(head: bytes, row: Rows, tail: bytes = b"") -> Callable[[Path, int], None]:
    """Writes a file of a head, as many rows as fit, and a tail."""

    def write(path: Path, size: int) -> None:
        left, number = size - len(head) - len(tail), 0
        with path.open("wb") as file:
            file.write(head)
            while left > 0:
                made = b"".join(map(row, range(number, number + 1000)))
                file.write(made)
                left, number = left - len(made), number + 1000
            file.seek(-1 if tail[:1] == b"]" else 0, os.SEEK_END)  # no comma before the end
            file.write(tail)

    return write


def varint(value: int) -> bytes:
    """A number as protocol buffers write it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """A message of numbers and texts."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def slice_of(number: int, name: bytes = b"a") -> bytes:
    """A begin and an end of Perfetto, each with what it must have and no more."""
    at = 10_000 + number * 10
    ends = []
    for time_ns, kind, more in ((at, 1, ((23, name),)), (at + 5, 2, ())):
        event = message((9, kind), (11, 10), *more)
        ends.append(message((1, message((8, time_ns), (10, 1), (11, event)))))
    return b"".join(ends)


def memory_row(number: int) -> bytes:
    """A block that comes, or the same one that goes."""
    kind, sign = (2, "-") if number % 2 else (1, "")
    return f"[{AT_NS + number // 2},{kind},{sign}512,{number // 2 % 4}],".encode()


def nsys(path: Path, size: int) -> None:
    """An export with kernels alone."""
    columns = "start, end, deviceId, streamId, correlationId, demangledName"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id, value)")
        connection.execute("INSERT INTO StringIds VALUES (0, 'k')")
        connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        rows = ((i * 10, i * 10 + 5, 0, 7, i % 99, 0) for i in range(size // 22))
        connection.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?)", rows)
    connection.close()


def snapshot(path: Path, size: int) -> None:
    """The allocator's history of one block that comes and goes, with one stack."""
    import pickle

    frames: list[object] = []
    base = {"stream": 0, "frames": frames}
    kinds = ("alloc", "free_requested", "free_completed")
    events = [
        base | {"action": kinds[i % 3], "addr": 1 << 40, "size": 512, "time_us": i}
        for i in range(size // 40)
    ]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, 4))


def xplane(path: Path, size: int) -> None:
    """One line of a host with events of one name."""
    many = b"".join(
        message((4, message((1, 1), (2, i * 1000), (3, 500)))) for i in range(size // 11)
    )
    line = message((1, 9), (2, b"python"), (3, 1000)) + many
    names = message((4, message((1, 1), (2, message((1, 1), (2, b"f"))))))
    path.write_bytes(message((1, message((2, b"/host:CPU"), (3, line)) + names)))


def zipped(path: Path, size: int) -> None:
    """A trace of PyTorch's in gzip, whose size unpacked is meant: what is refused is not read."""
    plain = path.with_suffix(".plain")
    MAKERS["kineto"][2](plain, size)
    path.write_bytes(gzip.compress(plain.read_bytes(), 1))
    plain.unlink()


def each(form: str) -> Rows:
    """Rows that differ in a number."""
    return lambda i: (form % {"i": i, "at": 1000 + i * 10, "end": 1005 + i * 10}).encode()


ROCPROF = (
    b'"Kind","Agent_Id","Queue_Id","Kernel_Name","Correlation_Id","Start_Timestamp",'
    b'"End_Timestamp"\n'
)
ASCEND = b"Device_id,Stream ID,Name,Type,Start Time(us),Duration(us)\n"
STAMPS = '"start_timestamp":%(at)d,"end_timestamp":%(end)d,"thread_id":7'
CALL = '{"kind":0,"operation":0,' + STAMPS + ',"correlation_id":{"internal":%(i)d}},'
CALLS = (
    b'{"rocprofiler-sdk-tool":[{"strings":{"buffer_records":[{"operations":["a"]}]},'
    b'"buffer_records":{"hip_api":['
)
PAGE = (
    b'"ID","Process ID","Process Name","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
)
EVENT = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":%(at)d,"dur":5},'
KERNEL = '{"ph":"X","cat":"kernel","name":"a","pid":0,"tid":7,"ts":%(at)d,"dur":5,"args":{}},'
JAX = '{"ph":"X","pid":1,"tid":1,"ts":%(at)d,"dur":5,"name":"a"},'
LANES = (
    b'{"traceEvents":[{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},'
    b'{"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"Stream #1"}},'
)
TRACK = message((1, message((60, message((1, 10), (2, b"t"))), (10, 1))))
# Of each format: name of the file, the command, and what writes it.
MAKERS: dict[str, tuple[str, str, Callable[[Path, int], None]]] = {
    "kineto": ("t.json", "diagnose", text(b'{"traceEvents":[', each(EVENT), b"]}")),
    "kineto kernels": ("k.json", "diagnose", text(b'{"traceEvents":[', each(KERNEL), b"]}")),
    "kineto gz": ("t.json.gz", "diagnose", zipped),
    "jax": (
        *("j.trace.json", "diagnose"),
        text(LANES, each(JAX), b"]}"),
    ),
    "perfetto": ("t.pftrace", "diagnose", text(TRACK, slice_of)),
    # A name of its own for each event.
    "kineto names": (
        *("t.json", "diagnose"),
        text(b'{"traceEvents":[', each(EVENT.replace('"a"', '"a%(i)d"')), b"]}"),
    ),
    "kernel names": (
        *("k.json", "diagnose"),
        text(b'{"traceEvents":[', each(KERNEL.replace('"a"', '"a%(i)d"')), b"]}"),
    ),
    "jax names": (
        *("j.trace.json", "diagnose"),
        text(LANES, each(JAX.replace('"a"', '"a%(i)d"')), b"]}"),
    ),
    "perfetto names": (
        *("t.pftrace", "diagnose"),
        text(TRACK, lambda i: slice_of(i, b"n%d" % (i % MOST_NAMES))),
    ),
    "perfetto more names": (
        *("t.pftrace", "diagnose"),
        text(TRACK, lambda i: slice_of(i, b"n%d" % i)),
    ),
    "rocprofv3": ("r.json", "diagnose", text(CALLS, each(CALL), b"]}}]}")),
    "rocprofv3 csv": (
        *("r.csv", "diagnose"),
        text(ROCPROF, each('"K",0,1,"a",%(i)d,%(at)d,%(end)d\n')),
    ),
    "ascend table": ("a.csv", "diagnose", text(ASCEND, each("0,1,a,b,%(at)d.5,1.5\n"))),
    "memory timeline": ("m.raw.json", "memory", text(b"[[-1,1,1000,0],", memory_row, b"]")),
    "snapshot": ("m.pickle", "memory", snapshot),
    "nsys": ("n.sqlite", "diagnose", nsys),
    "nsys CSV": (
        *("n.csv", "diagnose"),
        text(b"Start (ns),Duration (ns),CorrId,Strm,Name\n", each("%(at)d,5,%(i)d,7,a\n")),
    ),
    "ncu CSV": ("c.csv", "diagnose", text(PAGE, each('"%(i)d","1","p","a","m","ns","1"\n'))),
    "xplane": ("x.xplane.pb", "diagnose", xplane),
    "dcgm": ("d.prom", "diagnose", text(b"", each('DCGM_FI_DEV_SM_CLOCK{gpu="0"} %(i)d\n'))),
    "telemetry": (
        *("t.csv", "diagnose"),
        text(b"unix_ns,device,power_w\n", each("1700000000%(i)09d,0,1\n")),
    ),
    "nvidia-smi CSV": (
        *("s.csv", "diagnose"),
        text(
            b"timestamp, index, power.draw [W]\n",
            lambda i: (
                b"2026/11/27 %02d:%02d:%02d.%03d, 0, 1 W\n"
                % (i // 3600000 % 24, i // 60000 % 60, i // 1000 % 60, i % 1000)
            ),
        ),
    ),
    "dmon": (
        *("d.log", "diagnose"),
        text(b"# gpu   pwr\n# Idx     W\n", lambda i: b"    0    %d\n" % (i % 700)),
    ),
}


def main() -> int:
    """Print a line a format; 1 where a bar is missed."""
    options = argparse.ArgumentParser()
    options.add_argument("--mb", type=float, default=20.0)
    options.add_argument("formats", nargs="*")
    chosen = options.parse_args()
    size, missed = int(chosen.mb * 1e6), 0
    print(f"{'format':16} {'file MB':>8} {'peak MB':>8} {'times':>6} {'CPU s':>6} {'code':>4}")
    with tempfile.TemporaryDirectory(prefix="pinchpoint-tiny-") as folder:
        for name in chosen.formats or MAKERS:
            file, command, write = MAKERS[name]
            path = Path(folder) / file
            write(path, size)
            code, peak, cpu_s, said = measured([command, str(path)])
            over = peak > max(FLOOR_BYTES, MEMORY_TIMES * path.stat().st_size)
            slow = cpu_s > CPU_S_AT_20_MB * max(1.0, chosen.mb / 20)
            missed += over or slow or code not in (0, 2)
            print(
                f"{name:16} {path.stat().st_size / 1e6:8.1f} {peak / 1e6:8.0f} "
                f"{peak / path.stat().st_size:6.1f} {cpu_s:6.1f} {code:4} "
                + "MEMORY " * over
                + "CPU " * slow
                + said,
                flush=True,
            )
            path.unlink()
    return 1 if missed else 0


def measured(words: list[str]) -> tuple[int, int, float, str]:
    """Exit code, largest memory in bytes, CPU in seconds, and what a refusal said."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pinchpoint", *words], stdout=subprocess.DEVNULL, stderr=out
        )
        _, status, used = os.wait4(process.pid, 0)
        out.seek(0)
        said = out.read().decode("utf-8", "replace").strip()
    code = os.waitstatus_to_exitcode(status)
    return code, used.ru_maxrss << 10, used.ru_utime + used.ru_stime, said[-120:] if code else ""


if __name__ == "__main__":
    sys.exit(main())
