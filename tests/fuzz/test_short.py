"""A short, always equal run of the fuzzers; ``./run fuzz`` is the long one."""

import random

import pytest

from fuzz import readers, soak
from fuzz.checks import DATA, Tally, one_round, same_answer_round, seeds
from pinchpoint.importers.open import format_of, formats

ROUNDS = 2  # mutants of each seed: some fifteen seconds of CPU


@pytest.mark.parametrize("seed", seeds(), ids=lambda p: f"{p.parent.name}-{p.name}")
def test_a_damaged_recording_is_read_or_refused(seed, tmp_path):
    tally, rng = Tally(), random.Random(seed.name)
    for _ in range(ROUNDS):
        one_round(seed, rng, tmp_path, tally)
    assert [told for told, _, _ in tally.failures] == []
    assert tally.counts["read"] + tally.counts["refused"] == ROUNDS


@pytest.mark.parametrize("name", ["kineto/decode_cudagraph", "labelled/c21_python_gc.slow"])
def test_what_changes_nothing_changes_no_answer(name, tmp_path):
    tally = Tally()
    same_answer_round(DATA / f"{name}.json.gz", random.Random(1), tmp_path, tally)
    assert [told for told, _, _ in tally.failures] == []


def test_every_format_has_a_reader_that_is_fuzzed(tmp_path):
    found = readers.attacks(tmp_path)
    named = {name for reader in readers.READERS for name in reader}
    assert named <= found.keys()
    told = set()
    for name in named:
        for file, raw in found[name].files.items():
            place = tmp_path / "read" / name / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(raw)
        told.add(format_of(tmp_path / "read" / name / found[name].given))
    assert set(formats()) - {"execution trace"} <= told  # that is joined with a trace


def test_commands_of_one_process_leave_nothing_in_it():
    grew, codes = soak.soak(60, seed=4, tell=False)
    assert [told for told in grew if not told.endswith(" bytes a command")] == []  # caches fill
    assert codes.keys() <= {0, 2}
