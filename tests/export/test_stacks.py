"""Collapsed stacks and speedscope files, on stacks whose times are known."""

import msgspec

from builders import TraceBuilder
from pinchpoint.export.stacks import collapsed, speedscope


def small():
    builder = TraceBuilder()
    builder.python("train.py(12): step", 0, 100)
    builder.op("mm;evil\n", 10, 20)
    builder.launch(at=15, takes=5, kernel="gemm", runs_at=30, for_ns=40)
    return builder.trace()


def test_collapsed_lines_say_own_time():
    assert collapsed(small()) == (
        "main;train.py(12): step 80\n"
        "main;train.py(12): step;mm:evil  15\n"
        "main;train.py(12): step;mm:evil ;cudaLaunchKernel 5\n"
    )


def test_collapsed_device_time():
    assert collapsed(small(), device=True) == "main;train.py(12): step;mm:evil  40\n"


def test_speedscope_file_has_the_shape_of_its_schema():
    document = msgspec.json.decode(speedscope(small()))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert {"name": "train.py(12): step", "file": "train.py", "line": 12} in frames
    assert [p["name"] for p in document["profiles"]] == ["host time", "device time"]
    for profile in document["profiles"]:
        assert set(profile) == {
            "type",
            "name",
            "unit",
            "startValue",
            "endValue",
            "samples",
            "weights",
        }
        assert (profile["type"], profile["unit"]) == ("sampled", "nanoseconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= f < len(frames) for stack in profile["samples"] for f in stack)
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])


def test_nothing_on_the_host_is_an_empty_file():
    assert collapsed(TraceBuilder().trace()) == ""
    assert msgspec.json.decode(speedscope(TraceBuilder().trace()))["profiles"] == []
