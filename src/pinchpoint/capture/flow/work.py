"""Repeated and unused work of a few steps of a program, as notes for its run folder.

Two steps are learnt from. In those that follow, the bits of what is said to be the same are
compared: only what was the same is noted.
"""

import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pinchpoint.capture.flow.alike_rows import MOST_DISTINCT_RATIO, alike_rows
from pinchpoint.capture.flow.answers import answers, heaviest, several_ranks
from pinchpoint.capture.flow.carried import handed_on
from pinchpoint.capture.flow.claims import (
    Claims,
    claims,
    edge,
    numbers_of,
    to_compare,
)
from pinchpoint.capture.flow.gradients import HALF_RATIO, ThrownAway, lines_of, thrown_away
from pinchpoint.capture.flow.loops import loops
from pinchpoint.capture.flow.notes import (
    LEAST_BYTES,
    note_of,
    operations_told,
    quicker_otherwise,
    sent_as_zeros,
    slow_by_values,
)
from pinchpoint.capture.flow.numbers import Numbered
from pinchpoint.capture.flow.operations import ESCAPE, Operation
from pinchpoint.capture.flow.orders import Chain as Products
from pinchpoint.capture.flow.orders import asked_by, chains_of_products, forward_products
from pinchpoint.capture.flow.parts import chains_of_parts, read_parts
from pinchpoint.capture.flow.places import Chain, chains, sites, spelt, together
from pinchpoint.capture.flow.positions import Position, of_any_shape, positions
from pinchpoint.capture.flow.repeats import CONSTANTS, idle, unused
from pinchpoint.capture.flow.same_rows import on_same_rows
from pinchpoint.capture.flow.sent_again import sent_again
from pinchpoint.capture.flow.states import made_again
from pinchpoint.capture.flow.unread import of_solvers
from pinchpoint.capture.flow.watch import Watch
from pinchpoint.capture.samples.stacks import frames_of_threads, stack_of

# Nobody reads what a measurement computes: of a step that is nearly all in vain, nothing is said. A
# metric over all that was seen so far may well take most of a step.
UNUSED_RATIO = 0.8
# Of what a product gives: padded sizes, and the last position that a shift leaves over, are more.
PART_RATIO = 0.5
# Two to learn from; then bits are compared from step to step. Where a round of several steps has
# its own input (a picture's), half of them may belong to the next one.
STEPS = 6
UNUSED_IN = (1, 2, 3, 4)  # steps; what is made in one may be read in the next
MOST_NOTES = 12
# Where a step among them is of another kind (the last token of a sequence, the first of the next)
# nothing comes in all of them, and others are watched. Sequences are longer than six steps, mostly.
MOST_WATCHES = 3
MOST_WAITS = 128  # steps until then
MOST_AGAIN_NS = 1_000_000_000  # that the watches before may have cost


