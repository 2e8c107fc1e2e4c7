"""A journal is flushed to the disk after every record."""

import argparse
import json
import os
import tempfile
import time


class Journal:
    def __init__(self, path):
        self.file = open(path, "w")

    def append(self, record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    with tempfile.TemporaryDirectory(dir=".") as folder:
        journal, count = Journal(os.path.join(folder, "journal")), 0
        while time.monotonic() < end:
            journal.append({"id": count, "values": list(range(50))})
            count += 1
    print(count)


if __name__ == "__main__":
    main()
