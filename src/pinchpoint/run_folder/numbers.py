"""Numbers that the documents of a run folder hold, each within what sums of them can take."""

from typing import Annotated

import msgspec

_FITS = 1 << 62  # beyond it sums of times do not fit into 64 bits
Ns = Annotated[int, msgspec.Meta(ge=0, lt=_FITS)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Bytes = Annotated[int, msgspec.Meta(ge=0, lt=_FITS)]
Signed = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
