"""``frozen.dataclass`` against ``dataclasses.dataclass``, declared alike."""

import copy
import dataclasses
import pickle
from collections.abc import Sized
from typing import Any, ClassVar

import pytest

from pinchpoint import frozen


def declared_by(decorator: Any) -> Any:
    @decorator(frozen=True)
    class Point:
        """A place."""

        x_ns: int
        label: str = "none"
        parts: list[int] = dataclasses.field(default_factory=list)

    @decorator(frozen=True, eq=False)
    class Same:
        """Equal to itself alone."""

        x_ns: int

    return Point, Same


Point, Same = declared_by(frozen.dataclass)
Point.__qualname__ = "Point"  # pickle finds it in this module


@pytest.mark.parametrize("decorator", [frozen.dataclass, dataclasses.dataclass])
def test_classes_do_what_those_of_the_standard_library_do(decorator: Any) -> None:
    point, same = declared_by(decorator)
    assert [f.name for f in dataclasses.fields(point)] == ["x_ns", "label", "parts"]
    made = point(1, parts=[2])
    assert made == point(1, "none", [2]) != point(1, "none", [3])
    assert repr(made).endswith("Point(x_ns=1, label='none', parts=[2])")
    assert dataclasses.replace(made, label="other").label == "other"
    assert dataclasses.asdict(made) == {"x_ns": 1, "label": "none", "parts": [2]}
    assert point(1).parts is not point(1).parts
    assert point.__match_args__ == ("x_ns", "label", "parts")
    assert hash(point(1, parts=())) == hash(point(1, parts=()))  # type: ignore[arg-type]
    assert same(1) != same(1)
    assert len({same(1), same(1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x_ns'"):
        made.x_ns = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x_ns'"):
        del made.x_ns
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x_ns'"):
        point()
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        point(1, y=2)


def test_what_was_pickled_can_be_used_before_any_other_was_made() -> None:
    text = pickle.dumps(Point(1, "a"))
    fresh = declared_by(frozen.dataclass)[0]
    made = object.__new__(fresh)
    made.__dict__.update(pickle.loads(text).__dict__)
    match made:
        case fresh(x_ns, label):  # type: ignore[misc]
            assert (x_ns, label) == (1, "a")
    assert repr(copy.copy(made)).endswith("Point(x_ns=1, label='a', parts=[])")
    assert made == copy.copy(made)
    assert pickle.loads(text) == Point(1, "a")


def test_options_are_honoured_or_refused() -> None:
    @frozen.dataclass(frozen=True, order=True, kw_only=True)
    class Ordered:
        x_ns: int

    assert Ordered(x_ns=1) < Ordered(x_ns=2)
    with pytest.raises(TypeError, match="positional"):
        Ordered(1)

    @frozen.dataclass(frozen=True)
    class Hidden:
        x_ns: int = dataclasses.field(default=1, repr=False)

    with pytest.raises(TypeError, match="only a default"):
        Hidden()

    @frozen.dataclass(frozen=True)
    class OfTheClass:
        limit: ClassVar[int] = 7

    with pytest.raises(TypeError, match="only a default"):
        OfTheClass()


@pytest.mark.parametrize("decorator", [frozen.dataclass, dataclasses.dataclass])
def test_classes_that_are_not_frozen_do_what_those_of_the_standard_library_do(
    decorator: Any,
) -> None:
    @decorator
    class Counted(Sized):
        seen: int
        parts: list[int] = dataclasses.field(default_factory=list)

        def __len__(self) -> int:
            return self.seen

    @decorator(eq=False)
    class Same:
        seen: int

    made = Counted(1)
    made.seen += 1
    made.parts.append(7)
    assert made == Counted(2, [7]) != Counted(2)
    assert repr(made).endswith("Counted(seen=2, parts=[7])")
    assert dataclasses.asdict(made) == {"seen": 2, "parts": [7]}
    assert len(dataclasses.replace(made, seen=3)) == 3
    del made.seen
    with pytest.raises(AttributeError):
        _ = made.seen
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
    assert len({Same(1), Same(1)}) == 2


def test_the_first_instances_are_as_the_later_ones_are() -> None:
    @frozen.dataclass(frozen=True)
    class Base:
        x_ns: int
        label: "str | None" = None

    @frozen.dataclass(frozen=True)
    class Derived(Base):
        parts: list[int] = dataclasses.field(default_factory=list)
        seen: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "seen", self.x_ns + 1)

    for _ in range(2 * frozen._FEW):
        assert Base(1).__dict__ == Base(label=None, x_ns=1).__dict__ == {"x_ns": 1, "label": None}
        assert Derived(2, parts=[3]).__dict__ == {"x_ns": 2, "label": None, "parts": [3], "seen": 3}
        assert Derived(2).parts is not Derived(2).parts
    assert [f.name for f in dataclasses.fields(Base)] == ["x_ns", "label"]


@pytest.mark.parametrize("given", [((), {}), ((1, 2, 3), {}), ((1,), {"x_ns": 2}), ((), {"y": 1})])
def test_arguments_that_do_not_fit_are_refused_from_the_first_instance_on(given: Any) -> None:
    fresh = declared_by(frozen.dataclass)[1]
    for _ in range(2):
        with pytest.raises(TypeError):
            fresh(*given[0], **given[1])
    assert fresh(1).x_ns == 1
