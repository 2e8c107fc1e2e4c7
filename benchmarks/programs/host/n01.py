"""Results of a queue are asked for every 100 ms, though they are there after 5."""

import argparse
import queue
import threading
import time


def produce(out):
    while True:
        time.sleep(0.005)
        out.put(sum(range(1000)))


def take(results):
    while results.empty():
        time.sleep(0.1)
    return results.get()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    results = queue.Queue(maxsize=1)
    threading.Thread(target=produce, args=(results,), daemon=True).start()
    total = 0
    while time.monotonic() < end:
        total += take(results)
    print(total)


if __name__ == "__main__":
    main()
