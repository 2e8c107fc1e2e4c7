"""What an export should hold by its own account and does not."""

import re
from collections.abc import Iterator

import numpy as np

from pinchpoint.importers._captures import in_capture
from pinchpoint.importers.health import Fact
from pinchpoint.importers.nsys.database import Database
from pinchpoint.trace import ApiKind, DeviceKind, Names, Table

MOST_LOST_RATIO = 0.5  # of launches without a device operation: the device side is unusable
_NEWER_FORM = re.compile(r"(CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS)_V\d+")


def unread_tables(database: Database) -> Iterator[Fact]:
    """Tables whose name says that they are a newer form of one that is read."""
    unread = sorted(name for name in database.columns if _NEWER_FORM.fullmatch(name))
    if unread:
        yield Fact("tables-unread", len(unread), f"tables of an unknown form: {', '.join(unread)}")


def lost_launches(calls: Table | None, ops: Table | None, names: Names) -> Iterator[Fact]:
    """Launches of kernels and graphs without device work, beside those into a captured graph."""
    if calls is None or not len(calls):
        return
    launch = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))
    launch &= ~in_capture(calls, names)
    answered = np.zeros(len(calls), np.bool_)
    if ops is not None and len(ops):
        answered[ops["api_call"][ops.known("api_call")]] = True
    lost = np.flatnonzero(launch & ~answered)
    if not len(lost):
        return
    what = "launches-lost"
    if len(lost) > MOST_LOST_RATIO * launch.sum():
        what = _instead(ops, len(lost))
    yield Fact(what, len(lost), time_ns=int(calls["start_ns"][lost[0]]))


def _instead(ops: Table | None, lost: int) -> str:
    """What it means that most launches have no device work: by what ran in their place."""
    if ops is None or not np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE)).any():
        return "kernels-not-recorded"
    unlinked = ~ops.known("api_call")
    if unlinked.sum() < lost / 2:
        return "device-activity-lost"
    alike = len(np.unique(ops.filled("correlation", 0)[unlinked])) == 1
    return "links-missing" if alike else "device-far-behind"
