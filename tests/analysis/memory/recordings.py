"""The committed recordings and what is true of them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pinchpoint as pp
from pinchpoint.analysis.memory.history import History, histories
from pinchpoint.trace import Trace

FOLDER = Path(__file__).parents[2] / "data" / "memory"
NAMES = sorted(p.name.removesuffix(".pickle.gz") for p in FOLDER.glob("*.pickle.gz"))


@cache
def recording(name: str) -> Trace:
    return pp.load(FOLDER / f"{name}.pickle.gz")


def history(name: str) -> History:
    return histories(recording(name))[0]


@cache
def truth(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / "truth.json").read_text())[name]
