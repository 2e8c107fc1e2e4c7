"""A short, always equal run over the formats of which no real recording is kept."""

import random

import pytest

from fuzz.checks import Tally
from fuzz.samples import one_round, ran, samples

ROUNDS = 8


@pytest.mark.parametrize("name", samples())
def test_a_damaged_one_is_read_or_refused(name, tmp_path):
    tally, rng, sample = Tally(), random.Random(name), samples()[name]
    for place, raw in sample.files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(raw)
    given = [str(tmp_path / word) for word in sample.given]
    assert ran([sample.commands[0], *given])[0] == 0  # whole, it is a recording
    for _ in range(ROUNDS):
        one_round(sample, rng, tmp_path, tally)
    assert [told for told, _, _ in tally.failures] == []
    assert tally.counts["read"] + tally.counts["refused"] == ROUNDS
