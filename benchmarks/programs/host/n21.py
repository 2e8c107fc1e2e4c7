"""Healthy: frames are whitened and projected by products of matrices."""

import argparse
import time

import numpy as np


def whiten(batch):
    batch = batch - batch.mean(0)
    covariance = batch.T @ batch / len(batch)
    return batch @ np.linalg.cholesky(np.linalg.inv(covariance + np.eye(len(covariance))))


def project(batch, basis):
    return np.tanh(batch @ basis).sum()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    random = np.random.default_rng(0)
    basis, total = random.random((400, 400)), 0.0
    while time.monotonic() < end:
        total += project(whiten(random.random((2000, 400))), basis)
    print(total)


if __name__ == "__main__":
    main()
