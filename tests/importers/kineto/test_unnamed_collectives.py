"""Collectives whose kernel has the same name for all kinds get theirs from what asked for them."""

import pytest

from kineto_documents import call, document, event, kernel, written
from pinchpoint.importers.kineto import read

GENERIC = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"


def kinds(tmp_path, *events):
    trace = read(written(tmp_path, document(*events)))
    ops = trace.device_ops
    return [trace.text(ops, "collective", i) for i in range(len(ops))]


@pytest.mark.parametrize(
    ("asked", "category", "kind"),
    [
        ("nccl:all_reduce", "user_annotation", "allreduce"),
        ("nccl:_all_gather_base", "user_annotation", "allgather"),
        ("c10d::reduce_scatter_", "cpu_op", "reduce_scatter"),
        ("my own range of all_reduce", "user_annotation", "other"),
    ],
)
def test_the_host_names_the_collective(tmp_path, asked, category, kind):
    events = [event(asked, category, 0, 50), call("cudaLaunchKernel", 10, 5, 1)]
    assert kinds(tmp_path, *events, kernel(GENERIC, 20, 9, 1)) == [kind]


def test_a_kernel_that_has_a_name_keeps_it(tmp_path):
    events = [
        event("nccl:all_gather", "user_annotation", 0, 50),
        call("cudaLaunchKernel", 10, 5, 1),
    ]
    named = kernel("ncclDevKernel_AllReduce_Sum_f32", 20, 9, 1)
    assert kinds(tmp_path, *events, named) == ["allreduce"]


def test_nothing_asked_where_the_kernel_was_launched(tmp_path):
    assert kinds(tmp_path, call("cudaLaunchKernel", 10, 5, 1), kernel(GENERIC, 20, 9, 1)) == [
        "other"
    ]
