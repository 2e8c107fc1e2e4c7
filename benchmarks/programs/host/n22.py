"""Healthy: blocks of a file are packed and hashed in libraries; short waits for the disk."""

import argparse
import hashlib
import tempfile
import time
import zlib


def packed(block):
    return zlib.compress(block, 4)


def digest(block):
    return hashlib.sha256(block).digest()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    blocks = [bytes((i * j) % 251 for j in range(100_000)) * 4 for i in range(4)]
    count = 0
    with tempfile.TemporaryFile() as out:
        while time.monotonic() < end:
            block = packed(blocks[count % 4])
            out.seek(0)
            out.write(block)
            count += digest(block)[0] % 3 + 1
    print(count)


if __name__ == "__main__":
    main()
