import json
from xml.etree import ElementTree as Xml

import pytest

from pinchpoint.bench.crossover import measure
from pinchpoint.bench.crossover.crossing import Point, Time, crossing, next_size, slope
from pinchpoint.bench.crossover.measure import OPERATIONS, Machine, crossover, sizes
from pinchpoint.cli import main as cli
from pinchpoint.report.pages import crossover as crossover_page


def _time(ns, spread=0.01):
    return Time(ns, ns * (1 - spread), ns * (1 + spread))


def _points(cpu, gpu, both=None, spread=0.01):
    return [
        Point(n, _time(cpu(n), spread), _time(gpu(n), spread), both and _time(both(n), spread))
        for n in (64, 256, 1024, 4096, 16384)
    ]


def _gpu(point):
    return point.gpu


def test_the_crossing_lies_between_the_sizes_that_are_sure():
    found = crossing(_points(lambda n: 10.0 * n, lambda n: 5_000.0 + n), _gpu)
    assert found.verdict == "crosses"
    assert (found.low, found.high) == (256, 1024)
    assert 256 < found.estimate < 1024


def test_noise_widens_the_interval():
    found = crossing(_points(lambda n: 10.0 * n, lambda n: 5_000.0 + n, spread=0.45), _gpu)
    assert (found.low, found.high) == (64, 4096)


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [(lambda n: 1.0, "always gpu"), (lambda n: 1e9, "always cpu")],
)
def test_no_crossing(gpu, verdict):
    found = crossing(_points(lambda n: 10.0 * n, gpu), _gpu)
    assert (found.verdict, found.estimate) == (verdict, None)


def test_without_a_gpu_nothing_is_claimed():
    points = [Point(8, _time(5.0)), Point(16, _time(9.0))]
    assert crossing(points, _gpu).verdict == "not measured"
    assert next_size(points, _gpu) is None


def test_bisection_ends_close_to_the_true_crossing():
    def cpu(n):
        return 10.0 * n

    def gpu(n):
        return 5_000.0 + n

    points = _points(cpu, gpu, spread=0.001)
    while (n := next_size(points, _gpu)) is not None:
        points.append(Point(n, _time(cpu(n), 0.001), _time(gpu(n), 0.001)))
    found = crossing(points, _gpu)
    assert found.estimate == pytest.approx(5_000 / 9, rel=0.02)
    assert found.high / found.low <= 1.2


def test_slope():
    points = _points(lambda n: 3.0 * n**2, lambda n: 7.0)
    assert slope(points, lambda p: p.cpu) == pytest.approx(2.0)
    assert slope(points, _gpu) is None  # no size costs more than a call


def test_sizes_are_geometric_and_bounded():
    for operation in OPERATIONS:
        found = sizes(operation)
        assert found[0] == operation.least
        assert found[-1] <= operation.most
        assert len(found) >= 4


@pytest.fixture
def fake(monkeypatch):
    """Known times instead of measurements; the operations themselves are not run."""
    pytest.importorskip("torch", reason="makes the inputs")
    import torch

    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)

    def watch(call, backend):
        call()
        size = watch.size
        if backend == "cuda":
            return _time(5_000.0 + size)
        watch.count += 1
        transfers = watch.count % 2 == 0
        return _time(50_000.0 + 2 * size if transfers else 10.0 * size)

    def point(operation, n, *rest):
        watch.size = n
        return original(operation, n, *rest)

    original = measure._point
    watch.count, watch.size = 0, 1
    monkeypatch.setattr(measure, "_point", point)
    return watch


ADD = next(o for o in OPERATIONS if o.name == "add")


@pytest.mark.torch
def test_two_crossings_with_and_without_transfers(fake):
    machine = Machine("EPYC", 2, "H100")
    quick = ADD.__class__(**(vars(ADD) | {"most": 1 << 16}))
    result = crossover([quick], "float32", machine=machine, watch=fake, notice=lambda t: None)
    [curve] = result.curves
    assert curve.kernel_only.estimate == pytest.approx(5_000 / 9, rel=0.05)
    assert curve.with_transfers.estimate == pytest.approx(50_000 / 8, rel=0.05)
    assert curve.cpu_slope == pytest.approx(1.0, abs=0.01)
    text = crossover_page.svg(result)
    assert len(Xml.fromstring(text).findall(".//{*}polyline")) == 3
    page = crossover_page.html(result)
    assert "<script src" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "from 5" in crossover_page.in_words(curve.kernel_only)


@pytest.mark.torch
def test_command_without_a_gpu(capsys, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="runs the operations")
    monkeypatch.setattr(measure, "this_machine", lambda: Machine("EPYC", 1, None, "none in tests"))
    monkeypatch.setattr(measure, "stopwatch", lambda call, backend: _time(1_000.0))
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    words = ["crossover", "add", "--most", "4096", "--svg", str(svg), "--html", str(html)]
    assert cli(words) == 0
    out = capsys.readouterr().out
    assert "no GPU here (none in tests): only the CPU was measured" in out
    Xml.parse(svg)
    assert html.read_text().startswith("<!doctype html>")
    assert cli([*words[:4], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["gpu"] is None
    assert document["unknown"]["gpu"] == "none in tests"
    assert document["curves"][0]["kernel_only"]["verdict"] == "not measured"


@pytest.mark.parametrize(
    ("words", "said"), [(["fft"], "no operation"), (["add", "--most", "3"], "--most 3")]
)
def test_command_that_cannot_work(words, said, capsys):
    assert cli(["crossover", *words]) == 2
    assert said in capsys.readouterr().err
