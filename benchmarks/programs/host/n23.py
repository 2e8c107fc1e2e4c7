"""Healthy: two worker processes of one thread each get many equal tasks at once."""

import argparse
import os
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

from multiprocessing import Pool  # noqa: E402

import numpy as np  # noqa: E402


def energy(seed):
    matrix = np.random.default_rng(seed).random((250, 250))
    return float(np.linalg.eigvalsh(matrix + matrix.T)[-1])


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    total = 0.0
    with Pool(2) as pool:
        while time.monotonic() < end:
            total += sum(pool.map(energy, range(64)))
    print(total)


if __name__ == "__main__":
    main()
