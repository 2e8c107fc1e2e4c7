import pytest

from builders import TraceBuilder
from pinchpoint.analysis.host.ancestry import InputWork, input_work, input_work_of_name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("PIL/JpegImagePlugin.py(440): load_read", InputWork.DECODE),
        ("<built-in method decode of ImagingDecoder object at 0x7f12>", InputWork.DECODE),
        ("<built-in function imread>", InputWork.DECODE),
        ("torchvision/io/image.py(300): decode_jpeg", InputWork.DECODE),
        ("PIL/Image.py(3400): open", InputWork.FILES),
        ("<built-in method read of _io.BufferedReader object at 0x7f>", InputWork.FILES),
        ("<built-in function open>", InputWork.FILES),
        ("pandas/io/parsers/readers.py(868): read_csv", InputWork.FILES),
        ("torch/utils/data/_utils/collate.py(118): collate", InputWork.COLLATE),
        ("text.py(3): tokenize", InputWork.TOKENIZE),
        ("text.py(3): tokenise_batch", InputWork.TOKENIZE),
        ("transformers/tokenization_utils_fast.py(500): _encode_plus", InputWork.TOKENIZE),
        ("text.py(3): detokenize", InputWork.DETOKENIZE),
        ("transformers/tokenization_utils_fast.py(700): _decode", InputWork.DETOKENIZE),
        ("text.py(3): convert_tokens_to_string", InputWork.DETOKENIZE),
        ("<built-in method decode of bytes object at 0x7f>", None),
        ("torch/utils/data/_utils/fetch.py(49): fetch", None),
        ("model.py(3): decode", None),
        ("aten::stack", None),
    ],
)
def test_names(name, kind):
    assert input_work_of_name(name) is kind


def test_what_is_inside_belongs_to_the_outer_work():
    b = TraceBuilder()
    b.step(0, 0, 100)
    b.python("numpy/lib/_npyio_impl.py(311): load", 10, 50)
    b.python("<built-in function open>", 12, 10)
    b.python("torch/utils/data/_utils/collate.py(118): collate", 70, 10)
    other = b.thread("worker")
    b.python("<built-in function open>", 12, 10, thread=other)
    trace = b.trace()
    found = {trace.text(trace.host_ops, "name", i): k for i, k in enumerate(input_work(trace)) if k}
    assert set(found.values()) == {InputWork.FILES, InputWork.COLLATE}
    assert len(found) == 2
