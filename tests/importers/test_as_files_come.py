"""Recordings as people have them: packed, in archives, behind URLs; and what is no recording."""

import base64
import bz2
import gzip
import io
import lzma
import marshal
import tarfile
import zipfile
from functools import partial

import pytest

from kineto_documents import document, op
from pinchpoint.cli import main
from pinchpoint.errors import HostileFile, MissingExtra, UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.files import packed
from pinchpoint.importers.kineto import read_arguments
from pinchpoint.importers.open import as_folder, format_of

TRACE = document(op("aten::mm", 0, 100, Input_Dims=[[2, 3]])).encode()


def zstd(raw):
    arrow = pytest.importorskip("pyarrow")
    sink = arrow.BufferOutputStream()
    with arrow.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(raw)
    return sink.getvalue().to_pybytes()


def tar(members, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.name = name
            raw = b"" if content is info else content
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return buffer.getvalue()


def link(kind, target):
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


def file(folder, name, raw):
    path = folder / name
    path.write_bytes(raw)
    return path


PACKED = {
    "t.json.zst": zstd,
    "t.json.xz": lzma.compress,
    "t.json.bz2": bz2.compress,
    "twice.json.gz": lambda raw: gzip.compress(gzip.compress(raw)),
    "no-suffix": lzma.compress,
    "t.tar": lambda raw: tar({"t.json": raw}),
    "t.tar.gz": lambda raw: gzip.compress(tar({"a/t.json": raw, "a/README": b"x"})),
    "t.tgz": lambda raw: gzip.compress(tar({"t.json.gz": gzip.compress(raw)})),
    "t.tar.xz": lambda raw: lzma.compress(tar({"t.json": raw})),
    "t.tar.zst": lambda raw: zstd(tar({"t.json.xz": lzma.compress(raw)})),
    # as > of Windows PowerShell writes it, in either order of bytes
    "t.json": lambda raw: raw.decode().encode("utf-16"),
    "big-endian": lambda raw: b"\xfe\xff" + raw.decode().encode("utf-16-be"),
    "page.html": lambda raw: _viewer(raw),
    "artifact.zip": lambda raw: _zip({"job.tar": tar({"t.json": raw})}),
}


def _zip(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return buffer.getvalue()


def _viewer(raw):
    """As torch.cuda._memory_viz writes its page."""
    return (
        b'\n<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type="module">\n'
        b'import {add_local_files} from "https://cdn.jsdelivr.net/gh/x/viz/MemoryViz.js"\n'
        b'const local_files = [{"name": "snapshot.pickle", "base64": "'
        + base64.b64encode(raw)
        + b"\"}]\nadd_local_files(local_files, 'Active Memory Timeline')\n</script>\n</body>\n"
    )


@pytest.mark.parametrize("name", PACKED)
def test_what_is_packed_is_read(tmp_path, name):
    path = file(tmp_path, name, PACKED[name](TRACE))
    trace = load(path)
    assert trace.names[int(trace.host_ops["name"][0])] == "aten::mm"
    assert trace.source.path == str(path)
    assert read_arguments(trace, [0]) == [{"Input Dims": [[2, 3]]}]
    assert list(tmp_path.iterdir()) == [path]


def test_the_format_is_seen_through_a_packing(tmp_path):
    assert format_of(file(tmp_path, "t.json.xz", lzma.compress(TRACE))) == "kineto"


def test_without_a_package_zstandard_says_what_to_do(tmp_path, monkeypatch):
    path = file(tmp_path, "t.json.zst", zstd(TRACE))
    monkeypatch.setattr(packed, "_ZSTD_READERS", ())
    with pytest.raises(MissingExtra, match=r"t\.json\.zst") as caught:
        load(path)
    assert "zstd -d" in caught.value.hint


@pytest.mark.parametrize(
    "pack",
    [lzma.compress, partial(bz2.compress, compresslevel=1), _viewer],
    ids=["xz", "bzip2", "page"],
)
def test_of_half_a_download_the_beginning_is_read(tmp_path, pack):
    many = document(*(op(f"aten::op{i}", i * 10, 5) for i in range(20_000))).encode()
    raw = pack(many)
    trace = load(file(tmp_path, "t.json.packed", raw[: len(raw) * 2 // 3]))
    assert trace.source.truncated
    assert 0 < len(trace.host_ops) < 20_000


def test_half_a_tar_is_refused_with_the_command(tmp_path):
    raw = gzip.compress(tar({f"rank{i}.json": TRACE * 99 for i in range(9)}))
    with pytest.raises(UnreadableFile, match="cut-off") as caught:
        load(file(tmp_path, "job.tar.gz", raw[: len(raw) // 2]))
    assert "curl -C -" in caught.value.hint


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(tar({"up/../../../t.json": TRACE}), id="a name that leads out"),
        pytest.param(tar({"/etc/t.json": TRACE}), id="an absolute name"),
        pytest.param(
            tar({"l.json": link(tarfile.SYMTYPE, "/etc/passwd"), "t.json": TRACE}), id="a link"
        ),
        pytest.param(
            tar({"d": link(tarfile.SYMTYPE, "/tmp"), "d/t.json": TRACE}), id="through a link"
        ),
        pytest.param(tar({"p": link(tarfile.FIFOTYPE, ""), "t.json": TRACE}), id="a pipe"),
    ],
)
def test_no_name_or_link_leads_out(tmp_path, raw):
    inside = tmp_path / "inside"
    inside.mkdir()
    assert len(load(file(inside, "t.tar", raw)).host_ops) == 1
    assert [p.name for p in tmp_path.rglob("*")] == ["inside", "t.tar"]


@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(lzma.compress, id="xz"),
        pytest.param(lambda raw: gzip.compress(tar({"t.json": raw})), id="tar.gz"),
    ],
)
def test_bombs_are_refused(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(packed, "ALWAYS_ALLOWED_BYTES", 1 << 20)
    with pytest.raises(HostileFile, match="unpacks to more than"):
        load(file(tmp_path, "t.json.xz", lzma.compress(pack(TRACE + b" " * (20 << 20)))))


def test_packed_without_end_is_refused(tmp_path):
    raw = TRACE
    for _ in range(9):
        raw = lzma.compress(raw)
    with pytest.raises(UnreadableFile, match="packed more than 4 times"):
        load(file(tmp_path, "t.json", raw))


def test_a_tar_of_very_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pinchpoint.importers.files.archives.MOST_MEMBERS", 5)
    with pytest.raises(HostileFile, match="far too many files"):
        load(file(tmp_path, "t.tar", tar({f"{i}.txt": b"" for i in range(9)})))


def test_several_recordings_become_a_folder(tmp_path):
    raw = gzip.compress(tar({f"it0/rank{i}.json": TRACE for i in range(3)} | {"log.txt": b"x"}))
    path = file(tmp_path, "job.tar.gz", raw)
    with pytest.raises(UnreadableFile, match="3 recordings"):
        load(path)
    with as_folder(path) as folder:
        found = sorted(p.name for p in folder.rglob("*.json"))
    assert found == ["rank0.json", "rank1.json", "rank2.json"]
    assert not folder.exists()


STRANGERS = {
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345678\n",
        "a Git LFS pointer to 12.3 MB",
        "git lfs pull --include",
    ),
    "annex": (b"/annex/objects/SHA256E-s12--ab.json\n", "a git-annex pointer", "git annex get"),
    "nvprof": (
        b"==11568== NVPROF is profiling process 11568, command: python train.py\n",
        "printed by nvprof",
        "nsys profile --export sqlite",
    ),
    "chakra": (
        b"\x1f\x12\x1d\n\x06schema\xea\x01\x121.0.2-chakra.0.0.4",
        "a Chakra execution trace",
        "the run that it was made from",
    ),
    "page": (b"<!DOCTYPE html><html><title>Sign in</title>", "an HTML page", "curl -fLO"),
    "blob": (
        b"<!DOCTYPE html>\n<html><title>GitHub: t.json</title>",
        "the page about a file",
        "/raw/",
    ),
    "picture": (
        b"<!DOCTYPE html><html><head><title>Memory Timeline</title>",
        "a memory timeline as a picture",
        "raw.json.gz",
    ),
    "bucket": (
        b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>',
        "an object store's answer (NoSuchKey)",
        "curl -fLO",
    ),
    "api": (b'{"message": "Not Found", "status": "404"}', "a server's answer", "curl -fLO"),
    "raw": (b"404: Not Found", "a server's answer", "curl -fLO"),
    "text": (
        b"\n\x90\x06\x12\n/device:TPU:0" + b"\x08\x90\x91\xfe\xff" * 50,
        "binary data that was handled as text",
        "binary in .gitattributes",
    ),
    "requests": (
        b'[{"id":1,"timestamps":[{"name":"REQUEST_START","ns":5294383808197}]}]',
        "a Triton server",
        "pinchpoint bench serve",
    ),
    "spans": (
        b'{"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": []}]}]}',
        "spans of OpenTelemetry (OTLP)",
        "pinchpoint run",
    ),
    "asynchronous": (
        b'[{"cat": "r", "name": "1", "id": "1", "ph": "b", "ts": 2.5, "pid": 0},'
        b' {"cat": "r", "name": "1", "id": "1", "ph": "e", "ts": 4.5, "pid": 0}]',
        "events of requests alone",
        "pinchpoint run",
    ),
    "samples": (
        b'{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []}',
        "a speedscope profile",
        "pinchpoint run",
    ),
    "firefox": (
        b'{"meta":{"categories":[{"name":"User"}],"interval":1.0,"processType":0},"threads":[]}',
        "a Firefox profile (samply)",
        "pinchpoint run",
    ),
    "cprofile": (
        marshal.dumps({("model.py", 3, "forward"): (1, 1, 0.5, 0.5, {})}),
        "statistics of Python's cProfile",
        "pinchpoint run",
    ),
    "perf": (b"PERFILE2h\0\0\0\0\0\0\0", "a recording of Linux perf", "pinchpoint run"),
    "values": (
        b"\x18" + b"\0" * 7 + b"abcd\t12345678\x1a\rbrain.Event:2efgh",
        "TensorBoard's log of values",
        ".xplane.pb",
    ),
    "7z": (b"7z\xbc\xaf\x27\x1c" + b"\0" * 99, "a 7z archive", "7z x"),
    "memray": (
        b"\x04\x22\x4d\x18@@\xc0\xeb\xb9\0\0\xf8\x06memray\0\x0c\0",
        "a recording of memray",
        "pinchpoint run",
    ),
    "pyinstrument": (
        b'{"start_time": 1.5, "duration": 2.5, "sample_count": 9, "root_frame": {}}',
        "a profile of pyinstrument",
        "pinchpoint run",
    ),
    "browser": (
        b'{"traceEvents": [{"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args":'
        b' {"name": "CrRendererMain"}}, {"ph": "X", "name": "RunTask", "ts": 1, "dur": 2}]}',
        "a trace of a browser",
        "pinchpoint run",
    ),
    "stacks": (b"main;forward;gemm 7\nmain;backward 5\n", "stacks of samples", "pinchpoint run"),
    "perf script": (b"# ========\n# captured on: Mon\n", "perf script", "pinchpoint run"),
    "report": (
        b"<!DOCTYPE html><html><title>Scalene</title>",
        "an HTML page, titled 'Scalene'",
        "the recording that the report shows",
    ),
    "nvprof after other lines": (
        b"nohup: ignoring input\n==7== NVPROF is profiling process 7\n",
        "printed by nvprof",
        "nsys profile",
    ),
    "Ascend's cluster": (
        b'{\n  "p2p": {\n    "step2": {\n',
        "notes beside a recording of Ascend's profiler",
        "trace_view.json",
    ),
    "nvprof's sums": (
        b'"Time(%)","Time","Calls","Avg","Min","Max","Name"\n47.79,542.3,45,12.0,12.0,12.1,"k(int)"\n',
        "printed by nvprof",
        "nsys profile",
    ),
    "nvprof's sums of both kinds": (
        b'"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,ms,ms,ms,\n',
        "printed by nvprof",
        "nsys profile",
    ),
    "key averages": (
        b"-------  -------\n   Name    Self CPU %      Self CPU\n",
        "sums by operator",
        "export_chrome_trace",
    ),
    "deepspeed": (b"--- DeepSpeed Flops Profiler ---\n", "DeepSpeed's FLOPs", "pinchpoint run"),
    "mlperf": (b':::MLLOG {"key": "a"}\n', "a log of MLPerf", "pinchpoint run"),
    "horovod": (
        b'[\n{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},\n',
        "a timeline of Horovod",
        "pinchpoint run",
    ),
    "a page of another tool": (
        b'{"maps": {"device0": {"Conv-op1": {"st": 18.5, "ed": 19.0, "dur": 0.5}}}}',
        "as a page of another tool draws them",
        "msprof_",
    ),
    "proton": (b'\n[{"children": [], "frame": {"name": "gemm"}}]', "Triton's Proton", "trace"),
    "workload": (b'{"workload_graph": []}', "a workload for simulators", "of the run"),
    "chakra of 1.0": (
        b"^\x12\x10\n\x06schema\xea\x01\x051.0.1\x12",
        "a Chakra execution trace",
        "the run that it was made from",
    ),
    "dlprof": (
        b"Iteration Report\nIteration,Op ID,Op Name,Direction,GPU Duration (ns)\n",
        "a report of DLProf",
        "nsys_profile.sqlite",
    ),
    "stacks of torch": (
        b"x\\threading.py(884): run;x\\app.py(6): a;nn.py(7): b;conv.py(4): c;" + b"d" * 5000,
        "stacks of samples",
        "pinchpoint run",
    ),
    "noheader": (
        b"2026/04/25 16:06:06.780, 0 %, 0 %, 2 MiB, 20146 MiB, 27, 11.64 W\n",
        "without their header",
        "timestamp, utilization.gpu [%]",
    ),
    "noheader, nounits": (b"2025/09/08 14:14:37.120, 0, 11409\n", "without their header", "sed"),
    "a log of logging": (
        b"2022-09-21 10:32:56,963:INFO:step 1\n",
        "text without one",
        "pinchpoint run",
    ),
    "rocprofv2": (
        b"Domain(ROCTX_DOMAIN), Timestamp(2143674432317505), ROCTX_ID(0)\n",
        "printed by rocprofv2",
        "rocprofv3",
    ),
    "fvcore": (
        b"INFO: SCNN\n | module   | #parameters or shape   | #flops   |\n",
        "FLOPs by module",
        "pinchpoint run",
    ),
    "caliper": (b"__rec=node,id=31,attr=10,data=77,parent=1\n", "Caliper", "pinchpoint run"),
    "hpctoolkit": (b"HPCTOOLKITprof\x04\0", "HPCToolkit", "pinchpoint run"),
    "kernels without times": (
        "name,Kernel duration (µs),stream\ngemm,16.5,3\n".encode(),
        "TraceLens",
        "the trace that it was made of",
    ),
    "flame graph": (
        b'<?xml version="1.0"?><svg width="1200"><title>py-spy</title>',
        "a picture (SVG)",
        "pinchpoint run",
    ),
    "log of nsys": (
        b"loading\n" + b"step\n" * 2000 + b"Generated:\n\t/runs/a.nsys-rep\n\t/runs/a.sqlite\n",
        "the log of a program that was recorded",
        "/runs/a.sqlite",
    ),
    "log of nsys without an export": (
        b"loading\n" + b"step\n" * 2000 + b"Generated:\n    /runs/a.nsys-rep\n",
        "the log of a program that was recorded",
        "/runs/a.nsys-rep",
    ),
    "log of ncu": (
        b'==PROF== Profiling "gemm": 0%....100% - 9 passes\n==PROF== Report: /runs/a.ncu-rep\n',
        "",
        "/runs/a.ncu-rep",
    ),
    "sums behind a log": (
        b"epoch 1\n" * 1000 + b"   Name    Self CPU %      Self CPU\n",
        "sums by operator",
        "export_chrome_trace",
    ),
    "line_profiler": (
        b"\x80\x04\x95\xa2\x01\0\0\0\0\0\0\x8c\x0e_line_profiler\x94\x8c\tLineStats\x94",
        "times by line of line_profiler",
        "pinchpoint run",
    ),
    "visual profiler": (
        b"\0\x04\0\0\x05\0\0\0\x01\x04\0\0\x01\0\0\0program\0",
        "Visual Profiler",
        "nsys profile",
    ),
    "topology": (b'<system version="1">\n  <cpu numaid="0">\n', "how NCCL sees", "all_reduce_perf"),
    "session in XML": (
        b'<?xml version="1.0"?>\n<session version="2" name="New.nvvp" hscale="4.4E-6">\n',
        "Visual Profiler",
        "nsys profile",
    ),
    "engine": (
        b'{"Layers": [{"Name": "conv1", "LayerType": "CaskConvolution"',
        "TensorRT built",
        "trtexec",
    ),
    "nvprof without a process": (
        b"======== Profiling result:\n   Start  Duration  Name\n",
        "printed by nvprof",
        "nsys profile",
    ),
    "FLOPs in a log": (
        b"2022-10-26 16:05:43,329, INFO, a\n | module | #parameters or shape | #flops |\n",
        "FLOPs by module",
        "pinchpoint run",
    ),
    "tunable": (b"Validator,PT_VERSION,2.11.0\nGemm,tn_1,Default,0.1\n", "TunableOp", "run"),
    "weights": (b"app;[CUDA memset] 3.25\napp;gemm 9.5\n", "stacks with what each took", "run"),
    "frames": (b"alloc+0x3f6 25\nprint+0xb2 14\nidle+0x12 9\n", "stacks of samples", "run"),
    "command": (b"/usr/bin/trtexec --onnx=a.onnx --fp16", "a command", "--exportProfile"),
    "unitrace": (b"\n=== Device Timing Summary ===\n\n== L0 Backend ==\n", "unitrace", "--chrome"),
    "a server's counters": (
        b'# HELP nv_inference_request_success n\nnv_inference_request_success{model="m"} 9\n',
        "counters of a server",
        "bench serve",
    ),
    "gprof": (b"Flat profile:\n\nEach sample counts as 0.01 seconds.\n", "gprof", "pinchpoint run"),
    "pickle": (b"\x80\x03]q\0(}q\x01(X\x04\0\0\0loss", "a pickle of Python's", "as JSON"),
    "perf script of a task clock": (
        b"train 77 150520.991529:   1000 task-clock:ppp: \n\t    aaaac1479980 f+0x1 (/bin/train)\n"
        b"\t    ffff804d8598 main+0x98 (/usr/lib/libc.so.6)\n\n",
        "samples of perf",
        "pinchpoint run",
    ),
    "lz4": (b"\x04\x22\x4d\x18" + b"\0" * 99, "packed with LZ4", "lz4 -d"),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_what_is_no_recording_is_named_with_what_helps(tmp_path, capsys, name):
    raw, what, helps = STRANGERS[name]
    if name == "text":
        raw = raw.decode("utf-8", "replace").encode()
    path = file(tmp_path, "rank0.json.gz", raw)
    assert main(["diagnose", str(path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert what in said[0]
    assert helps in said[1]


@pytest.mark.parametrize("name", ["a.overview_page.json", "pod_viewer.pb"])
def test_pages_of_xprof_lead_to_the_recording(tmp_path, name):
    with pytest.raises(UnreadableFile, match="a page of XProf") as caught:
        load(file(tmp_path, name, b'{"cols": []}'))
    assert ".xplane.pb" in caught.value.hint


def test_a_program_without_times_leads_to_the_recording(tmp_path):
    with pytest.raises(UnreadableFile, match="a compiled program") as caught:
        load(file(tmp_path, "jit_f(13).hlo_proto.pb", b"\x0a\x05jit_f"))
    assert ".xplane.pb" in caught.value.hint


def test_lines_of_json_are_no_table(tmp_path):
    line = b'{"gpu": "A100", "mem_util": 0.5, "run": 1}\n'
    with pytest.raises(UnreadableFile, match="program's own, without a figure"):
        load(file(tmp_path, "results.jsonl", 2 * line))


def test_what_rocprofv3_keeps_meanwhile_leads_to_its_result(tmp_path):
    path = file(tmp_path, "124-199-counter_values.dat", b"\x01\0\0\0\x02\0" * 99)
    with pytest.raises(UnreadableFile, match="until its program ends"):
        load(path)


def test_half_a_download_is_named(tmp_path):
    with pytest.raises(UnreadableFile, match="a download that has not ended"):
        load(file(tmp_path, "t.json.crdownload", TRACE[:50]))


def test_a_url_is_read_through_fsspec():
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe("/job/t.json", TRACE)
    try:
        trace = load("memory://job/t.json")
        assert trace.source.path == "memory://job/t.json"
        with pytest.raises(UnreadableFile, match="no such file"):
            load("memory://job/other.json")
    finally:
        memory.rm("/job", recursive=True)


def test_the_file_in_an_archive_is_named_with_what_helps(tmp_path, capsys):
    path = file(tmp_path, "t.tar", tar({"chakra.0.json": b'{"workload_graph": []}'}))
    assert main(["diagnose", str(path)]) == 2
    said = capsys.readouterr().err
    assert "chakra.0.json: a workload for simulators" in said
    assert "next: give the profiler's trace" in said


def test_each_bad_file_of_several_is_told_its_next_step(tmp_path, capsys):
    good, bad = file(tmp_path, "a.json", TRACE), file(tmp_path, "b.json", b'{"workload_graph": []}')
    assert main(["diagnose", str(good), str(bad)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == " next: give the profiler's trace of the run that it was made from"


def test_a_folder_with_one_recording_is_read_as_that_recording(tmp_path):
    """As JAX's profiler leaves it: FOLDER/plugins/profile/DATE/HOST.xplane.pb."""
    inner = tmp_path / "log" / "plugins" / "profile" / "2026_01_01"
    inner.mkdir(parents=True)
    (inner / "a.json").write_bytes(TRACE)
    assert len(load(tmp_path / "log").host_ops) == 1
    (inner / "b.json").write_bytes(TRACE)
    with pytest.raises(UnreadableFile, match="a folder with 2 recordings") as refused:
        load(tmp_path / "log")
    assert "b.json" in refused.value.hint or "a.json" in refused.value.hint


@pytest.mark.parametrize(
    ("inner", "said"),
    [("xl/workbook.xml", "a workbook (Excel)"), ("word/document.xml", "a document (Office)")],
)
def test_what_office_packs_is_named_whatever_its_name(tmp_path, inner, said):
    path = file(tmp_path, "times.csv", _zip({"[Content_Types].xml": b"<a/>", inner: b"<b/>"}))
    with pytest.raises(UnreadableFile, match=r"times\.csv") as refused:
        load(path)
    assert said in refused.value.message
    assert ("CSV" in refused.value.hint) == inner.startswith("xl/")
