"""From the documents of a run folder to the facts that analyses read."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.run_folder.course import run_course
from pinchpoint.run_folder.documents import (
    CallsNote,
    EnvironmentDocument,
    GpuRecord,
    Placement,
    ProcessDocument,
    RunDocument,
    WorkerDocument,
    read_if_there,
)
from pinchpoint.run_folder.layout import METRICS_FILE, PROCESSES, TRACES, process_stem
from pinchpoint.run_folder.metrics import MetricsDocument, cores_taken
from pinchpoint.run_folder.step_times import StepTimes
from pinchpoint.trace import (
    BothBranches,
    CompiledCalls,
    DeviceSetting,
    Jacobian,
    LaunchTimes,
    LoaderWorker,
    NodeShares,
    RunFacts,
    ThreadDeath,
)


def run_facts(
    run: RunDocument,
    process: ProcessDocument,
    environment: EnvironmentDocument,
    workers: Sequence[WorkerDocument],
    metrics: MetricsDocument,
) -> RunFacts:
    """The facts of the process that was recorded, and of its machine."""
    return RunFacts(
        unprofiled_step_ns=process.steps.unprofiled_ns,
        quicker_than_run=process.steps.quicker_than_run,
        calls=tuple(_calls(note, run.working_directory) for note in process.calls),
        turns_at=_at(process.steps.place, run.working_directory),
        python=process.python,
        launch=_launch(process.steps),
        data_wait_ns=process.steps.unprofiled_wait_ns,
        command=run.command,
        working_directory=run.working_directory,
        # as the program itself had them, else as it was started
        variables=MappingProxyType(environment.variables.values | process.variables),
        cores_allowed=_cores_allowed(process.cores_allowed, environment.host.cgroup_cpu_max),
        cores_there=environment.host.cpus_logical,
        cores_of_others=_cores_of_others(metrics),
        disturbed=metrics.others.sentences,
        cpu_nodes=process.cpu_nodes,
        node_shares=_node_shares(process.placement),
        torch_threads=process.switches.torch_num_threads,
        onednn=process.switches.onednn,
        both_branches=tuple(
            BothBranches(
                (_relative(note.place[0], run.working_directory), *note.place[1:]),
                tuple(f"{file}:{line}" for file, line in note.lines),
            )
            for note in process.both_branches
        ),
        jacobians=tuple(
            Jacobian(
                (_relative(note.place[0], run.working_directory), *note.place[1:]),
                note.outputs,
                note.inputs,
            )
            for note in process.jacobians
        ),
        live_arrays=MappingProxyType(
            {(note.dtype, note.shape): note.count for note in process.live_arrays}
        ),
        deaths=tuple(
            ThreadDeath(
                note.thread,
                note.said,
                note.place and (_relative(note.place[0], run.working_directory), *note.place[1:]),
                note.after_ns,
            )
            for note in process.threads_died
        ),
        deaths_count=max(process.threads_died_count, len(process.threads_died)),
        line_tracer=process.line_tracer,
        cpu_features=environment.host.cpu_features,
        page_faults_per_step=process.steps.page_faults_per_step,
        kernel_ns_per_step=process.steps.kernel_ns_per_step,
        user_ns_per_step=process.steps.user_ns_per_step,
        workers_ns_per_step=_workers_ns_per_step(process.steps, workers),
        loader_workers=tuple(
            LoaderWorker(
                w.workers,
                w.busy_ns,
                w.alive_ns,
                w.torch_threads,
                w.collate,
                w.batch_bytes,
                w.read_bytes,
                w.batches,
                w.stream.samples if w.stream else 0,
                w.stream.calls if w.stream else (),
            )
            for w in workers
        ),
        course=run_course(run, process),
        device=_setting(device_record(process, environment)),
        devices=environment.gpu.count,
        processes=len(metrics.ranks) or None,
    )


def _workers_ns_per_step(steps: StepTimes, workers: Sequence[WorkerDocument]) -> float | None:
    """None where nothing is known of workers, or of the batches that a step takes."""
    batches = sum(worker.batches for worker in workers)
    if not batches or not steps.batches_per_step:
        return None
    return steps.batches_per_step * sum(worker.cpu_ns for worker in workers) / batches


def _calls(note: CallsNote, folder: str | None) -> CompiledCalls:
    return CompiledCalls(
        place=(_relative(note.place[0], folder), *note.place[1:]),
        function=note.called,
        inside=note.inside,
        inside_mean_ns=note.inside_mean_ns,
        inside_median_ns=note.inside_median_ns,
        before_ns=note.steps.before_ns,
        after_ns=note.steps.after_ns,
        step_ns=note.steps.unprofiled_ns,
    )


def _launch(steps: StepTimes) -> LaunchTimes | None:
    """None where nothing was measured, or it is not known of one of the two."""
    found = steps.launch_ns
    if found.before is None or found.after is None:
        return None
    return LaunchTimes(found.before, found.after, steps.unloaded_steps)


def _at(place: tuple[str, int, str] | None, folder: str | None) -> tuple[str, int, str] | None:
    return None if place is None else (_relative(place[0], folder), *place[1:])


def _relative(file: str, folder: str | None) -> str:
    """As frames are spelt: without the folder that the program was started in."""
    return file if folder is None else file.removeprefix(folder.rstrip("/") + "/")


def was_contended(recording: str) -> bool:
    """Whether others took the cores while this file of a run folder's traces was recorded."""
    folder = Path(recording).parent
    if folder.name != TRACES:
        return False
    try:
        metrics = read_if_there(folder.parent / METRICS_FILE, MetricsDocument).document
    except UnreadableFile:
        return False
    return cores_taken(metrics.others.cpu)


