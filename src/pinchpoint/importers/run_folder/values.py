"""From the values document of a run folder to what rules read."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.run_folder.shared_answers import of_ranks
from pinchpoint.run_folder.documents import ProcessDocument, read
from pinchpoint.run_folder.layout import TRACES, VALUES
from pinchpoint.run_folder.values import (
    AttentionNote,
    BatchNote,
    OperationNote,
    TensorNote,
    ValuesDocument,
    WorkNote,
)
from pinchpoint.trace.run_values import (
    AttentionMask,
    IgnoredRows,
    Padding,
    ProductOrder,
    RunValues,
    SameCalls,
    SeenLoop,
    TriedAt,
    VainOperations,
    VainWork,
)

_OF_PADDING = ("mask", "ids", "frames")


def run_values(folder: Path, process: ProcessDocument) -> RunValues | None:
    """The look at the values of this process; None without one."""
    paths = sorted((folder / VALUES).glob(f"rank*.{process.pid}.json"))
    return next((found for path in paths if (found := _values(path)) is not None), None)


def values_beside(recording: str) -> RunValues | None:
    """The same of the process that wrote this file of a run folder's traces."""
    path = Path(recording)
    if path.parent.name != TRACES:
        return None
    documents = sorted((path.parent.parent / VALUES).glob("rank*.json"))
    mine = [one for one in documents if path.name.startswith(f"{one.stem}.")]
    return _values(mine[0]) if mine else None


def _values(path: Path) -> RunValues | None:
    try:
        found = read(path, ValuesDocument).document
    except UnreadableFile:  # the recordings stand without it
        return None
    return RunValues(
        found.step,
        len(found.batches),
        found.attention_seen,
        tuple(one for batch in found.batches for one in _padding(batch)),
        tuple(one for note in found.attention for one in _attention(note)),
        found.cost_ns,
        tuple(
            SameCalls(one.model, one.place, one.calls, one.distinct)
            for one in found.again
            if one.calls and one.distinct
        ),
        tuple(
            IgnoredRows(one.place, one.calls, one.rows, one.classes, one.ignored_ratio)
            for one in found.losses
            if one.rows and one.classes and one.ignored_ratio is not None
        ),
        None
        if found.work is None
        else (*map(_work, found.work), *of_ranks(path.parent.parent, found)),
        found.operators,
        found.views,
        found.work_not_seen,
        tuple(
            SeenLoop(one.way, one.turns, _those(one.operations), _those(one.carried))
            for one in found.loops
        ),
        tuple(
            TriedAt(one.place, one.operator, one.way, one.tried_ns, one.left_ratio)
            for one in found.rare
            if one.place is not None and one.left_ratio < 1
        ),
        found.cudnn_allow_tf32,
    )


def _those(notes: Iterable[OperationNote]) -> tuple[VainOperations, ...]:
    return tuple(
        VainOperations(o.name, o.shapes, o.count, o.which, o.of_name, o.which_of_name)
        for o in notes
    )


def _work(note: WorkNote) -> VainWork:
    return VainWork(
        note.kind,
        note.places,
        _those(note.operations),
        note.backward,
        note.times,
        note.of,
        note.kept_bytes,
        note.steps_ratio,
        note.read_ratio,
        note.read_ratio if note.left_ratio is None else note.left_ratio,
        ProductOrder(note.flops, note.flops_left, note.times_left, note.elements_left)
        if 0 < note.flops_left <= note.flops
        else None,
        gradients=note.gradients,
        tried_ns=note.tried_ns,
        beside_threads=note.beside_threads,
        way=note.way,
    )


def _padding(batch: BatchNote) -> Iterator[Padding]:
    """What the best evidence says. A mask that contradicts the ids is no mask of padding."""
    told = [t for t in batch.tensors if t.evidence in _OF_PADDING and t.lengths and t.width]
    by_values = next((t for t in told if t.evidence == "ids"), None)
    best = next((t for t in told if by_values is None or not _inverted(t, by_values)), None)
    if best is None or best.real_ratio is None or best.mean_length is None or not best.rows:
        return
    yield Padding(
        batch.place,
        batch.source,
        best.evidence,
        best.name,
        best.rows,
        best.width,
        best.rows_read,
        best.real_ratio,
        best.mean_length,
        best.lengths,
        best.side,
    )


def _inverted(mask: TensorNote, ids: TensorNote) -> bool:
    """Whether what a mask lets through is what the ids show as padding."""
    if mask.evidence != "mask" or mask.width != ids.width or mask.rows != ids.rows:
        return False
    there, shown = mask.real_ratio or 0.0, ids.real_ratio or 0.0
    return abs(1 - there - shown) < abs(there - shown)


def _attention(note: AttentionNote) -> Iterator[AttentionMask]:
    if note.real_ratio is not None and len(note.mask) >= 2 and len(note.queries) >= 2:
        yield AttentionMask(
            note.place,
            note.calls,
            note.queries,
            note.mask,
            note.dtype,
            note.kind,
            note.real_ratio,
            note.rows_read,
            note.rows_there,
            note.band,
        )
