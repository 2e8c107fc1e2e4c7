from analysis.memory.test_traced import MIB, Recorded
from diagnosis.rules.memory.memory_answers import answers


def test_host_tensors_that_every_step_leaves_behind():
    r = Recorded()
    for number in range(6):
        first = r.now + 1
        r.memory(32 * MIB, 100 + number, device=None)
        r.b.step(number, first * 1000, (r.now + 1 - first) * 1000)
    found = answers(r.b.trace(origin_ns=0))
    assert found["host-memory-growth"].saving_bytes >= 3 * 32 * MIB


def test_host_tensors_that_go_again():
    r = Recorded()
    for number in range(6):
        first = r.now + 1
        r.memory(96 * MIB, 100 + number, device=None)
        r.memory(-96 * MIB, 100 + number, device=None)
        r.b.step(number, first * 1000, (r.now + 1 - first) * 1000)
    assert answers(r.b.trace(origin_ns=0)) == {}
