"""What a watch is in: room on the device, and folders whose code is not the program's."""

import sysconfig
from pathlib import Path
from typing import Any

LEAST_FREE_BYTES = 1 << 27  # of a device: three times what looking at tensors takes for a moment


def free_bytes(torch: Any) -> int:
    """Of the device in use, with what its allocator keeps and has not given out."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return LEAST_FREE_BYTES
    free: int = cuda.mem_get_info()[0]
    return free + int(cuda.memory_reserved() - cuda.memory_allocated())


def folders(torch: Any) -> tuple[str, ...]:
    """Folders of torch, of this package and of Python's own library."""
    ours = str(Path(__file__).parents[2])
    return (str(Path(torch.__file__).parent), ours, sysconfig.get_path("stdlib"))
