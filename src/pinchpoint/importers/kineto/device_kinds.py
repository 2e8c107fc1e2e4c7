"""What a device operation is, from its category and name: kernel, copy, memset, collective."""

import re

from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, MemoryKind
from pinchpoint.trace.kinds import collective_kind

_COPY_CATEGORIES = ("gpu_memcpy", "Memcpy")
_MEMSET_CATEGORIES = ("gpu_memset", "Memset")
_COLLECTIVE_CATEGORIES = ("collective_comm",)
MTIA_CATEGORY = "mtia_ccp_events"
_TIMELINE_CATEGORY = "Op"  # of TensorFlow 1
ANNOTATION_CATEGORY = "gpu_user_annotation"

_ARROW = regex(r"\((\w+) -> (\w+)\)")
_SHORT = regex(
    r"\b([HDAPMS])to([HDAPMS])\b|\(([HDMS])2([HDMS])\)|\b(?:Memcpy|MEMCPY)([HDAP])(?:to|2)([HDAP])"
)
_XLA_COPY = regex(r"Mem(cpy|set)")  # MemcpyH2D, MemcpyD2D, Memset; without a category
# What drivers call copies, and compilers kernels: tools of one's own write them without a category.
_OWN_COPY = regex(r"\[?mem(cpy|set)\]? ?[hd](?:to|2)[hd]\b", re.IGNORECASE)
# What IBM's AIU ran: an operation prepared and executed, transfers into it and out of it.
_AIU = regex(r".{1,300} (?:Cmpt (?P<step>Prep|Exec)|Dma[IO])$")
_AIU_RANKS = "SenRdma"  # transfers between AIUs
_SIGNATURE = regex(r"void [\w:]+<.*?>\(")  # and a bracket at its end
_LONG = regex(r"(host|device)[_ ]?to[_ ]?(host|device)", re.IGNORECASE)
_WORDS = {
    "Pageable": MemoryKind.PAGEABLE,
    "Pinned": MemoryKind.PINNED,
    "Host": MemoryKind.HOST,
    "Device": MemoryKind.DEVICE,
    "Array": MemoryKind.ARRAY,
    "Managed": MemoryKind.UNIFIED,
    "Unified": MemoryKind.UNIFIED,
    "H": MemoryKind.HOST,
    "M": MemoryKind.HOST,  # Level Zero: memory of the system
    "S": MemoryKind.UNIFIED,  # Level Zero: shared
    "D": MemoryKind.DEVICE,
    "A": MemoryKind.ARRAY,
    "P": MemoryKind.DEVICE,
}
UNKNOWN_MEMORY = 0  # MemoryKind of letters not listed above
NOT_AN_OPERATION = 0  # waits and records of events, annotations


def device_kind(category: str, name: str) -> int:
    """The DeviceKind, or NOT_AN_OPERATION."""
    if category == ANNOTATION_CATEGORY:
        return NOT_AN_OPERATION
    if category in _COPY_CATEGORIES:
        return DeviceKind.COPY
    if category in _MEMSET_CATEGORIES:
        return DeviceKind.MEMSET
    if not category and (told := _by_name(name)) is not None:
        return told
    if category == _TIMELINE_CATEGORY and name.startswith("MEMCPY"):
        return DeviceKind.COPY
    if category == MTIA_CATEGORY:
        if name.startswith("event_"):
            return NOT_AN_OPERATION
        return DeviceKind.COPY if name == "dma_request" else DeviceKind.KERNEL
    if category in _COLLECTIVE_CATEGORIES or collective_kind(name):
        return DeviceKind.COLLECTIVE
    return DeviceKind.KERNEL


def _by_name(name: str) -> int | None:
    """Of an event without a category; None where its name says nothing."""
    if found := _XLA_COPY.match(name) or _OWN_COPY.match(name):
        return DeviceKind.COPY if found[1].lower() == "cpy" else DeviceKind.MEMSET
    if found := _AIU.match(name):
        return _of_aiu(name, found["step"])
    return None


def _of_aiu(name: str, step: str | None) -> int:
    """What is prepared waits for what it needs: nothing runs meanwhile."""
    if step is not None:
        return NOT_AN_OPERATION if step == "Prep" else DeviceKind.KERNEL
    return DeviceKind.COLLECTIVE if name.startswith(_AIU_RANKS) else DeviceKind.COPY


def is_called_as_on_device(name: str) -> bool:
    """Whether a range without a category has the name of a copy or the signature of a kernel.

    Functions of the host have such signatures, too; copies (``is_drivers_copy``) tell them apart.
    """
    if _AIU.match(name) is not None:
        return True
    return is_drivers_copy(name) or (name.endswith(")") and _SIGNATURE.match(name) is not None)


def is_drivers_copy(name: str) -> bool:
    """Whether it is what drivers call copies from the host and to it: [MEMCPY] HtoD.

    Or what an AIU executed, which nothing else is called as.
    """
    return _OWN_COPY.match(name) is not None or name.endswith(" Cmpt Exec")


def copy_ends(name: str) -> tuple[int, int]:
    """MemoryKind of source and target of a copy; UNKNOWN_MEMORY where the name does not say.

    Kinds of host memory are told apart only by recent CUDA; ``PtoP`` goes to a peer device.
    """
    words: tuple[str, ...] = ()
    if found := _ARROW.search(name):
        words = found.groups()
    elif (found := _SHORT.search(name)) or (found := _LONG.search(name)):
        words = tuple(word if len(word) == 1 else word.title() for word in found.groups() if word)
    if len(words) != 2:
        return UNKNOWN_MEMORY, UNKNOWN_MEMORY
    source, target = (int(_WORDS.get(word, UNKNOWN_MEMORY)) for word in words)
    if "PtoP" in name:
        target = MemoryKind.PEER
    return source, target


def memset_target(name: str) -> int:
    """MemoryKind that a memset fills; UNKNOWN_MEMORY where the name does not say."""
    found = re.search(r"\((\w+)\)", name)
    return _WORDS.get(found[1], UNKNOWN_MEMORY) if found else UNKNOWN_MEMORY
