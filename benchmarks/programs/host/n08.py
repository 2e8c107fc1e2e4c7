"""A large graph of objects is kept while small ones come and go; memory is collected by hand."""

import argparse
import gc
import time


class Node:
    def __init__(self, number):
        self.number, self.links = number, []


def build(count):
    nodes = [Node(i) for i in range(count)]
    for i, node in enumerate(nodes):
        node.links.append(nodes[i * 7 % count])
    return nodes


def query(nodes, key):
    path, node = [], nodes[key % len(nodes)]
    for _ in range(2000):
        node = node.links[0]
        path.append((node.number, key))
    gc.collect()
    return len(set(path))


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    nodes, total, key = build(400_000), 0, 0
    while time.monotonic() < end:
        total += query(nodes, key)
        key += 1
    print(key, total)


if __name__ == "__main__":
    main()
