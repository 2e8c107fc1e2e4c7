import pytest

from pinchpoint.serve.app import PageCache


def counted():
    made = []

    def make(key, length):
        def text():
            made.append(key)
            return "x" * length

        return text

    return made, make


def test_a_page_is_made_once():
    kept, (made, make) = PageCache(), counted()
    assert kept.get("a", make("a", 3)) == kept.get("a", make("a", 3)) == b"xxx"
    assert made == ["a"]


def test_the_least_recently_used_goes_first():
    kept, (made, make) = PageCache(most_bytes=10), counted()
    for key in ("a", "b", "a", "c"):
        kept.get(key, make(key, 4))
    assert kept.bytes == 8
    kept.get("a", make("a", 4))
    kept.get("b", make("b", 4))
    assert made == ["a", "b", "c", "b"]


def test_one_page_is_kept_however_large_it_is():
    kept, (made, make) = PageCache(most_bytes=10), counted()
    kept.get("a", make("a", 40))
    kept.get("a", make("a", 40))
    assert made == ["a"]


def test_what_fails_is_tried_again():
    kept, (_, make) = PageCache(), counted()

    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept.get("a", fails)
    assert kept.get("a", make("a", 1)) == b"x"