def timed_steps_ns(recording: str) -> tuple[int, ...]:
    """The steps that the process which wrote this file of a run folder's traces timed beside its
    recordings; empty where it timed none."""
    process = process_of(recording)
    return () if process is None else process.steps.unprofiled_ns


def process_of(recording: str) -> ProcessDocument | None:
    """What the process noted that wrote this file of a run folder's traces; None without."""
    path = Path(recording)
    if path.parent.name != TRACES:
        return None
    note = path.parent.parent / PROCESSES / f"{process_stem(path.name)}.json"
    try:
        return read_if_there(note, ProcessDocument).document
    except UnreadableFile:
        return None


def _cores_of_others(metrics: MetricsDocument) -> float | None:
    used = metrics.others.cpu.get("cores_used_by_others")
    return float(used) if isinstance(used, int | float) else None


def device_record(process: ProcessDocument, environment: EnvironmentDocument) -> GpuRecord | None:
    """What is recorded of the device that the process used: by its uuid, or the only one."""
    devices = environment.gpu.devices or ()
    uuid = None if process.device is None else process.device.uuid
    mine = [d for d in devices if uuid is not None and d.uuid == uuid]
    mine = mine or (list(devices) if len(devices) == 1 else [])
    return mine[0] if mine else None


def _setting(record: GpuRecord | None) -> DeviceSetting | None:
    if record is None:
        return None
    return DeviceSetting(record.power_limit_default_w, record.numa_node)


def _node_shares(found: Placement | None) -> NodeShares | None:
    """None where nothing was held or ran, or the nodes have no distances."""
    if found is None:
        return None
    held, ran = sum(found.bytes.values()), sum(found.cpu_ticks.values())
    farthest = max((far for row in found.distances for far in row), default=0)
    if not held or not ran or not farthest:
        return None
    return NodeShares(
        {int(node): size / held for node, size in found.bytes.items() if node.isdecimal()},
        {int(node): ticks / ran for node, ticks in found.cpu_ticks.items() if node.isdecimal()},
        min(found.pinned_ticks / ran, 1.0),
        min(min((far for row in found.distances for far in row), default=10) / farthest, 1.0),
    )


def _cores_allowed(affinity: int | None, cpu_max: str | None) -> float | None:
    """Affinity, cut by the control group's quota; None where neither is known."""
    quota = _quota(cpu_max)
    known = [float(cores) for cores in (affinity, quota) if cores is not None]
    return min(known) if known else None


def _quota(text: str | None) -> float | None:
    """``cpu.max`` of a control group: ``200000 100000`` is two cores, ``max 100000`` none."""
    parts = (text or "").split()
    if len(parts) != 2 or not all(p.isascii() and p.isdecimal() and len(p) < 16 for p in parts):
        return None
    return int(parts[0]) / max(int(parts[1]), 1)
