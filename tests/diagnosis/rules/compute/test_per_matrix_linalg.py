import json

import pytest

from builders import TraceBuilder

US = 1_000
KERNEL = "void larft_T_32<float, 256>(int, float*)"


def factoring(batch, launches, *, name="aten::linalg_qr", size=3, steps=4, shapes=True):
    """Each step: one call on ``batch`` matrices that launches so many kernels."""
    b = TraceBuilder()
    host = launches * 10 * US
    for i in range(steps):
        at = i * (host + 100 * US)
        b.step(i, at, host + 100 * US)
        given = json.dumps([[batch, size, size], []]) if shapes else None
        b.op(name, at, host, shapes=given)
        for n in range(launches):
            b.launch(at + n * 10 * US, 5 * US, KERNEL, at + n * 10 * US + 7 * US, US)
    return b.trace()


def test_a_written_out_batch_keeps_some_sixty_kernels(outcome):
    (finding,) = outcome("per-matrix-linalg", factoring(100, 300)).findings
    assert [e.value for e in finding.evidence[-2:]] == [100, 3.0]
    dropped = finding.changes[0].device_ops
    assert 300 - len(dropped) / 3 == pytest.approx(60)  # of four steps, three are judged


def test_is_a_finding_before_its_launches(ranked):
    assert ranked(factoring(100, 300))[0] == "per-matrix-linalg"


@pytest.mark.parametrize(
    "trace",
    [
        factoring(1_000, 20),
        factoring(4, 100),
        factoring(100, 300, size=512),
        factoring(100, 300, name="aten::linalg_vector_norm"),
        factoring(100, 300, name="aten::bmm"),
    ],
    ids=["batched", "few", "large", "a norm", "products"],
)
def test_other_calls_are_fine(outcome, trace):
    assert outcome("per-matrix-linalg", trace).answer == "clear"


def test_cannot_judge_without_shapes(outcome):
    assert outcome("per-matrix-linalg", factoring(100, 300, shapes=False)).answer == "not checked"