class RepeatedWork:
    """Watches steps, and says what of them was done in vain."""

    def __init__(self, watches: int = 1) -> None:
        """``watches``: of so many steps each, at most, where those before were of two kinds."""
        self._watch: Watch | None = None
        self._threads = False  # others run code of the program, and may read what is made here
        self.cost_ns = 0
        self.why_not = ""
        self.operators: tuple[list[str], list[str]] = ([], [])  # that compute, and others
        self.answers: list[dict[str, Any]] = []  # for other ranks to compare
        self.loops: list[dict[str, Any]] = []
        self._heaviest: set[Position] = set()
        self._models: set[int] = set()
        self._left = watches
        self._waits = 0  # steps in which to begin once more
        self._seen = False  # what a watch can tell

    @property
    def watches(self) -> bool:
        """Whether steps are watched now, or others are about to be."""
        return self.watches_now or self._waits > 0

    @property
    def watches_now(self) -> bool:
        """Whether steps are watched now."""
        return self._watch is not None

    def begin(self) -> None:
        """Watch from now on, where that can be done."""
        watch = Watch(sys.modules["torch"])
        if watch.begin():
            self._watch = watch
            self._left -= 1
            watch.sent.looks = several_ranks()
        self.why_not = watch.why_not

    def seen_model(self, model: Any) -> None:
        """A module that the program calls: its buffers are no input."""
        if self._watch is None or self._watch.why_not or id(model) in self._models:
            return
        self._models.add(id(model))
        with self._watch.unseen():
            self._watch.storages.parameters([*model.parameters(), *model.buffers()])

    def unseen(self) -> AbstractContextManager[None]:
        """While others look at tensors."""
        return nullcontext() if self._watch is None else self._watch.unseen()

    def step_ends(self) -> list[dict[str, Any]] | None:
        """None while more steps are to be watched; at the end the notes."""
        watch = self._watch
        if watch is None:
            return self._begin_again()
        self._threads = self._threads or _others_run()
        if watch.why_not:
            self.why_not = "" if self._seen else watch.why_not
            self.end()
            return []
        if len(watch.steps) < STEPS:
            watch.step_ends()
            if len(watch.steps) == 2:
                watch.handed_on = handed_on(watch.steps[0], watch.storages.all)
            watch.tiny.looks = len(watch.steps) - 1 == UNUSED_IN[-1]
            watch.zeros.looks = watch.tiny.looks and several_ranks()
            if len(watch.steps) > 2:
                with watch.unseen():
                    watch.compared = watch.compared | to_compare(watch)
                    if several_ranks() and not self._heaviest:
                        large = heaviest(watch)
                        self._heaviest, watch.compared = set(large), large | watch.compared
            return None
        watch.end()
        self._seen = True
        watch.storages.step_ends()
        self.operators = operators(watch.steps)
        found = numbers_of(watch)
        notes = list(_notes(watch, found, beside_threads=self._threads))
        self.loops = list(_loops(watch))
        inputs = found.from_inputs[-2]
        self.answers = answers(watch, self._heaviest, inputs, chains(watch.stacks))
        self.end()
        if self._left > 0 and _of_two_kinds(watch) and not several_ranks():
            return self._watch_others(notes)
        return notes

    def _watch_others(self, notes: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """Steps that follow, unless the first ones have told something, or cost too much."""
        if notes or self.cost_ns > MOST_AGAIN_NS:
            return notes
        self._waits = MOST_WAITS
        return self._begin_again()

    def _begin_again(self) -> list[dict[str, Any]] | None:
        """Once the mode of the last watch is gone, which stays as long as inference mode does that
        was entered before it."""
        if not self._waits:
            return []
        self._waits -= 1
        self._models = set()  # the next watch has to hear of models itself
        self.begin()
        self.why_not = ""  # what the first watch has seen stays
        self._waits = 0 if self.watches_now else self._waits
        return None if self.watches else []

    def end(self) -> None:
        """Watch no more."""
        self._waits = 0
        if self._watch is not None:
            self.cost_ns += self._watch.cost_ns
            self._watch.close()
        self._watch = None


def _others_run() -> bool:
    """Whether other threads are in code of the program, or wait for work of it."""
    futures: Any = sys.modules.get("concurrent.futures.thread")
    if futures is not None and len(getattr(futures, "_threads_queues", ())):
        return True
    own = threading.get_ident()
    for thread in tuple(frames_of_threads()):
        for code, _ in stack_of(thread) if thread != own else ():
            file = code.co_filename
            if not ("/lib/python" in file or "pinchpoint" in file or file.startswith("<")):
                return True
    return False


# What is noted


def _notes(watch: Watch, found: Numbered, *, beside_threads: bool) -> Iterator[dict[str, Any]]:
    told, lines = claims(watch, found), chains(watch.stacks)
    operations, members = told.operations, told.members
    wholly = sites(operations, [bool(how) for how in members], lines)
    notes = []
    for kind, kinds in (("step", ("step",)), ("within", ("within", "first"))):
        mine = {at: chain for at, chain in wholly.items() if members[at] in kinds}
        for group in together(operations, mine):
            again = [at for at in group if members[at] == kind]
            if again and not all(_is_constant(operations[at]) for at in again):
                note = note_of(kind, operations, again, wholly)
                note["kept_bytes"] = _kept(told, again)
                note["of"] = len(group)
                note["steps_ratio"] = round(sum(told.ratio[at] for at in again) / len(again), 4)
                notes.append(note)
    if not found.unseen_writers:
        notes += _moved_on(watch, found, lines)
    if not found.unseen_writers:
        unread = [*_unused(watch, lines), *_orders(watch, lines), *_of_solvers(watch, lines)]
        notes += _alike(watch, lines)
        notes += (note | {"beside_threads": beside_threads} for note in unread)
    notes.sort(key=lambda note: -note.pop("weight"))
    yield from notes[:MOST_NOTES]
    looked_at = watch.steps[UNUSED_IN[-1]]
    yield from slow_by_values(looked_at, watch.tiny.slow, lines)
    yield from sent_as_zeros(looked_at, watch.zeros.seen, lines)
    yield from sent_again(looked_at, watch.sent.same_in_all(looked_at, UNUSED_IN[-1]), lines)
    yield from on_same_rows(looked_at, watch.same_rows.seen, lines)
    yield from quicker_otherwise(watch.steps, watch.storages.all, watch.trials, lines)


def _of_two_kinds(watch: Watch) -> bool:
    """Whether most of these steps do the same in the same order, and another one does not."""
    steps = (watch.steps[at] for at in UNUSED_IN)
    kinds = [tuple((one.kind.name, one.stack) for one in step) for step in steps]
    alike = max(map(kinds.count, kinds))
    return len(kinds) / 2 <= alike < len(kinds)


def _moved_on(watch: Watch, found: Numbered, lines: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    """What steps in turn make several times of one parameter, with a state that moves on."""
    flags = [
        made_again(step, watch.storages.all, exact) if n in UNUSED_IN else []
        for n, (step, exact) in enumerate(zip(watch.steps, found.number, strict=True))
    ]
    members, operations = _in_all(watch, flags), watch.steps[UNUSED_IN[-1]]
    wholly = sites(operations, members, lines)
    for group in together(operations, wholly):
        yield note_of("moved", operations, group, wholly)


def _is_constant(one: Operation) -> bool:
    return one.kind.sizes_only or (one.kind.name.startswith(CONSTANTS) and not one.reads)


def _kept(told: Claims, mine: Iterable[int]) -> int:
    """Bytes of what other work reads of these, each value once."""
    wanted, operations = set(mine), told.operations
    values = {
        told.numbers[at]: operations[at].bytes
        for at, _ in edge(operations, told.members)
        if at in wanted
    }
    return sum(values.values())


def _unused(watch: Watch, lines: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    """What nobody read in steps in turn; nothing where that is most of the work."""
    uses = unused(watch.steps, watch.storages.all)
    gradients = thrown_away(watch.steps, watch.storages.all, uses)
    members = _in_all(watch, [[use.dead for use in some] for some in uses])
    thrown = _in_all(watch, [some.whole for some in gradients])
    operations = watch.steps[UNUSED_IN[-1]]
    work = sum(one.bytes for one in operations if not idle(one))
    both = [one or other for one, other in zip(members, thrown, strict=True)]
    of_it = sum(one.bytes for one, member in zip(operations, both, strict=True) if member)
    if of_it > UNUSED_RATIO * work:
        return
    wholly = sites(operations, members, lines)
    for group in together(operations, wholly):
        yield note_of("unused", operations, group, wholly, _of_any_shape(watch))
    yield from _of_gradients(watch, gradients, thrown, lines)
    yield from _partly(watch, lines)


def _of_gradients(
    watch: Watch, gradients: Sequence[ThrownAway], whole: list[bool], lines: Sequence[Chain]
) -> Iterator[dict[str, Any]]:
    """Work for gradients that nobody reads: what is for them alone, and convolutions' halves."""
    operations = watch.steps[UNUSED_IN[-1]]
    stored = _in_all(watch, [some.stored for some in gradients])
    half = _in_all(watch, [some.half for some in gradients])
    places = spelt(lines_of(operations, stored, lines))
    for members, left in ((whole, 0.0), (half, HALF_RATIO)):
        mine = [at for at, member in enumerate(members) if member]
        if mine and any(stored):
            nowhere: dict[int, Chain] = dict.fromkeys(mine, ())
            note = note_of("gradients", operations, mine, nowhere, _of_any_shape(watch))
            told = {"places": places, "gradients": sum(stored), "left_ratio": left}
            yield note | told


def _partly(watch: Watch, lines: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    """Operations of which a part is read in all of these steps, with those that hand it on."""
    parts = read_parts(watch.steps, watch.storages.all)
    few = [[part.left <= PART_RATIO for part in some] for some in parts]
    few = [_whole_calls(some, step) for some, step in zip(few, watch.steps, strict=True)]
    always, operations, last = _in_all(watch, few), watch.steps[UNUSED_IN[-1]], parts[UNUSED_IN[-1]]
    weights = [one.bytes + LEAST_BYTES for one in operations]
    by_line: dict[Any, list[int]] = defaultdict(list)  # one change serves all calls of it
    for group in chains_of_parts(last, always):
        chain = lines[operations[max(group, key=weights.__getitem__)].stack]
        by_line[chain[-1] if chain else None] += group
    for group in by_line.values():
        heaviest = max(group, key=weights.__getitem__)
        left = sum(weights[at] * last[at].left for at in group) / sum(weights[at] for at in group)
        site = {at: lines[operations[at].stack] for at in group}
        note = note_of("part", operations, sorted(group), site, _of_any_shape(watch))
        read = {"read_ratio": round(last[heaviest].read, 6), "left_ratio": round(left, 6)}
        yield note | read


def _whole_calls(few: Sequence[bool], operations: Sequence[Operation]) -> list[bool]:
    """But those of which the same line does more, all of which is read: the last of many layers,
    whose own code leaves nothing out."""
    keys = [(one.stack, one.kind.name, one.shapes) for one in operations]
    more = {key for key, member in zip(keys, few, strict=True) if not member}
    return [member and key not in more for key, member in zip(keys, few, strict=True)]


def _alike(watch: Watch, lines: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    """Work on rows of which few are distinct, in all of these steps."""
    shares = alike_rows(watch.steps, watch.ids.found)
    members = _in_all(watch, [[one <= MOST_DISTINCT_RATIO for one in some] for some in shares])
    operations, last = watch.steps[UNUSED_IN[-1]], shares[UNUSED_IN[-1]]
    site = sites(operations, members, lines)
    by_share: dict[float, list[int]] = defaultdict(list)
    for at in site:
        by_share[last[at]].append(at)
    for share, mine in by_share.items():
        note = note_of("alike", operations, sorted(mine), site, _of_any_shape(watch))
        yield note | {"read_ratio": round(share, 6), "left_ratio": round(share, 6)}


def _of_solvers(watch: Watch, lines: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    some_shape = _of_any_shape(watch)
    yield from of_solvers(watch, lines, UNUSED_IN, some_shape, lambda dead: _in_all(watch, dead))


def _orders(watch: Watch, lines: Sequence[Chain]) -> Iterator[dict[str, Any]]:
    """Chains of products in a costly order, of all these steps; those of one function together."""
    per_step = {step: list(_products(watch, step)) for step in UNUSED_IN}
    flags = [[False] * len(step) for step in watch.steps]
    for step, some in per_step.items():
        for at in (at for one in some for at in (*one.operations, *one.carried)):
            flags[step][at] = True
    always, operations = _in_all(watch, flags), watch.steps[UNUSED_IN[-1]]
    readers = forward_products(operations)
    by_code: dict[Any, list[tuple[Products, Chain]]] = defaultdict(list)
    for one in per_step[UNUSED_IN[-1]]:
        chain = lines[operations[asked_by(one, operations, readers)].stack]
        if all(always[at] for at in one.operations):
            by_code[chain[-1][0] if chain else None].append((one, chain))
    for group in by_code.values():
        site = {at: chain for one, chain in group for at in (*one.operations, *one.carried)}
        found = [one for one, _ in group]
        mine = sorted(at for at in site if always[at])
        yield note_of("order", operations, mine, site, _of_any_shape(watch)) | {
            "flops": sum(one.flops for one in found),
            "flops_left": sum(one.flops_left for one in found),
            "elements_left": sum(one.elements_left for one in found),
            "times_left": sum(one.products_left for one in found),
        }


def _products(watch: Watch, step: int) -> Iterator[Products]:
    others = (one for n, some in enumerate(watch.steps) if n != step for one in some)
    elsewhere = frozenset(number for one in others for number, _ in one.reads)
    for one in chains_of_products(watch.steps[step], watch.storages.all, elsewhere):
        # Gradients in between are autograd's: what a bias or another branch takes of them stays.
        if not (one.needed_too and watch.steps[step][one.operations[0]].backward):
            yield one


def _of_any_shape(watch: Watch) -> frozenset[str]:
    return of_any_shape([watch.steps[step] for step in UNUSED_IN])


def _in_all(watch: Watch, dead: list[list[bool]]) -> list[bool]:
    """Of the last of these steps, what is so in all of them."""
    if not all(any(dead[step]) for step in UNUSED_IN):
        return [False] * len(watch.steps[UNUSED_IN[-1]])
    some_shape = _of_any_shape(watch)
    places = [positions(watch.steps[step], some_shape) for step in UNUSED_IN]
    totals = [Counter(key for key, _ in some) for some in places]
    told = [
        dict(zip(some, dead[step], strict=True))
        for some, step in zip(places, UNUSED_IN, strict=True)
    ]
    return [
        all(one.get(place, False) for one in told)
        and all(total[place[0]] == totals[-1][place[0]] for total in totals)
        for place in places[-1]
    ]


def _loops(watch: Watch) -> Iterator[dict[str, Any]]:
    """Loops of one step, largest first."""
    operations = watch.steps[UNUSED_IN[-1]]
    lines = chains(watch.stacks)
    found = sorted(loops(operations, watch.stacks), key=lambda one: -len(one.operations))
    for one in found[:MOST_NOTES]:
        yield {
            "way": one.way,
            "turns": one.turns,
            "places": spelt((lines[operations[at].stack], 1) for at in one.operations),
            "operations": operations_told(operations, one.operations),
            "carried": operations_told(operations, one.carried),
        }


def operators(steps: Sequence[Sequence[Operation]]) -> tuple[list[str], list[str]]:
    """Names of all operators that the dispatcher ran: those that compute, and others."""
    computed = {one.kind.name for step in steps for one in step if not idle(one)}
    all_of_them = {
        one.kind.name for step in steps for one in step if not one.kind.name.startswith(ESCAPE.name)
    }
    return sorted(computed), sorted(all_of_them - computed)
