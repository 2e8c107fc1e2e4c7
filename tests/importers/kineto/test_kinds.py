import pytest

from pinchpoint.importers.kineto.device_kinds import copy_ends, device_kind, memset_target
from pinchpoint.importers.kineto.host import host_kind
from pinchpoint.trace import DeviceKind, HostKind
from pinchpoint.trace import MemoryKind as M


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("cpu_op", "aten::mm", HostKind.OPERATOR),
        ("Operator", "aten::mm", HostKind.OPERATOR),
        ("Operator", "ProfilerStep#3", HostKind.ANNOTATION),
        (
            "Operator",
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            HostKind.ANNOTATION,
        ),
        ("user_annotation", "Optimizer.step#AdamW.step", HostKind.ANNOTATION),
        ("cpu_op", "Torch-Compiled Region: 0/0", HostKind.ANNOTATION),
        ("user_annotation", "## Call CompiledFxGraph fjtl ##", HostKind.ANNOTATION),
        ("cpu_op", "gloo:send", HostKind.ANNOTATION),
        ("cpu_op", "CompiledFunctionBackward", HostKind.OPERATOR),
        ("cpu_op", "triton_poi_fused_add_0", HostKind.OPERATOR),
        ("user_annotation", "entire_frame_compile (dynamo_timed)", HostKind.COMPILE),
        ("python_function", "train.py(31): step", HostKind.PYTHON),
        ("python_function", "nn.Module: Linear_0", HostKind.MODULE),
        ("python_function", "torch/_dynamo/convert_frame.py(120): _compile", HostKind.PYTHON),
        ("python_function", "torch/_dynamo/eval_frame.py(574): _fn", HostKind.PYTHON),
        (
            "python_function",
            "torch/_inductor/runtime/triton_heuristics.py(1): run",
            HostKind.PYTHON,
        ),
        ("overhead", "Activity Buffer Request", HostKind.OVERHEAD),
        ("something new", "x", HostKind.ANNOTATION),
    ],
)
def test_kinds_of_host_events(category, name, kind):
    assert host_kind(category, name) is kind


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("kernel", "ampere_sgemm_32x32", DeviceKind.KERNEL),
        ("Kernel", "void cudnn::bn_fw(float)", DeviceKind.KERNEL),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", DeviceKind.COLLECTIVE),
        ("kernel", "void vllm::cross_device_reduce_2stage<half, 8>(x)", DeviceKind.COLLECTIVE),
        ("kernel", "void at::native::reduce_kernel<512, 1>(x)", DeviceKind.KERNEL),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", DeviceKind.COPY),
        ("Memset", "Memset (Device)", DeviceKind.MEMSET),
        ("gpu_user_annotation", "ProfilerStep#3", 0),
        ("mtia_ccp_events", "dma_request", DeviceKind.COPY),
        ("mtia_ccp_events", "event_wait", 0),
        ("mtia_ccp_events", "pe_exe", DeviceKind.KERNEL),
        ("collective_comm", "x", DeviceKind.COLLECTIVE),
    ],
)
def test_kinds_of_device_events(category, name, kind):
    assert device_kind(category, name) == kind


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("Memcpy HtoD (Pageable -> Device)", (M.PAGEABLE, M.DEVICE)),
        ("Memcpy DtoH (Device -> Pinned)", (M.DEVICE, M.PINNED)),
        ("Memcpy DtoD (Device -> Device)", (M.DEVICE, M.DEVICE)),
        ("Memcpy PtoP (Device -> Device)", (M.DEVICE, M.PEER)),
        ("Memcpy HtoD (Host -> Device)", (M.HOST, M.DEVICE)),
        ("Memcpy DtoD (Unified -> Device)", (M.UNIFIED, M.DEVICE)),
        ("MemcpyHtoD", (M.HOST, M.DEVICE)),
        ("CopyDeviceToHost", (M.DEVICE, M.HOST)),
        ("MEMORY_COPY_HOST_TO_DEVICE", (M.HOST, M.DEVICE)),
        ("zeCommandListAppendMemoryCopy(M2D)", (M.HOST, M.DEVICE)),
        ("HOST_TO_DEVICE", (M.HOST, M.DEVICE)),
        ("Memcpy DtoD (Device -> Unknown)", (M.DEVICE, 0)),
        ("dma_request", (0, 0)),
    ],
)
def test_ends_of_copies(name, ends):
    assert copy_ends(name) == ends


def test_targets_of_memsets():
    assert memset_target("Memset (Device)") == M.DEVICE
    assert memset_target("Memset (Unknown)") == 0
