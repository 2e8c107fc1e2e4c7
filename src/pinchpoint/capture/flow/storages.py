"""Numbers for storages of tensors, which no other storage gets while a step is watched.

A weak reference keeps the few bytes of a storage's own, so that its address stays its own; its
memory is freed as ever.
"""

from typing import Any

from pinchpoint.capture.flow.content import PIECE, sum_of_bits
from pinchpoint.frozen import dataclass

# Of one storage, looked at whole: token ids, masks, tables. 0.02 s of a CPU.
MOST_BYTES = 1 << 22
IN_A_STEP = 1 << 25  # bytes of all of them: 0.2 s of a CPU
SAMPLED = 1 << 16  # bytes at the start of larger ones, and as many at their end
PIECES, A_PIECE = 64, 1 << 10  # and as many in pieces at even distances
TINY = 8  # bytes: a number, whose value says all


@dataclass
class Storage:
    """One storage."""

    bytes: int
    device: str
    made: bool  # by an operation that was seen
    step: int  # in which it was first seen
    parameter: bool = False  # what a module holds
    alive: bool = True
    escaped: bool = False  # read by something else than operations
    after_backward: bool = False  # still there when the backward pass that made it was over
    backward: bool = False  # made by a backward pass
    gradient: bool = False  # of a parameter, as autograd stores it
    written: bool = False  # by operations that were seen: what it holds is known by them


class Storages:
    """All storages that were seen."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.of = torch._C.TensorBase.untyped_storage  # what a watch replaces is not called
        self._numbers: dict[int, int] = {}  # by address
        self._weak: dict[int, tuple[int, int]] = {}  # by number: weak reference, address
        self.all: list[Storage] = []
        self.contents: dict[tuple[int, int], Any] = {}  # by step and number, on their device
        self._made_in_backward: list[int] = []
        self._looked_at = 0
        self.step = 0

    def number(self, tensor: Any, *, made: bool = False, backward: bool = False) -> int:
        """The number of a tensor's storage."""
        storage = self.of(tensor)
        address = storage._cdata
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = len(self.all)
            self._weak[number] = (storage._weak_ref(), address)
            parameter = not made and isinstance(tensor, self._torch.nn.Parameter)
            device = tensor.device.type
            self.all.append(
                Storage(storage.nbytes(), device, made, self.step, parameter, backward=backward)
            )
            if backward:
                self._made_in_backward.append(number)
        return number

    def known(self, tensor: Any) -> bool:
        """Whether the storage was seen before."""
        return self.of(tensor)._cdata in self._numbers

    def look_at(self, tensor: Any, number: int) -> None:
        """Before something nobody was seen to make is read: what is in it, once a step where the
        host may write to it unseen."""
        one = self.all[number]
        if one.made or one.parameter or (self.step, number) in self.contents:
            return
        if one.step < self.step and (one.device != "cpu" or one.written):
            return
        if one.bytes and self.affords(one.bytes):
            self.contents[self.step, number] = content(self._torch, self.of(tensor))

    def look_at_made(self, tensor: Any) -> None:
        """When an operation just made it: what is in it."""
        number = self.number(tensor)
        one = self.all[number]
        if one.made and one.step == self.step and one.bytes and self.affords(one.bytes):
            self.contents[self.step, number] = content(self._torch, self.of(tensor))

    def affords(self, size: int) -> bool:
        """Whether so many bytes may be looked at, too; they are counted then."""
        looked_at = self._looked_at + (
            size if size <= MOST_BYTES else 2 * SAMPLED + PIECES * A_PIECE
        )
        if looked_at > IN_A_STEP:
            return False
        self._looked_at = looked_at
        return True

    def parameters(self, tensors: Any) -> None:
        """These belong to modules: no new values come with them."""
        for tensor in tensors:
            if not self.known(tensor):
                self.all[self.number(tensor)].parameter = True

    def stored(
        self, parameter: int | None, *, writes: Any, made: list[int], reads: Any
    ) -> tuple[int, int] | None:
        """Where the gradient of a parameter lies and the parameter: added to, copied, or kept."""
        if parameter is None:
            return None
        lies = next(iter([*(number for number, _ in writes), *made, *(n for n, _ in reads)]))
        self.all[lies].gradient = True
        return lies, parameter

    def backward_ended(self) -> None:
        """What is there still of what a backward pass made was made to be kept."""
        expired = self._torch.UntypedStorage._expired
        for number in self._made_in_backward:
            weak = self._weak.get(number)
            self.all[number].after_backward = weak is not None and not expired(weak[0])
        self._made_in_backward.clear()

    def step_ends(self) -> None:
        """Forget what is no longer there."""
        self.backward_ended()
        storage = self._torch.UntypedStorage
        for number, (weak, address) in list(self._weak.items()):
            if storage._expired(weak):
                self._forget(number, weak, address)
                self.all[number].alive = False
        self.step += 1
        self._looked_at = 0

    def close(self) -> None:
        """Hold nothing."""
        for number, (weak, address) in list(self._weak.items()):
            self._forget(number, weak, address)
        self.contents.clear()

    def _forget(self, number: int, weak: int, address: int) -> None:
        del self._weak[number], self._numbers[address]
        self._torch.UntypedStorage._free_weak_ref(weak)


def content(torch: Any, storage: Any) -> Any:
    """A sum over the bits of a storage, or of its ends, and whether all of it is one value."""
    with torch.no_grad():
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        if flat.numel() > MOST_BYTES:
            between = flat[: len(flat) // PIECES * PIECES].view(PIECES, -1)[:, :A_PIECE]
            flat = torch.cat((flat[:SAMPLED], flat[-SAMPLED:], between.reshape(-1)))
        size = next(n for n in (8, 4, 2, 1) if flat.numel() % n == 0)
        words = flat.view({8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}[size])
        alike = (words == words[0]).all().to(torch.int64)
        return torch.stack((sum_of_bits(torch, words), alike))


assert PIECE * 8 >= MOST_BYTES  # one piece: what it takes for a moment is three times its size
