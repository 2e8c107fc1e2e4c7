from builders import TraceBuilder
from pinchpoint.trace.names import rows_named


def test_each_name_of_the_table_is_asked_about_once():
    b = TraceBuilder()
    for at, name in enumerate(("aten::add", "aten::mm", "aten::add")):
        b.op(name, 10 * at, 5, shapes="[[2, 3]]")
    b.launch(50, 1, "kernel", 60, 5)
    trace, asked = b.trace(), []

    def test(name):
        asked.append(name)
        return name == "aten::add"

    assert rows_named(trace, trace.host_ops, test).tolist() == [True, False, True]
    assert sorted(asked) == ["aten::add", "aten::mm"]
    assert rows_named(trace, trace.device_ops, lambda _: True).tolist() == [True]
