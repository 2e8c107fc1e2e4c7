"""Kernel names short enough for people."""

import re

_RETURN_TYPE = re.compile(r"^(?:void|std::enable_if<.*?>::type) ")
_FUNCTOR = re.compile(
    r"(\w*(?:functor|ops?|kernel_impl|kernel_cuda|kernel|kernelimpl|scalar)(?:_\w+)?)\b(?=[<(,])",
    re.I,
)
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
    bare = _RETURN_TYPE.sub("", name.replace("(anonymous namespace)::", ""))
    head = _without_arguments(bare)
    plain = head.split("<", 1)[0].rsplit("::", 1)[-1].strip() or head
    inside = bare[bare.find("<") + 1 :] if "<" in bare else ""
    if plain in _PLAIN_SHELLS:
        functor = _functor(inside)
        plain = f"{_shell_word(plain)}: {functor}" if functor else plain
    elif plain in ("Kernel", "Kernel2") and "<" in bare:
        plain = re.split(r"[<>(,]", inside, maxsplit=1)[0].rsplit("::", 1)[-1]
    if len(plain) > _LONGEST_SHORT_NAME:
        plain = plain[: _LONGEST_SHORT_NAME - 1] + "…"
    return plain


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
