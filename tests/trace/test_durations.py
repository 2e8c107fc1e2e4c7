from pinchpoint.trace.durations import counted


def test_one_of_something_takes_no_s():
    assert [counted(n, "kernel") for n in (1, 1.0, 2.033, 199)] == [
        "1 kernel",
        "1 kernel",
        "2.03 kernels",
        "199 kernels",
    ]
