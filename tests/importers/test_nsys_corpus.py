"""Public exports against plain SQL, which knows nothing of our importer."""

import gzip
import os
import sqlite3
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.trace import DeviceKind

CORPUS = os.environ.get("PINCHPOINT_CORPUS")
FILES = sorted(Path(CORPUS, "public/nsight").glob("*.sqlite.gz")) if CORPUS else []

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not FILES, reason="PINCHPOINT_CORPUS has no nsys exports"),
]


@pytest.fixture(scope="module", params=FILES, ids=lambda p: p.name)
def pair(request, tmp_path_factory):
    plain = tmp_path_factory.mktemp("nsys") / "plain.sqlite"
    plain.write_bytes(gzip.decompress(request.param.read_bytes()))
    with sqlite3.connect(f"file:{plain}?mode=ro", uri=True) as connection:
        yield pp.load(request.param), connection
    connection.close()


def ask(connection, query):
    try:
        return connection.execute(query).fetchone()
    except sqlite3.OperationalError:  # the table is absent
        return None


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        ("KERNEL", (DeviceKind.KERNEL, DeviceKind.COLLECTIVE)),
        ("MEMCPY", (DeviceKind.COPY,)),
        ("MEMSET", (DeviceKind.MEMSET,)),
    ],
)
def test_counts_and_durations(pair, table, kinds):
    trace, connection = pair
    wanted = ask(
        connection, f"SELECT count(*), ifnull(sum(end - start), 0) FROM CUPTI_ACTIVITY_KIND_{table}"
    )
    ops = trace.device_ops
    rows = [] if ops is None else [i for i, kind in enumerate(ops["kind"]) if kind in kinds]
    got = (len(rows), 0 if ops is None else int(ops["duration_ns"][rows].sum()))
    assert got == (wanted or (0, 0))


def test_time_per_kernel_name(pair):
    trace, connection = pair
    try:
        wanted = dict(
            connection.execute(
                "SELECT value, sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
                " JOIN StringIds ON id = demangledName GROUP BY value"
            )
        )
    except sqlite3.OperationalError:
        pytest.skip("no kernel table")
    got: dict[str, int] = {}
    ops = trace.device_ops
    for i in range(len(ops)):
        if ops["kind"][i] in (DeviceKind.KERNEL, DeviceKind.COLLECTIVE):
            name = trace.text(ops, "name", i)
            got[name] = got.get(name, 0) + int(ops["duration_ns"][i])
    assert got == wanted


def test_launches_are_joined_within_the_process(pair):
    trace, connection = pair
    wanted = ask(
        connection,
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE EXISTS (SELECT 1 FROM"
        " CUPTI_ACTIVITY_KIND_RUNTIME r WHERE r.correlationId = k.correlationId"
        " AND r.globalTid >> 24 = k.globalPid >> 24)",
    )
    if wanted is None:
        pytest.skip("no launches, or no process of kernels")
    ops = trace.device_ops
    kernels = (ops["kind"] == DeviceKind.KERNEL) | (ops["kind"] == DeviceKind.COLLECTIVE)
    assert int((ops.known("api_call") & kernels).sum()) == wanted[0]


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API"])
def test_host_calls(pair, table):
    trace, connection = pair
    wanted = ask(connection, f"SELECT count(*), sum(end - start) FROM {table}")
    if wanted is None:
        pytest.skip("not recorded")
    if table == "OSRT_API":
        names = {n for (n,) in connection.execute(
            "SELECT value FROM StringIds WHERE id IN (SELECT nameId FROM OSRT_API)")}  # fmt: skip
        rows = [
            i for i in range(len(trace.host_ops))
            if trace.text(trace.host_ops, "name", i) in names and trace.host_ops["duration_ns"][i]
        ]  # fmt: skip
        assert int(trace.host_ops["duration_ns"][rows].sum()) >= wanted[1]
        return
    assert (len(trace.api_calls), int(trace.api_calls["duration_ns"].sum())) == wanted


def test_ranges(pair):
    trace, connection = pair
    wanted = ask(
        connection, "SELECT count(*), sum(end - start) FROM NVTX_EVENTS WHERE eventType IN (59, 60)"
    )
    if wanted is None:
        pytest.skip("no NVTX")
    annotations = trace.host_ops.take((trace.host_ops["kind"] == 4) | (trace.host_ops["kind"] == 1))
    assert (len(annotations), int(annotations["duration_ns"].sum())) == wanted
