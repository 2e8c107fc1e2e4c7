"""Who serves a model with an engine is told the engine's options, not PyTorch's."""

import pytest

from pinchpoint.analysis.work.serving import engine_around
from pinchpoint.trace import HostKind
from program import Program

VLLM = "/env/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py(70): execute_model"
SGLANG = "sglang/srt/managers/scheduler.py(9): run_batch"
OWN = "/home/me/my_vllm/serve.py(7): forward"


def many(*frames, named="loop", outside=0):
    """Six steps of short kernels, launched inside of functions, and some outside of them."""
    p = Program()
    for _ in p.steps(6):
        with p.row(named, kind=HostKind.ANNOTATION):
            for frame in frames:
                with p.frame(frame):
                    launch(p, 60)
        launch(p, outside)
    return p.trace()


def launch(p, count):
    for _ in range(count):
        with p.row("aten::add"):
            p.kernel("vectorized_elementwise_kernel", 3)
            p.busy(50)


@pytest.mark.parametrize(
    ("trace", "engine"),
    [
        (many(VLLM), "vLLM"),
        (many(SGLANG), "SGLang"),
        (many(OWN, named="execute_context_1(888)_generation_0(0)"), "vLLM"),
        (many(OWN), None),
        (many(VLLM, outside=70), None),  # a program that uses one among other things
        (many(VLLM, OWN, SGLANG), None),
    ],
)
def test_the_engine_that_launches_most_runs_the_model(trace, engine):
    assert engine_around(trace) == engine


@pytest.mark.parametrize(
    ("trace", "fix", "hint"),
    [
        (
            many(OWN, named="execute_context_1(888)_generation_2(2)"),
            "Let vLLM compile the model and record its rounds as CUDA graphs, up to the largest"
            " that it runs (requests: 3, tokens: 890)",
            "LLM(MODEL, enforce_eager=False)  # and cudagraph_capture_sizes up to 890",
        ),
        (
            many(OWN, named="step[DECODE bs=32]"),
            "Let SGLang compile the model and record its rounds as CUDA graphs, up to the largest"
            " that it runs (requests: 32, tokens: 32)",
            "python -m sglang.launch_server --cuda-graph-max-bs 32  # without --disable-cuda-graph",
        ),
        (
            many("tensorrt_llm/_torch/pyexecutor/py_executor.py(5): _forward_step"),
            "Let TensorRT-LLM compile the model and record its rounds as CUDA graphs, up to the"
            " largest that it runs",
            "LLM(MODEL, cuda_graph_config=CudaGraphConfig(enable_padding=True))",
        ),
    ],
    ids=["vllm", "sglang", "tensorrt_llm"],
)
def test_launches_of_an_engine_are_its_options(outcome, trace, fix, hint):
    (finding,) = outcome("launch-bound", trace).findings
    assert (finding.fix, finding.hint) == (fix, hint)
    assert finding.confirm.startswith("pinchpoint bench serve")


def test_a_program_of_ones_own_compiles_itself(outcome):
    (finding,) = outcome("launch-bound", many(OWN)).findings
    assert finding.hint == 'model = torch.compile(model, mode="reduce-overhead")'
