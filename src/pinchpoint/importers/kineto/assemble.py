"""From scanned columns and the frame to a Trace."""

from types import MappingProxyType

from pinchpoint.importers.health import health_table
from pinchpoint.importers.kineto import facts
from pinchpoint.importers.kineto.clock import clock_of, origin_ns
from pinchpoint.importers.kineto.columns import Columns, Interned
from pinchpoint.importers.kineto.compiled import as_xla_says, written_by_xla
from pinchpoint.importers.kineto.device import device_tables
from pinchpoint.importers.kineto.document import Frame
from pinchpoint.importers.kineto.flows import flow_table
from pinchpoint.importers.kineto.health import Recording, recording_facts
from pinchpoint.importers.kineto.host import Sources, host_tables
from pinchpoint.importers.kineto.memory import allocation_table
from pinchpoint.importers.kineto.pairs import join_pairs
from pinchpoint.importers.kineto.rare import counter_table, kernel_counter_table, read_rare
from pinchpoint.importers.kineto.recorder import recorder_of, version_of_torch
from pinchpoint.importers.kineto.scan import Scanned
from pinchpoint.importers.kineto.scanner import ScannerName
from pinchpoint.importers.kineto.text import Text
from pinchpoint.importers.kineto.threads import Threads
from pinchpoint.importers.kineto.xla import move_streams
from pinchpoint.trace import Names, Source, Trace

FORMAT = "kineto"
UNNAMED = "unnamed"  # events without a name; the first of the trace's names


def assemble(text: Text, frame: Frame, scanned: Scanned, scanner: ScannerName) -> Trace:
    """Build every table."""
    rank, world_size = facts.rank_and_size(frame.members)
    columns = Columns(scanned)
    names = Names([UNNAMED])
    interned = Interned(columns.texts, names)
    rare = read_rare(columns.raw)
    unpaired = join_pairs(columns)
    move_streams(columns, rare)
    clock = clock_of(columns)
    sources = Sources(
        columns, interned, names, Threads(columns.places, rare), clock, rank, scanner, rare
    )
    host_ops, api_calls, steps, crossings, shows_torch = host_tables(sources)
    version = version_of_torch(frame.members)
    device_ops, device_annotations = device_tables(sources, host_ops, api_calls)
    flows = flow_table(sources)
    allocations = allocation_table(sources)
    has_device_side = len(device_ops) > 0 or len(api_calls) > 0
    found = Recording(
        frame=frame,
        scanned=scanned,
        columns=columns,
        unpaired=unpaired,
        clock=clock,
        rare=rare,
        damage=text.damage,
        rank=rank,
        devices=facts.devices(frame.members),
        host_ops=host_ops,
        api_calls=api_calls,
        device_ops=device_ops,
        steps=steps,
        names=names,
        crossings=crossings,
    )
    trace = Trace(
        source=Source(
            path=str(text.path),
            format=FORMAT,
            bytes=text.total_bytes,
            truncated=not scanned.ended or text.damage is not None,
            recorder=recorder_of(
                frame.members, rare.process_names.values(), shows_torch=shows_torch
            ),
            recorder_version=version,
            producer=f"torch {version}" if version else None,
            options=MappingProxyType(facts.options(frame.members) | {"scanner": scanner}),
        ),
        threads=sources.threads.freeze(),
        devices=facts.devices(frame.members),
        origin_ns=origin_ns(frame.members, clock.zero_ns),
        rank=rank,
        world_size=world_size,
        collective_backend=facts.collective_backend(frame.members),
        host_ops=host_ops,
        api_calls=api_calls if has_device_side else None,
        device_ops=device_ops if has_device_side else None,
        device_annotations=device_annotations if has_device_side else None,
        flows=flows,
        steps=steps,
        counters=counter_table(rare, names, clock.zero_ns, rank),
        kernel_counters=kernel_counter_table(rare, names),
        allocations=allocations,
        health=health_table(recording_facts(found), names),
        names=names.freeze(),
    )
    return as_xla_says(trace, rare, scanner) if written_by_xla(rare) else trace
