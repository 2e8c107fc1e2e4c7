"""What other tools print, write and tabulate, by a line, the first bytes or the columns of it."""

import re

from pinchpoint.importers.files.strangers import RECORD
from pinchpoint.regex import regex

# Text that other tools print, by a line of it.
PRINTED = (
    (
        regex(
            rb"^==\d+== (NVPROF is|Profiling|Generated|Warning)|^=+ Profiling result:"
            rb'|^("?Type"?,)?"?Time(\(%\))?"?,"?Time"?,"?Calls"?,"?Avg',
            re.MULTILINE,
        ),
        "printed by nvprof, which NVIDIA replaced by Nsight Systems",
        "record again: nsys profile --export sqlite COMMAND, or pinchpoint run COMMAND",
    ),
    (
        regex(rb"^ *Name +(Self CPU %|Self CPU|CPU total)", re.MULTILINE),
        "sums by operator, as torch.profiler prints them, without times",
        'export what they are of: prof.export_chrome_trace("trace.json")',
    ),
    (
        regex(rb"^Flat profile:$", re.MULTILINE),
        "printed by gprof, which knows the host alone",
        RECORD,
    ),
    (
        # perf script: a program, its number, the time, then an address a line
        regex(
            rb"^\S.{0,30} +\d+(?:/\d+)?(?: \[\d+\])? +\d+\.\d+: +\d+ +[\w:./-]+: *\r?\n"
            rb"\s+[0-9a-f]{6,16} \S",
            re.MULTILINE,
        ),
        "samples of perf with their stacks (perf script), which know the host alone",
        RECORD,
    ),
    (
        # with the times of an iteration in it, it is read
        regex(rb"DeepSpeed Flops Profiler(?![\s\S]*latency: )"),
        "sums by module of DeepSpeed's FLOPs profiler, without what the device did",
        RECORD,
    ),
    (
        # frame;frame;frame number: of perf, py-spy and torch's export_stacks; a line may be long
        regex(
            rb"^[^,;\s][^;\n]*(;[^;\n]+)+ \d+\r?\n[^;\n]*(;[^;\n]+)+( \d+\r?\n|\Z)"
            rb"|^[^\n;]+\(\d+\): ?[^;\n]+(;[^;\n]+\(\d+\): ?[^;\n]+){3}"
        ),
        "stacks of samples, as flame graphs are drawn of, which know the host alone",
        RECORD,
    ),
    (
        regex(rb"\A(?:[^;\n]{1,400}(?:;[^;\n]{1,4000})+ \d+\.\d+(?:e[+-]?\d+)?\r?\n){2}"),
        "stacks with what each took, as flame graphs are drawn of, without when it ran",
        RECORD,
    ),
    (
        # the same of frames without a caller: name+offset number
        regex(rb"\A(?:[^;\n]{1,400}\+0x[0-9a-f]+ \d+\r?\n){3}"),
        "stacks of samples, as flame graphs are drawn of, which know the host alone",
        RECORD,
    ),
    (
        regex(rb"^=== (?:Device|API|Host) Timing Summary ===|^== L0 Backend ==", re.MULTILINE),
        "sums by kernel of Intel's unitrace (or onetrace), without when they ran",
        "record when they ran: unitrace --chrome-kernel-logging --chrome-call-logging PROGRAM",
    ),
    (
        regex(rb'\A\s*<(?:system version|graphs version)="\d+"[^>]*>\s*<(?:cpu|graph)\b'),
        "how NCCL sees the machine, or the rings it made of it: nothing of a run",
        "measure it: all_reduce_perf of nccl-tests; or record a rank: pinchpoint run COMMAND",
    ),
    (
        regex(rb'\A(?:<\?xml[^>]*>\s*)?<session version="\d+" name="[^"]*\.nvvp"'),
        "a session of NVIDIA's Visual Profiler, which Nsight Systems replaced",
        "record again: nsys profile --export sqlite COMMAND, or pinchpoint run COMMAND",
    ),
    (
        regex(rb"^Validator,(PT_VERSION|ROCBLAS_VERSION|HIPBLASLT_VERSION)", re.MULTILINE),
        "what PyTorch's TunableOp chose for matrix products, which tells nothing of a run",
        "record a run that uses it: PYTORCH_TUNABLEOP_ENABLED=1 pinchpoint run COMMAND",
    ),
    (
        regex(rb"\A\s*(?:\$ |\S+/)?(?:trtexec|nsys|ncu|nvprof|rocprofv3) [^\n]+\s*\Z"),
        "a command, not what it wrote",
        "run it, and give what it writes (trtexec: --exportProfile=profile.json)",
    ),
    (
        regex(rb"\AUsage: nvprof |\A(?:\S+ )?(?:nsys|ncu|rocprofv3|trtexec) .{0,40}--help"),
        "the help text of a profiler",
        "record with it, or: pinchpoint run COMMAND",
    ),
    (
        regex(rb"^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)?, *\d[\d.]*( ?[%\w/]+)?[,\n]"),
        "rows of nvidia-smi without their header (noheader), so which column is which is unknown",
        "put the fields that were asked for back as its first line: sed -i '1i timestamp,"
        " utilization.gpu [%], memory.used [MiB]' FILE; or log without noheader",
    ),
    (
        regex(rb"^Domain\(\w+\), .*Timestamp\(\d+", re.MULTILINE),
        "text printed by rocprofv2, which AMD replaced by rocprofv3",
        "record again: rocprofv3 --runtime-trace --kernel-trace --output-format json -- PROGRAM",
    ),
    (
        regex(rb"^ *\| *module +\| *#parameters or shape +\| *#flops", re.MULTILINE),
        "FLOPs by module as fvcore counts them, without what the device did",
        RECORD,
    ),
    (
        regex(rb"^__rec=(node|ctx)", re.MULTILINE),
        "a profile of Caliper: sums by region",
        RECORD,
    ),
)
MAGICS = (
    (
        b"\x00\x04\x00\x00\x05\x00\x00\x00\x01\x04\x00\x00",
        "a session of NVIDIA's Visual Profiler, which Nsight Systems replaced",
        "record again: nsys profile --export sqlite COMMAND, or pinchpoint run COMMAND",
    ),
    (b"HPCTOOLKIT", "a database of HPCToolkit", RECORD),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it: 7z x FILE"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it: unrar x FILE"),
    (b"\x04\x22\x4d\x18", "packed with LZ4", "unpack it: lz4 -d FILE"),
    (b"\x1f\x9d", "packed with compress", "unpack it: gunzip --keep FILE"),
    (b"PK\x05\x06", "an empty zip", "make it again, with the recording in it"),
    (b"\x89PNG", "a picture", "give the recording that it shows"),
    (b"%PDF", "a PDF", "give the recording that it shows"),
    (b"PAR1", "Parquet", "give the recording, or the .sqlite export of nsys"),
    (b"ARROW1", "Arrow", "give the recording, or the .sqlite export of nsys"),
    *(
        (
            bytes((0x80, version)),
            "a pickle of Python's that is no memory snapshot",
            "write its figures as JSON, where the program makes it: json.dump(figures, file)",
        )
        for version in range(2, 6)
    ),
)
# Tables beside recordings, by columns of theirs: sums without times.
TABLES = (
    (
        (b"name,", b"kernel duration"),
        "a table of kernels without when they ran, as TraceLens makes it of a trace",
        "give the trace that it was made of",
    ),
    (
        (b"correlation_id", b"counter_name", b"counter_value"),
        "counters of rocprofv3 without times",
        "give kernel_trace.csv beside it, or the folder of both",
    ),
    (
        (b"op name", b"direction", b"gpu duration (ns)"),
        "a report of DLProf, made from a recording of Nsight Systems",
        "give that: nsys_profile.sqlite beside it",
    ),
    (
        (b"op code", b"global call count", b"device kernel duration"),
        "a table of Tenstorrent's profiler (tt-metal)",
        "read it with tt-perf-report; Pinchpoint reads none of that device",
    ),
    (
        (b"name", b"totaldurationns", b"percentage"),
        "sums of rocprof by name, without times",
        "give the trace: rocprofv3 --kernel-trace --hip-trace --output-format json -- PROGRAM",
    ),
    (
        (b"computing", b"communication(not overlapped)", b"free"),
        "Ascend's sums a step, without what they are of",
        "give trace_view.json beside it",
    ),
    (
        (b"input shapes", b"host self duration(us)"),
        "Ascend's sums by operator",
        "give trace_view.json beside it",
    ),
    (
        (b"component,", b"timestamp(us)", b"total reserved"),
        "Ascend's memory over time, without what holds it",
        "give a memory snapshot, or trace_view.json beside it for times",
    ),
    (
        (b"allocation time(us)", b"release time(us)"),
        "Ascend's memory by operator, without what runs",
        "give trace_view.json beside it",
    ),
    (
        (b"hit rate", b"victim rate", b"op name"),
        "Ascend's counters of the L2 cache, without times",
        "give kernel_details.csv or trace_view.json beside it",
    ),
    (
        (b"level", b"api name", b"time(us)"),
        "Ascend's sums by call",
        "give trace_view.json beside it",
    ),
    (
        (b"op type", b"core type", b"total time(us)"),
        "Ascend's sums by kind of operator",
        "give trace_view.json beside it",
    ),
)
# A log that tells where the recording went; the path is the group. The database of nsys first: it
# needs no nsys.
WROTE = (
    regex(
        rb"^Generated:\s*\n(?:\s*\S+\.(?:nsys-rep|qdrep)\s*\n)?\s*(\S+\.sqlite)\s*$", re.MULTILINE
    ),
    regex(rb"^Generating SQLite file (\S+\.sqlite) from ", re.MULTILINE),
    regex(rb"^Generated:\s*\n\s*(\S+\.(?:nsys-rep|qdrep))\s*$", re.MULTILINE),
    regex(rb"^==PROF== Report: (\S+\.ncu-rep)\s*$", re.MULTILINE),
)


__all__ = ["MAGICS", "PRINTED", "TABLES", "WROTE"]
