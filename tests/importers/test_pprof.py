"""Profiles of pprof: what JAX holds is read, what knows the host alone is refused."""

import gzip
import tracemalloc

import pytest

import pinchpoint as pp
from pinchpoint.errors import HostileFile, UnreadableFile

MIB = 1 << 20
TEXTS = ("", "allocations", "count", "space", "bytes", "kind", "buffer", "executable", "device",
         "TPU_0", "step", "/home/a/train.py", "put", "/x/site-packages/jax/a.py")  # fmt: skip


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, *content):
    body = b"".join(content)
    return varint(field << 3 | 2) + varint(len(body)) + body


def label(key, text):
    return message(3, number(1, TEXTS.index(key)), number(2, TEXTS.index(text)))


def sample(stack, count, size, kind):
    values = message(2, varint(count), varint(size))
    labels = label("kind", kind) + label("device", "TPU_0")
    return message(2, message(1, *map(varint, stack)), values, labels)


def place(at, function, line):
    return message(4, number(1, at), message(4, number(1, function), number(2, line)))


def function(at, name, file):
    return message(5, number(1, at), number(2, TEXTS.index(name)), number(4, TEXTS.index(file)))


TYPES = message(1, number(1, 1), number(2, 2)) + message(1, number(1, 3), number(2, 4))
PROFILE = b"".join((
    TYPES,
    sample((2, 1), 3, 30 * MIB, "buffer"),  # made by a library, called from the program
    sample((1,), 1, 10 * MIB, "buffer"),
    sample((1,), 2, -1, "executable"),  # its size is not known
    place(1, 1, 7), place(2, 2, 90),
    function(1, "step", "/home/a/train.py"), function(2, "put", "/x/site-packages/jax/a.py"),
    *(message(6, text.encode()) for text in TEXTS),
))  # fmt: skip


def load(folder, data, name="memory.prof"):
    path = folder / name
    path.write_bytes(gzip.compress(data))
    return pp.load(path)


def test_bytes_by_device_and_by_the_programs_own_line(tmp_path):
    trace = load(tmp_path, PROFILE)
    devices, said, lines = trace.summaries
    assert trace.source.format == "JAX memory profile"
    assert devices.rows == (("TPU_0", "40.0", "4"),)
    assert dict(said.rows)["compiled programs"] == "2"
    assert lines.rows == (("train.py:7", "40.0", "100.0", "4", "step"),)


def test_a_stack_of_libraries_alone_is_named_by_its_innermost_line(tmp_path):
    own = message(6, b"/home/a/train.py")
    of_library = PROFILE.replace(own, message(6, b"/x/site-packages/flax/nn.py"), 1)
    *_, lines = load(tmp_path, of_library).summaries
    assert [row[0] for row in lines.rows] == ["a.py:90", "nn.py:7"]


def test_a_profile_of_the_host_is_refused_by_what_it_counts(tmp_path):
    texts = (b"", b"samples", b"count", b"cpu", b"nanoseconds")
    data = TYPES + message(2, message(2, varint(1), varint(5)))
    data += b"".join(message(6, text) for text in texts)
    with pytest.raises(
        UnreadableFile, match=r"samples \(count\), cpu \(nanoseconds\), which knows"
    ):
        load(tmp_path, data)


def test_a_profile_that_is_cut_off_says_how_to_write_it_again(tmp_path):
    with pytest.raises(UnreadableFile) as error:
        load(tmp_path, PROFILE[:-3])
    assert "cut off" in str(error.value)
    assert "save_device_memory_profile" in error.value.hint


def test_a_stack_that_does_not_end_takes_no_more_than_the_file(tmp_path):
    deep = sample((2,) * 5_000 + (1,) * 300_000, 1, 10 * MIB, "buffer")
    path = tmp_path / "deep.prof"
    path.write_bytes(TYPES + deep + PROFILE.removeprefix(TYPES))
    pp.load(path)  # what is imported first does not count
    tracemalloc.start()
    trace = pp.load(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 3 * path.stat().st_size
    (lines,) = (one for one in trace.summaries if one.columns[0] == "made at")
    assert lines.rows[0][:4] == ("train.py:7", "50.0", "100.0", "5")


def of_devices(count):
    own = [message(6, f"d{n}".encode()) for n in range(count)]
    samples = [
        message(2, message(1, varint(1)), message(2, varint(1), varint(MIB)),
                label("kind", "buffer"), message(3, number(1, TEXTS.index("device")),
                                                 number(2, len(TEXTS) + n)))
        for n in range(count)
    ]  # fmt: skip
    return b"".join((TYPES, *samples, PROFILE.removeprefix(TYPES), *own))


def test_more_devices_than_any_job_has_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pinchpoint.importers.pprof.MOST_DEVICES", 4)
    assert len(load(tmp_path, of_devices(3)).summaries[0].rows) == 4  # and TPU_0
    with pytest.raises(HostileFile, match="more than 4 devices"):
        load(tmp_path, of_devices(4))


def test_lines_beyond_a_bound_count_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr("pinchpoint.importers.pprof._MOST_LINES", 1)
    more = sample((3,), 1, 5 * MIB, "buffer") + place(3, 1, 8)
    trace = load(tmp_path, PROFILE + more)
    assert [row[:2] for row in trace.summaries[-1].rows] == [
        ("train.py:7", "40.0"), ("other lines", "5.0"),
    ]  # fmt: skip


def test_ids_in_any_order_name_the_same_places(tmp_path):
    turned = PROFILE.replace(place(1, 1, 7) + place(2, 2, 90), place(2, 2, 90) + place(1, 1, 7))
    assert turned != PROFILE
    assert load(tmp_path, turned).summaries == load(tmp_path, PROFILE).summaries
