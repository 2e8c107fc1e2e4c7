import pytest

from pinchpoint.trace import ApiKind
from pinchpoint.trace.kinds import api_kind, collective_kind, without_version


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaLaunchKernel", ApiKind.LAUNCH),
        ("cudaLaunchKernel_v7000", ApiKind.LAUNCH),
        ("cudaLaunchKernelExC_v11060", ApiKind.LAUNCH),
        ("cuLaunchKernelEx", ApiKind.LAUNCH),
        ("cudaLaunchCooperativeKernel", ApiKind.LAUNCH),
        ("hipExtModuleLaunchKernel", ApiKind.LAUNCH),
        ("hipModuleLaunchKernel", ApiKind.LAUNCH),
        ("urEnqueueKernelLaunch", ApiKind.LAUNCH),
        ("cudaGraphLaunch_v10000", ApiKind.GRAPH_LAUNCH),
        ("cudaGraphInstantiateWithFlags", ApiKind.GRAPH_BUILD),
        ("cudaStreamBeginCapture", ApiKind.GRAPH_BUILD),
        ("cudaStreamIsCapturing_v10000", ApiKind.QUERY),
        ("cudaStreamGetCaptureInfo_v2", ApiKind.QUERY),
        ("cudaMemcpyAsync_v3020", ApiKind.COPY),
        ("cuMemcpyHtoDAsync_v2", ApiKind.COPY),
        ("hipMemcpyWithStream", ApiKind.COPY),
        ("cudaMemsetAsync", ApiKind.MEMSET),
        ("cuMemsetD8Async", ApiKind.MEMSET),
        ("cudaDeviceSynchronize", ApiKind.SYNC_DEVICE),
        ("cuCtxSynchronize", ApiKind.SYNC_DEVICE),
        ("cudaStreamSynchronize_v3020", ApiKind.SYNC_STREAM),
        ("cudaEventSynchronize", ApiKind.SYNC_EVENT),
        ("cudaEventRecordWithFlags_v11010", ApiKind.EVENT_RECORD),
        ("cudaStreamWaitEvent", ApiKind.STREAM_WAIT),
        ("cudaMalloc", ApiKind.MALLOC),
        ("cudaMallocAsync_v11020", ApiKind.OTHER),
        ("cudaMallocFromPoolAsync", ApiKind.OTHER),
        ("cuMemAllocAsync", ApiKind.OTHER),
        ("cudaFreeAsync", ApiKind.OTHER),
        ("cuMemCreate", ApiKind.MALLOC),
        ("cudaMallocHost", ApiKind.HOST_ALLOC),
        ("cudaHostAlloc_v3020", ApiKind.HOST_ALLOC),
        ("cudaFree", ApiKind.FREE),
        ("hipFree", ApiKind.FREE),
        ("cudaFreeHost", ApiKind.OTHER),
        ("cudaEventQuery", ApiKind.QUERY),
        ("cudaGetDeviceProperties_v12000", ApiKind.QUERY),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessor", ApiKind.QUERY),
        ("cudaPeekAtLastError", ApiKind.QUERY),
        ("cuModuleLoadData", ApiKind.MODULE_LOAD),
        ("cuLibraryLoadData", ApiKind.MODULE_LOAD),
        ("hipGetDevicePropertiesR0600", ApiKind.QUERY),
        ("zeCommandListAppendLaunchKernel", ApiKind.LAUNCH),
        ("zeCommandListAppendMemoryCopy", ApiKind.COPY),
        ("runFunction - job_prep_and_submit_for_execution", ApiKind.LAUNCH),
        ("enqueueCommand memcpyHtoDAsync", ApiKind.COPY),
        ("enqueueCommand waitOnEvent", ApiKind.STREAM_WAIT),
        ("synchronizeStream", ApiKind.SYNC_STREAM),
        ("recordEvent", ApiKind.EVENT_RECORD),
        ("INVALID", ApiKind.OTHER),
        ("cudaEventCreateWithFlags_v3020", ApiKind.OTHER),
        ("cudaStreamCreateWithFlags", ApiKind.OTHER),
    ],
)
def test_kind_of_calls(name, kind):
    assert api_kind(name) is kind


def test_versions_are_cut_off():
    assert without_version("cudaMemcpyAsync_ptsz_v7000") == "cudaMemcpyAsync"
    assert without_version("cuMemcpyHtoDAsync_v2") == "cuMemcpyHtoDAsync"


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "allgather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "sendrecv"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ("ncclBroadcastTreeKernel_copy_i8(ncclColl)", "broadcast"),
        ("nccl_all_reduce_of_mine", None),
        ("ncclDevKernel_Generic(ncclDevComm*)", "other"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)", "allreduce"),
        ("void at::native::reduce_kernel<512, 1>(x)", None),
        ("void gather_kernel(x)", None),
        ("userbuffers_fp16_sum_inplace_gpu_mc_rs<8>", "reduce_scatter"),
        ("userbuffers_fp16_sum_inplace_gpu_mc_ag<8>", "allgather"),
        ("userbuffers_fp16_sum_inplace_gpu_rw<8>", "allreduce"),
        ("kuserbuffers_pushsendrecv", "sendrecv"),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*)", "dispatch"),
        ("void of_ours::ep::internode::combine<false, 8>(int4*)", "combine"),
        ("void internode_ll::notify<false>(int const*)", "other"),
        ("void tree::internodes::combine(int*)", None),
    ],
)
def test_collectives(kernel, kind):
    assert collective_kind(kernel) == kind
