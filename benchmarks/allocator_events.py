"""How long memory snapshots of many events take, read and answered, and in how much memory.

./run bench allocator_events [--millions 10]

A made-up training loop fills the snapshot: a thousand blocks a step are allocated, asked back and
freed, from 200 stacks of 20 frames, as torch writes it: eight keys and a list of frames an event.
Reading alone and the whole of ``pinchpoint memory`` run in processes of their own. The aims: ten
million events in 10 s of CPU, and at most 3 times the file in memory.
"""

import argparse
import io
import os
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

MOST_CPU_S_A_MILLION, MOST_MEMORY_RATIO = 1.0, 3.0
STACKS, FRAMES, BLOCKS_A_STEP, LASTING = 200, 20, 1_000, 3_000
START_US = 1_700_000_000_000_000
KINDS = ("alloc", "free_requested", "free_completed")
KEYS = (
    "action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "frames"
)  # fmt: skip
READ = """
import sys
from pathlib import Path
from pinchpoint.importers import memory_snapshot
memory_snapshot.read(Path(sys.argv[1]))
"""


def main() -> None:
    """Print what each part takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, default=10)
    parser.add_argument("--only-write", type=Path, metavar="FILE", help="write the snapshot there")
    options = parser.parse_args()
    millions = options.millions
    if options.only_write:
        write(options.only_write, int(millions * 1e6))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        used([__file__, "--millions", str(millions), "--only-write", str(path)])
        size_mb = path.stat().st_size / 1e6
        print(f"{millions:g} million events, {size_mb:.0f} MB")
        _, floor_mb = used(["-c", READ.replace("memory_snapshot.read", "id"), str(path)])
        commands = {
            "read": ["-c", READ, str(path)],
            "pinchpoint memory": ["-m", "pinchpoint", "memory", str(path)],
        }
        for label, words in commands.items():
            cpu_s, memory_mb = used(words)
            ratio = (memory_mb - floor_mb) / size_mb
            print(f"{label:20}{cpu_s:7.1f} s of CPU{memory_mb:8.0f} MB, {ratio:.2f} x the file")
    print(f"aims: {MOST_CPU_S_A_MILLION * millions:.0f} s of CPU, {MOST_MEMORY_RATIO:g} x the file")


def used(words: list[str]) -> tuple[float, float]:
    """CPU time and the most memory of a process that runs Python with these words."""
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{words} failed: {child.returncode}")
    scale = 1 if sys.platform == "darwin" else 1024
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * scale / 1e6


def write(path: Path, count: int) -> None:
    """A snapshot of ``count`` events.

    ``pickle`` writes the first ones; the others refer to what those have put into its memo, and
    follow as opcodes, so that ten million never lie in memory as dictionaries.
    """
    stacks = [
        [
            {"name": f"f{row}", "filename": f"/w/m{stack % 7}.py", "line": stack + row}
            for row in range(FRAMES)
        ]
        for stack in range(STACKS)
    ]
    first = [
        dict(zip(KEYS, (kind, 1 << 46, 512, 0, START_US, "N/A", "", stack), strict=True))
        for stack in stacks
        for kind in KINDS
    ]
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 4)
    pickler.dump(first)
    memo = pickler.memo.copy()
    place = {id(value): position for position, value in memo.values()}
    texts = {value: position for position, value in memo.values() if isinstance(value, str)}
    frames = [b"".join(reference(place[id(frame)]) for frame in stack) for stack in stacks]
    with path.open("wb") as file:
        file.write(b"\x80\x04}(\x8c\x0ddevice_traces]" + buffer.getvalue()[2:-1])
        for part in batches(count - len(first), texts, frames, len(memo)):
            file.write(b"(" + part + b"e")
        file.write(b"au.")


def batches(count: int, texts: dict[str, int], frames: list[bytes], named: int) -> Iterator[bytes]:
    """Opcodes of events: a step's blocks are allocated, asked back and freed; some stay."""
    chance = random.Random(1)
    key = {name: reference(texts[name]) for name in KEYS}
    action = {kind: key["action"] + reference(texts[kind]) for kind in KINDS}
    tail = key["compile_context"] + b"\x8c\x03N/A\x94"  # as torch does, one text for each event
    tail += key["user_metadata"] + reference(texts[""]) + key["frames"]
    address, time_us, made = 0x7F0000000000, START_US, 0
    while made < count:
        step, lists = [], []
        for _ in range(BLOCKS_A_STEP):
            size = 512 << chance.randrange(12)
            step.append(
                key["addr"] + integer(address) + key["size"] + integer(size)
                + key["stream"] + b"K\x00" + key["time_us"]
            )  # fmt: skip
            address += size
            lists.append(b"]\x94(" + frames[chance.randrange(STACKS)] + b"e")
        stays = made < LASTING
        for kind in KINDS[:1] if stays else KINDS:
            part = []
            for row, block in enumerate(step):
                time_us += 2
                part.append(b"}\x94(" + action[kind] + block + integer(time_us) + tail)
                part.append(lists[row] + b"u")
                named += 3 if lists[row][:1] == b"]" else 2
                if kind == KINDS[1]:  # both events of a free have one list
                    lists[row] = reference(named - 1)
            yield b"".join(part)
            made += len(step)
        address = address if stays else 0x7F4000000000


def reference(position: int) -> bytes:
    """The opcode for a value in the memo."""
    if position < 1 << 8:
        return b"h" + bytes([position])
    return b"j" + position.to_bytes(4, "little")


def integer(value: int) -> bytes:
    """The opcode for a number."""
    if value < 1 << 31:
        return b"J" + value.to_bytes(4, "little")
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little")


if __name__ == "__main__":
    main()
