"""Kernel names short enough for people."""

import re

_RETURN_TYPE = re.compile(r"^(?:void|std::enable_if<.*?>::type) ")
# How compilers and demanglers spell a namespace without a name.
_NO_NAME = re.compile(
    r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|`anonymous namespace')::"
)
_FUNCTOR = re.compile(
    r"(\w*(?:functor\w*?|ops?|kernel_impl|kernel_cuda|kernel|kernelimpl|scalar)(?:_\w+)?)\b(?=[<(,])",
    re.I,
)
_NUMBER = re.compile(r"^(?:\s*(?:\(\w+\))?-?\d+\s*(?:,|(?=>)))+\s*")
_SHELLS = ("Kernel", "Kernel2", "kentry", "device_kernel")
_ANY = ("kernel",)  # says nothing: cuBLAS calls one so in each of its namespaces
_PLAIN_SHELLS = (
    "vectorized_elementwise_kernel",
    "unrolled_elementwise_kernel",
    "elementwise_kernel_manual_unroll",
    "elementwise_kernel",
    "index_elementwise_kernel",
    "reduce_kernel",
    "multi_tensor_apply_kernel",
)
_LONGEST_SHORT_NAME = 60  # fits a terminal's table


def short_kernel_name(name: str) -> str:
    """A kernel's name for people: no return type, namespaces, template or function arguments.

    Frameworks launch most elementwise and reducing kernels through a few shells; there the
    functor inside says what is done: ``elementwise: CUDAFunctor_add``.
    """
    if name.startswith("_Z"):
        return _clipped(_mangled(name))
    bare = _RETURN_TYPE.sub("", _NO_NAME.sub("", name))
    head = _without_arguments(bare)
    plain = _own_name(head.split("<", 1)[0].split("::")).strip() or head
    inside = bare[bare.find("<") + 1 :] if "<" in bare else ""
    if plain in _PLAIN_SHELLS:
        functor = _functor(inside)
        plain = f"{_shell_word(plain)}: {functor}" if functor else plain
    elif plain in _SHELLS and "<" in bare:
        inside = _NUMBER.sub("", inside)  # kentry<1, BatchedGemmKernel<…>>
        plain = re.split(r"[<>(,]", inside, maxsplit=1)[0].rsplit("::", 1)[-1].strip() or plain
    return _clipped(plain)


def _own_name(path: list[str]) -> str:
    """The last part, with the one before it where the last is what all are: gemvx::kernel."""
    return "::".join(path[-2:] if path[-1].strip() in _ANY else path[-1:])


def _clipped(name: str) -> str:
    return name if len(name) <= _LONGEST_SHORT_NAME else name[: _LONGEST_SHORT_NAME - 1] + "…"


def _mangled(name: str) -> str:
    """The function's own name out of a mangled C++ name, or that of what a shell wraps."""
    own, after = _identifiers(name, 3 if name.startswith("_ZN") else 2)
    if own and own[-1] in _SHELLS:
        nested = re.compile(r"N(?:S\w?_)+(?=\d)").search(name, after)
        wrapped = _identifiers(name, nested.end())[0] if nested else []
        return (wrapped or own)[-1]
    return _own_name(own) if own else name


def _identifiers(name: str, position: int) -> tuple[list[str], int]:
    """Length-prefixed identifiers from a position on, and where they end."""
    found = []
    while length := re.compile(r"\d{1,4}").match(name, position):
        start = length.end()
        position = start + int(length[0])
        if position > len(name):
            break
        found.append(name[start:position])
    return found, position


def _without_arguments(name: str) -> str:
    """Up to the first round bracket outside angle brackets."""
    depth = 0
    for position, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth <= 0:
            return name[:position]
    return name


def _functor(template: str) -> str:
    """The functor that says what a shell does: inside general ones, the innermost."""
    names = [m[1] for m in _FUNCTOR.finditer(template)]
    telling = [n for n in names if n not in _GENERAL_FUNCTORS]
    if not telling:
        return names[0] if names else ""
    return telling[-1] if names[0] in _GENERAL_FUNCTORS else telling[0]


def _shell_word(shell: str) -> str:
    if shell == "reduce_kernel":
        return "reduce"
    return "multi-tensor" if shell == "multi_tensor_apply_kernel" else "elementwise"


_GENERAL_FUNCTORS = frozenset(
    {
        "AUnaryFunctor",
        "BUnaryFunctor",
        "BinaryFunctor",
        "ReduceOp",
        "func_wrapper_t",
        "gpu_kernel_impl",
        "gpu_kernel_impl_nocast",
        "UnaryOpFunctor",
        "BinaryOpListAlphaFunctor",
        "BinaryOpScalarFunctor",
        "PointwiseOpScalarFunctor",
    }
)
