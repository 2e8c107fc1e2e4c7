import pytest

from pinchpoint.capture.launch.collect import other_programs


def spread(value):
    return {"mean": value, "min": value, "max": value}


def host(busy, ours):
    return {"cpu_ratio": spread(busy), "cpu_cores_used": spread(ours)}


@pytest.mark.parametrize(
    ("busy", "ours", "others", "said"),
    [
        pytest.param(0.95, 2.0, 5.6, True, id="others take most of a full machine"),
        pytest.param(0.95, 7.6, 0.0, False, id="the run itself fills the machine"),
        pytest.param(0.50, 0.5, 3.5, False, id="cores are free"),
        pytest.param(0.90, 9.0, 0.0, False, id="never less than nothing"),
    ],
)
def test_cores_that_others_use(busy, ours, others, said):
    found = other_programs([], host(busy, ours), cores=8)
    assert found["cpu"]["cores_used_by_others"] == pytest.approx(others)
    assert bool(found["sentences"]) is said


def test_a_shared_device_is_said_with_what_others_hold():
    shared = {
        "device": "1",
        "process_count": spread(3),
        "other_process_count": spread(2),
        "other_memory_bytes": spread(3 * 2**30),
    }
    alone = {"device": "0", "other_process_count": spread(0)}
    found = other_programs([alone, shared], {})
    assert found["sentences"] == [
        "GPU 1 was shared: up to 2 process(es) of others were on it, holding 3.0 GiB; "
        "steps may be longer than alone"
    ]


def test_a_device_that_the_run_does_not_use_is_no_matter():
    elsewhere = {"device": "0", "process_count": spread(1), "other_process_count": spread(1)}
    assert other_programs([elsewhere], {})["sentences"] == []


def test_a_program_that_had_left_before_ours_came_is_no_matter():
    before = {"mean": 0.42, "min": 0, "max": 1}
    gone = {"device": "0", "process_count": spread(1), "other_process_count": before}
    assert other_programs([gone], {})["sentences"] == []


def test_a_program_that_was_just_leaving_the_device_is_not_counted():
    leaving = {"device": "0", "other_process_count": {"mean": 0.05, "min": 0, "max": 1}}
    assert other_programs([leaving], {})["sentences"] == []


def test_what_was_not_sampled_is_unknown_and_not_zero():
    found = other_programs([{"device": "0"}], {})
    assert found["gpu"][0]["most_processes"] is None
    assert found["cpu"]["cores_used_by_others"] is None
    assert found["sentences"] == []
