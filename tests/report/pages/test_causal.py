"""The causal profile in the terminal: which step it starts from, and what is not known."""

from exceptional_programs import now_and_then
from pinchpoint.report import terminal
from pinchpoint.report.blocks import Page
from pinchpoint.report.documents.causal import CausalDocument, PieceInfo, causal_document
from pinchpoint.report.documents.report import QueueInfo
from pinchpoint.report.pages.causal import causal_page, queue_curves
from pinchpoint.report.svg.causal import ladder_svg, path_svg, queue_svg

MS = 1_000_000


def piece(name, *, limit_ns):
    return PieceInfo(
        by="operator",
        name=name,
        place=None,
        calls=1.0,
        occupied_ns=5 * MS,
        host_ns=1 * MS,
        device_ns=4 * MS,
        hidden_ns=0,
        limit_ns=limit_ns,
        needed_bytes=None,
        step_if_free_ns=15 * MS,
        step_at_limit_ns=20 * MS if limit_ns is None else 17 * MS,
        step_without_host_ns=19 * MS,
    )


def shown(*pieces):
    document = CausalDocument(path="a.json", base_ns=20 * MS, base="step", pieces=pieces)
    return terminal.render(causal_page(document))


def test_a_limit_that_is_not_known_is_no_step():
    _, row = [line for line in shown(piece("mine", limit_ns=None)).splitlines() if "mine" in line]
    assert row.split() == ["mine", *["5.00", "ms", "-", "15.0", "ms", "-", "19.0", "ms", "-"]]


def test_a_limit_far_off_says_how_many_times():
    text = shown(piece("mine", limit_ns=1 * MS))
    assert "1.00 ms (4.00 ×)" in text
    assert "17.0 ms" in text


def test_long_names_of_one_beginning_are_told_apart():
    text = shown(*(piece(f"aten::cudnn_convolution_{what}", limit_ns=None) for what in "ab"))
    assert "convolution_a" in text
    assert "convolution_b" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_step_is_said_to_be_the_mean_where_it_is():
    document = causal_document(now_and_then("checkpoint", (3, 8, 13), steps=16))
    assert document.base.startswith("mean step with")
    assert causal_document(now_and_then("python", ())).base.startswith("step with")


QUEUE = QueueInfo(
    start_ns=0,
    part_ns=1_000,
    depth=(0.0, None, 14.0, 7.0),
    latency_ns=(2_000, None, 4_000, 4_000),
    empty_ratio=0.25,
)


def test_the_queue_over_time_in_a_terminal():
    depth, latency = terminal.render(Page(tuple(queue_curves(QUEUE)))).splitlines()[1:3]
    assert depth == "  depth    ▁ █▅ up to 14"
    assert latency == "  latency  ▅ ██ up to 4.00 µs"


def test_pictures_fit_a_page_of_any_width():
    """Places along are shares of it; a telephone showed bars cut off at its edge."""
    one = piece("mine", limit_ns=1 * MS)
    text = ladder_svg(20 * MS, (one,))
    assert 'x="0.00%" y="19.0" width="75.00%"' in text  # without it 15 of 20 ms
    assert 'x="85.00%"' in text  # the mark, at 17 ms
    assert "translate" not in ladder_svg(20 * MS, (piece("mine", limit_ns=None),))  # none known
    for drawn in (text, path_svg(()), queue_svg(QUEUE)):
        assert "viewBox" not in drawn
        assert "width:100%" in drawn
