"""What IBM's AIU ran, as its tool writes it: pairs of begin and end, a process a device."""

import json

from pinchpoint.importers import load
from pinchpoint.trace import DeviceKind


def pair(name, start, end, process=0, thread=7, **attr):
    of = {"name": name, "pid": process, "tid": thread, "attr": {"TS1": "1", "TS5": "9"} | attr}
    return [{**of, "ph": "B", "ts": start}, {**of, "ph": "E", "ts": end}]


def read(folder, *pairs):
    path = folder / "aiu.json"
    path.write_text(json.dumps([event for each in pairs for event in each]))
    return load(path)


def test_what_was_executed_and_moved_is_of_the_device(tmp_path):
    trace = read(
        tmp_path,
        pair("add Cmpt Prep", 0.0, 10.0),
        pair("add Cmpt Exec", 10.0, 30.0),
        pair("SenRdmaSend_1 [sync=AllReduce] DmaO", 12.0, 32.0, thread=8),
        pair("weights DmaI", 40.0, 45.0, process=1),
    )
    ops = trace.device_ops
    assert ops["duration_ns"].tolist() == [20_000, 20_000, 5000]
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COLLECTIVE, DeviceKind.COPY]
    assert ops["device"].tolist() == [0, 0, 1]


def test_ranges_of_a_program_stay_on_the_host(tmp_path):
    trace = read(tmp_path, pair("load Dma", 0.0, 10.0), pair("Cmpt Exec of it", 20.0, 30.0))
    assert trace.device_ops is None
    assert len(trace.host_ops) == 2
