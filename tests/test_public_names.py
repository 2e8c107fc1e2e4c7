import pytest

import pinchpoint


@pytest.mark.parametrize("name", pinchpoint.__all__)
def test_public_name_is_there(name):
    assert getattr(pinchpoint, name) is not None


def test_all_lists_exactly_the_names_with_a_home():
    assert list(pinchpoint.__all__) == sorted(pinchpoint._HOME)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no_such_name"):
        pinchpoint.no_such_name  # noqa: B018 - the access is the test
