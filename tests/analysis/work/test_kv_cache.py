"""Bytes of keys and values that a decode round reads: by rounds of engines, and by attention."""

import json

import pytest

from kineto_documents import document, event, launched, written
from pinchpoint.analysis.work.kv_cache import kv_cache
from pinchpoint.cli import main
from pinchpoint.importers import load

LAYERS, HEADS, WIDTH = 3, 8, 64
POSITION_BYTES = LAYERS * 2 * HEADS * WIDTH * 1  # keys and values of 8 bits
WRITE = {
    "Input Dims": [[4, HEADS, WIDTH], [4, HEADS, WIDTH], [99, 16, HEADS, WIDTH]],
    "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::Float8_e4m3fn"],
}


def rounds(folder, *names, writes):
    """Rounds of an engine, each with the operators that write its layers into the cache."""
    events = []
    for number, name in enumerate(names, 1):
        at = 1000 * number
        events.append(event(name, "user_annotation", at, 300))
        events += launched("attend", at + 200, at + 220, 500, number)
        for layer in range(LAYERS if writes else 0):
            write = event("_C_cache_ops::reshape_and_cache_flash", "cpu_op", at + 10 * layer, 5)
            events.append(write | {"args": WRITE})
    return written(folder, document(*events))


def test_positions_of_the_rounds_times_what_a_layer_writes_of_one(tmp_path, capsys):
    names = [f"execute_4_context_0(sq0sk0)_generation_4(sq4sk{held})" for held in (800, 804, 808)]
    path = rounds(tmp_path, *names, "execute_9_context_1(sq9sk9)_generation_0(sq0sk0)", writes=True)
    found = kv_cache(load(path))
    assert (found.rounds, found.positions, found.position_bytes) == (3, 804, POSITION_BYTES)
    assert (found.read_bytes, found.why) == (804 * POSITION_BYTES, None)
    assert main(["diagnose", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["kv_cache"]
    assert (said["read_bytes"], said["least_ns"]) == (804 * POSITION_BYTES, None)  # no data sheet
    assert main(["diagnose", str(path)]) == 0
    assert "804 positions of the KV cache, at most 2.36 MiB" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize(
    ("name", "writes", "why"),
    [
        ("execute_context_0(0)_generation_4(4)", True, "no lengths of sequences"),
        ("step[DECODE bs=4]", True, "no lengths of sequences"),
        ("execute_4_context_0(sq0sk0)_generation_4(sq4sk800)", False, "outside of graph replays"),
    ],
)
def test_what_is_not_known_has_its_reason(tmp_path, name, writes, why):
    found = kv_cache(load(rounds(tmp_path, *[name] * 3, writes=writes)))
    assert found.read_bytes is None
    assert why in found.why


def test_attention_of_one_token_reads_the_keys_it_is_given(tmp_path):
    events = []
    for step in range(4):
        at, sizes = 1000 * step, [[2, 16, 1, 64], *[[2, 16, 100 + step, 64]] * 2]
        given = {"Input Dims": sizes, "Input type": ["c10::Half"] * 3}
        events.append(event(f"ProfilerStep#{step}", "user_annotation", at, 900))
        for layer in range(LAYERS):
            for name, took in (("aten::scaled_dot_product_attention", 80), ("aten::_inner", 60)):
                events.append(event(name, "cpu_op", at + 100 * layer + 5, took) | {"args": given})
        inner = event("aten::_scaled_dot_product_flash_attention", "cpu_op", at + 6, 40)
        events.append(inner | {"args": given})  # the same reading, not another
        events += launched("attend", at + 20, at + 30, 500, step + 1)
    found = kv_cache(load(written(tmp_path, document(*events))))
    assert (found.rounds, found.positions) == (3, 2 * 102)  # the last three steps are complete
    assert found.read_bytes == LAYERS * 2 * (2 * 102) * 16 * 64 * 2


def test_a_program_that_does_not_decode_has_none(tmp_path):
    events = [event("forward", "cpu_op", 0, 90), *launched("k", 20, 40, 30, 1)]
    assert kv_cache(load(written(tmp_path, document(*events)))) is None
