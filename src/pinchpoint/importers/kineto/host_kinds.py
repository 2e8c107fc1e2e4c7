"""What a host event is, from its category and name."""

import re

from pinchpoint.trace import HostKind

STEP = re.compile(r"ProfilerStep#(\d+)")

_MODULE_PREFIX = "nn.Module: "
# torch wraps each phase of compilation in a record_function of this form.
_TIMED_COMPILATION = "(dynamo_timed)"
# Files whose functions run only while something is compiled. Their neighbours that also run in
# every step (eval_frame, compile_fx, triton_heuristics) are left out.
_COMPILER_FILE = re.compile(
    r"(?:^|/)(?:torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|bytecode_analysis)\.py"
    r"|torch/_inductor/(?:graph|scheduler|lowering|async_compile)\.py|torch/_inductor/codegen/"
    r"|triton/(?:compiler|backends)/)"
)
# Ranges that torch writes with the category of an operator: before 2022 all of them, and still
# those around code that dynamo compiled, which is execution.
_ANNOTATION = re.compile(
    r"ProfilerStep#|enumerate\(|Optimizer\.\w+#|#+ |Torch-Compiled Region|Pregraph bytecode"
    r"|TorchDynamo Cache Lookup|DistributedDataParallel\.|FullyShardedDataParallel\."
)

_OPERATOR_CATEGORIES = ("cpu_op", "Operator")


def host_kind(category: str, name: str) -> HostKind:
    """The kind of a host event."""
    match category:
        case "overhead":
            return HostKind.OVERHEAD
        case "python_function":
            if name.startswith(_MODULE_PREFIX):
                return HostKind.MODULE
            return HostKind.COMPILE if _COMPILER_FILE.search(name) else HostKind.PYTHON
    if name.endswith(_TIMED_COMPILATION):
        return HostKind.COMPILE
    if category in _OPERATOR_CATEGORIES:
        return HostKind.ANNOTATION if _ANNOTATION.match(name) else HostKind.OPERATOR
    return HostKind.ANNOTATION
