"""Python's own library, pandas, Pillow, and files of text."""

from collections.abc import Callable
from math import prod

from pinchpoint.diagnosis.evidence.slow_ways.way import MANY, Said, Way, is_array, numbers_in
from pinchpoint.trace.run_samples import Called

_Asks = Callable[[Called], Said | None]
_LIST = 256  # things in a list, from which on going through it takes microseconds


def _search(call: Called) -> Said | None:
    of, at = call.one("self"), call.one("0")
    if of is None or of.kind != "list" or of.shape[0] < _LIST:
        return None
    if call.called.endswith(("pop", "insert")):
        front = at is not None and at.kind == "int" and at.value == 0
        if not front or of.shape[0] < 10 * MANY:
            return None
        return Said(f"moves all {of.shape[0]:,} of a list for one at its front", (0.01, 0.3))
    return Said(f"goes through a list of {of.shape[0]:,} from its beginning", (0.01, 0.3))


def _text(least: int) -> _Asks:
    return lambda call: _of_text(call, least)


def _of_text(call: Called, least: int) -> Said | None:
    text = call.one("0", "s", "stream", "node_or_string")
    if text is None or text.kind not in ("str", "bytes") or text.shape[0] < least:
        return None
    return Said(f"reads {text.shape[0]:,} letters by a parser in Python", (0.05, 0.3))


def _lists_as_text(call: Called) -> Said | None:
    of = call.one("0", "obj")
    if of is None or of.kind not in ("list", "tuple") or numbers_in(of) < MANY:
        return None
    if of.of not in ("int", "float", "list", "tuple"):
        return None
    return Said(f"writes {numbers_in(of):,} numbers as text, one by one", (0.01, 0.4))


def _numbers_as_text(call: Called) -> Said | None:
    if not call.compared:  # what is read once, at the start, is no matter
        return None
    return Said("reads numbers from text", (0.01, 0.2))


def _whole_file(call: Called) -> Said | None:
    mapped, part = call.one("mmap_mode", "1"), call.one("[]", "[:]", "[-:]", "[?]")
    by_name = part is not None and part.kind in ("str", "bytes")
    if part is None or by_name or (mapped is not None and mapped.kind != "None"):
        return None
    if not call.compared:  # what is read once, at the start, is no matter
        return None
    return Said("reads a whole file to take a part of it", (0.02, 0.5))


def _slow_codec(call: Called) -> Said | None:
    data = call.one("0", "data")
    if data is None or data.kind not in ("bytes", "unknown"):
        return None
    return Said("inflates a format that is made for size", (0.1, 0.4))


def _nine(call: Called) -> Said | None:
    level = call.one("1", "compresslevel", "level")
    default = level is None and call.called.startswith("gzip")
    if not default and (level is None or level.value is None or level.value < 7):
        return None
    return Said("compresses at a level of 7 to 9", (0.1, 0.5))


def _by_pattern(call: Called) -> Said | None:
    form = call.one("1", "format")
    if form is None or not form.text.startswith(("%Y-%m-%d", "%Y%m%d")):
        return None
    return Said("reads ISO dates by a pattern in Python", (0.02, 0.2))


def _shrinks(call: Called) -> Said | None:
    image, size = call.one("self"), call.one("0", "size")
    if image is None or len(image.shape) != 2 or size is None or len(size.of_shape) != 2:
        return None
    if call.one("reducing_gap") is not None:
        return None
    ratio = prod(image.shape) / max(prod(size.of_shape), 1)
    if ratio < 16:  # four times in each direction
        return None
    return Said(
        f"weighs all {prod(image.shape):,} pixels for an image {ratio:.0f} times smaller",
        (0.1, 0.5),
    )


def _by_row(call: Called) -> Said | None:
    of, axis = call.one("self"), call.one("axis", "1")
    if of is None or not of.shape or of.shape[0] < 100:  # rows, of 3 us and more each
        return None
    if axis is None or (axis.value != 1 and axis.text != "columns"):
        return None
    return Said(f"makes a Series of each of {of.shape[0]:,} rows for a function", (0.002, 0.2))


def _by_value(call: Called) -> Said | None:
    of, function = call.one("self"), call.one("0", "func", "arg")
    if of is None or function is None or function.kind not in ("function", "unknown"):
        return None
    if not of.shape or of.shape[0] < MANY:
        return None
    return Said(f"calls Python for each of {of.shape[0]:,} values", (0.02, 0.4))


