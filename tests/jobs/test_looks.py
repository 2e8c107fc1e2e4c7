"""What a rank did by itself, by looks at the whole run."""

import msgspec
import pytest

from pinchpoint.jobs.looks import Looks, looks_at
from pinchpoint.run_folder.samples import SampledNote, SamplesDocument, StepsNote, ThreadNote


def test_waiting_for_others_is_no_time_of_its_own(tmp_path):
    """Of 10 s in 100 steps: asleep for 4, in a collective for 5 of which 0.5 on a core, 1 without
    a core before it computes."""
    thread = ThreadNote(
        main=True,
        looks=100,
        queued_ns=800_000_000,
        stacks=((0, 40), (1, 50), (2, 10)),
        spent=((0, 4_000_000, 0, 0), (1, 5_000_000, 500_000, 0), (2, 1_000_000, 200_000, 0)),
        waits=((0, "S hrtimer_nanosleep", 4_000_000), (1, "S futex_wait_queue", 4_500_000)),
    )
    document = SamplesDocument(
        frames=(("train.py", 3, "prepare"), ("train.py", 7, "train"), ("train.py", 9, "judge")),
        stacks=((0,), (1,), (2,)),
        doing=("time.sleep()", "loss.backward()", ""),
        sampled=SampledNote(looks=100, threads=(thread,)),
        steps=StepsNote(count=100),
    )
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples/rank00001of00002.a.7.json").write_bytes(msgspec.json.encode(document))
    recording = tmp_path / "traces/rank00001of00002.a.7.trace.json.gz"
    looks = looks_at(str(recording))
    assert looks.own_ratio == pytest.approx(0.47)  # 4 s asleep, 0.7 on a core
    assert looks.no_core_ratio == pytest.approx(0.08)
    places = looks.places
    assert [(p.function, p.line, p.ns / 1e6) for p in places] == [
        ("prepare", 3, 40.0),
        ("train", 7, 5.0),
        ("judge", 9, 2.0),
    ]
    prepare = places[0]
    assert prepare.doing == "time.sleep()"
    assert prepare.least_ns / 1e6 == pytest.approx(30.9, abs=0.1)  # Wilson, 40 of 100 looks
    assert prepare.most_ns / 1e6 == pytest.approx(49.8, abs=0.1)
    assert prepare.none_ns / 1e6 == pytest.approx(3.7, abs=0.1)
    # With the time without a core: the judge's second; asleep in the collective is not the rank's.
    assert [p.there_ns / 1e6 for p in places] == [40.0, 5.0, 10.0]
    assert places[2].least_there_ns / 1e6 == pytest.approx(5.5, abs=0.1)
    of_timed = looks_at(str(recording), 50e6).places[0]
    assert of_timed.ns / 1e6 == pytest.approx(20.0)
    assert looks_at(str(tmp_path / "elsewhere.json")) == Looks()
