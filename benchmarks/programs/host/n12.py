"""A short query imports far more than it uses."""

import time

begin = time.monotonic()

import pandas  # noqa: E402, F401
import scipy.signal  # noqa: E402, F401
import scipy.stats  # noqa: E402, F401

print(sum(range(100_000)), f"{time.monotonic() - begin:.1f} s")
