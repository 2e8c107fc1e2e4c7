import pytest

from pinchpoint.diagnosis.evidence.known_calls import (
    advice_for,
    advice_for_row,
    advice_inside,
    known_calls,
)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        ("np.random.choice()", "default_rng"),
        ("numpy.random.normal()", "torch.randn"),
        ("random.choice()", None),
        ("rng.choice()", None),
        ("pandas.core.groupby.generic.aggregate", "observed=True"),
        ("pandas.core.frame.iterrows", "object for each row"),
        ("rows.append()", None),
        ("np.append()", "final size"),
        ("pattern.findall()", "if it is a regular expression"),
        ("sorted()", "bisect"),
        ("model()", None),
        ("", None),
    ],
)
def test_what_a_call_may_be(call, word):
    said = advice_for(call)
    assert word in said if word else said == ""


def test_rows_of_a_recording_are_spelt_otherwise():
    assert "observed=True" in advice_for_row("pandas/core/groupby/generic.py(1432): aggregate")
    assert "bisect" in advice_for_row("<built-in function sorted>")
    assert advice_for_row("aten::mm") == ""


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ("re/_parser.py(516): _parse", "re.compile"),
        ("json/decoder.py(343): raw_decode", "parse it once"),
        ("dataclasses.py(1287): _asdict_inner", "element by element"),
        ("inspect.py(1724): stack", "sys._getframe"),
        ("<frozen importlib._bootstrap>(1165): _find_spec", "not there"),
        ("torch/_tensor_str.py(348): _tensor_str", "isEnabledFor"),
        ("json/tool.py(12): main", ""),  # of the same package, and not what it is about
        ("recsv.py(3): read", ""),
        ("<built-in function len>", ""),
    ],
)
def test_code_of_libraries_that_runs(row, word):
    said = advice_inside(row)
    assert word in said if word else said == ""


@pytest.mark.parametrize("call", ["updates.map()", "record.replace()", "thing.at()", "my.inv()"])
def test_parts_of_other_names_are_not_meant(call):
    assert advice_for(call) == ""


def test_all_entries_can_speak():
    """Each has a name or a module, and none stands behind one that always speaks first."""
    for some in (known_calls().inside, known_calls().called):
        assert all(one.names or one.within for one in some)
        assert len({(one.names, one.within) for one in some}) == len(some)
        assert all(one.advice and one.advice[0] == one.advice[0].strip() for one in some)
