import pytest

from pinchpoint.diagnosis.evidence.known_calls import advice_for, advice_for_row


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