def _scalars(call: Called) -> Said | None:
    of = call.one("0", "tensors")
    if of is None or of.of != "tensor" or of.of_shape or of.shape[0] < _LIST:
        return None
    return Said(f"puts {of.shape[0]:,} tensors of one number together", (0.05, 0.5))


def _tensors(call: Called) -> Said | None:
    of = call.one("0", "object", "data")
    if of is None or of.of != "tensor" or of.shape[0] * prod(of.of_shape) < MANY:
        return None
    if call.called.startswith("torch") and not is_array(of):
        return Said(f"takes numbers from {of.shape[0]:,} tensors one by one", (0.01, 0.3))
    return Said(f"asks each of {of.shape[0]:,} tensors for an array", (0.1, 0.5))


PYTHON = (
    Way(
        r"^builtins\.list\.(index|count|remove|pop|insert)$",
        _search,
        "Keep a dict or set that finds at once beside it; for the front a collections.deque",
        "at = {value: n for n, value in enumerate(values)}  # once; at[value]",
        always=False,
    ),
    Way(
        r"^ast\.literal_eval$",
        _text(100),
        "Write it as JSON, or keep what it gives in an array",
        "json.loads(text)  # or np.load of an array",
    ),
    Way(
        r"^yaml\b.*\b(load|safe_load)$",
        _text(100),
        "Load it by the parser in C, or once",
        "yaml.load(text, Loader=yaml.CSafeLoader)",
    ),
    Way(
        r"^json\b.*\bdumps?$",
        _lists_as_text,
        "Send arrays as their bytes, or fewer digits",
        "array.astype(np.float32).tobytes()  # with its shape; np.frombuffer at the other end",
        always=False,
    ),
    Way(
        r"^numpy\.(loadtxt|genfromtxt|fromstring)$",
        _numbers_as_text,
        "Write them once as a binary file, and map that",
        "np.save(path, array)  # once; np.load(path, mmap_mode='r')",
        always=False,
    ),
    Way(
        r"^(numpy\.load|torch\.(serialization\.)?load|json\.load|_?pickle\.load|pandas\..*read_\w+)$",
        _whole_file,
        "Keep the file's content as long as items of it are asked for, or map it and read the part",
        "data = np.load(path, mmap_mode='r')[i]  # torch.load(path, mmap=True); one file an item",
        always=False,
    ),
    Way(
        r"^_?(bz2|lzma)\b.*decompress$",
        _slow_codec,
        "Store it in a format that is made to be read: zstd, lz4, or plain",
        None,
        always=False,
    ),
    Way(
        r"^(gzip\.compress|zlib\.compress)$",
        _nine,
        "Compress at level 1, which takes a fifth of the time for a few percent more bytes",
        "gzip.compress(data, compresslevel=1)",
        always=False,
    ),
    Way(
        r"^datetime\.datetime\.strptime$",
        _by_pattern,
        "Read ISO dates by the function for these",
        "datetime.fromisoformat(text)",
    ),
    Way(
        r"^PIL\b.*\.resize$",
        _shrinks,
        "Let it average blocks of pixels first; a JPEG file can be read smaller at once",
        "image.resize(size, reducing_gap=2.0)  # image.draft('RGB', size) before it is read",
        always=False,
    ),
    Way(
        r"^pandas\..*DataFrame\.apply$",
        _by_row,
        "Compute with whole columns",
        "frame['a'].to_numpy() + frame['b'].to_numpy()",
    ),
    Way(
        r"^pandas\..*Series\.(map|apply)$",
        _by_value,
        "Compute with the whole column, or look each distinct value up once",
        "frame['a'].to_numpy() * 2  # categories: codes into an array of what each gives",
        always=False,
    ),
    Way(
        r"^torch\.stack$",
        _scalars,
        "Keep the numbers in one tensor or list from the beginning",
        "torch.tensor(numbers)  # Python numbers; or write into values[i]",
    ),
    Way(
        r"^(numpy\.(array|asarray|stack)|torch\.(tensor|as_tensor))$",
        _tensors,
        "Put tensors together as tensors",
        "torch.stack(tensors).numpy()",
    ),
)
