"""Each document is counted by a program that is started for it."""

import argparse
import subprocess
import time


def words(text):
    return int(subprocess.run(["wc", "-w"], input=text, capture_output=True, check=True).stdout)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    text, count = b"some words of a text " * 200, 0
    while time.monotonic() < end:
        count += words(text)
    print(count)


if __name__ == "__main__":
    main()
