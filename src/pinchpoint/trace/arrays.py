"""Names for the arrays that pass between functions, declared once.

``Rows`` are positions in a table, as numpy's own index type, so that they index without a cast.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # the element type is the column's, see tables.py
Ints = NDArray[np.int64]  # times in nanoseconds, bytes, counts
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Codes = NDArray[np.uint8]  # values of an enumeration
NameIds = NDArray[np.int32]  # positions in Trace.names
Floats = NDArray[np.float64]
