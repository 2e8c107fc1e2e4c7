"""Far steps of a server: the work that a request begins with."""

from builders import TraceBuilder
from exceptional_programs import now_and_then
from sampled_runs import EVALUATING, TRAINING, sampled, samples

MS = 1_000_000
CALL = "torch/nn/modules/module.py(1787): _call_impl"
ENCODING = (
    "torch/nn/modules/linear.py(134): forward",
    CALL,
    "serve.py(63): forward",
    CALL,
    "serve.py(112): transcribe",
    "serve.py(130): <module>",
)


def serving():
    builder = TraceBuilder(devices=())
    for step in range(10):
        builder.step(step, step * 27 * MS, 27 * MS)
        builder.op("aten::linear", step * 27 * MS + 10, 20 * MS)
    return builder.trace()


def test_the_encoder_of_each_request_is_left_open(outcome):
    said = outcome("exceptional-steps", sampled(samples(ENCODING), serving()))
    assert said.answer == "not checked"
    assert said.fits
    assert "in forward (serve.py:63), where a model works and nothing is trained" in said.why


def test_a_loop_that_calls_a_model_beside_its_steps_is_told(outcome):
    (finding,) = outcome("exceptional-steps", sampled(samples(EVALUATING), serving())).findings
    assert finding.location.function == "evaluate"


def test_a_program_that_trains_has_no_requests(outcome):
    trace = now_and_then("checkpoint", ())
    assert outcome("exceptional-steps", sampled(samples(TRAINING), trace)).answer != "not checked"
    builder = TraceBuilder(devices=())
    for step in range(10):
        builder.step(step, step * 27 * MS, 27 * MS)
        builder.op("aten::linear", step * 27 * MS + 10, 10 * MS)
        builder.annotation("Optimizer.step#SGD.step", step * 27 * MS + 12 * MS, 9 * MS)
    (finding,) = outcome("exceptional-steps", sampled(samples(ENCODING), builder.trace())).findings
    assert (finding.location.file, finding.location.line) == ("serve.py", 63)
