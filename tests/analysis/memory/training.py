"""A tiny training program with known sizes, in the order in which PyTorch allocates."""

from analysis.memory.programs import (
    BACKWARD,
    MOVE,
    STATE,
    STEP,
    TORCH,
    ZERO,
    Program,
    forward,
    user,
)

KIB = 1024
PARAMETERS = (4096 * KIB, 6144 * KIB, 2048 * KIB)  # one a layer
ACTIVATION = 3072 * KIB  # each layer keeps two
LOGITS = 20 * 1024 * KIB
LOSS = [(TORCH + "nn/functional.py", 3504, "cross_entropy"), *user(41)]


class Training:
    """One model of three layers and its optimizer."""

    def __init__(self, program: Program, *, adam: bool = True, set_to_none: bool = True) -> None:
        self.program, self.adam, self.set_to_none = program, adam, set_to_none
        self.parameters = [program.alloc(size, MOVE) for size in PARAMETERS]
        self.gradients: list[int] = []
        self.state: list[int] = []

    def forward(self, *, caller: int = 40, graph: bool = True) -> list[int]:
        """What is alive afterwards: activations and the result, or only the result."""
        p, kept = self.program, []
        for layer in range(3):
            inner = p.alloc(ACTIVATION, forward(20, caller=caller, layer="normalization.py"))
            outer = p.alloc(ACTIVATION, forward(21, caller=caller))
            kept += [inner, outer]
            if not graph:
                p.drop(inner, forward(21, caller=caller))
                if layer:
                    p.drop(kept[-3], forward(20, caller=caller))
        return kept if graph else [kept[-1]]

    def step(self, number: int, *, logits: int = 0) -> None:
        p = self.program
        with p.step(number):
            batch = p.alloc(8 * KIB, user(39))
            kept = self.forward()
            if logits:
                kept += [p.alloc(logits, LOSS), p.alloc(logits, LOSS)]
            self.backward(kept)
            self.optimizer()
            p.drop(batch, user(45))

    def backward(self, kept: list[int]) -> None:
        p = self.program
        fresh = not self.gradients
        for address, size in zip(reversed(kept), 10 * PARAMETERS[::-1], strict=False):
            scratch = p.alloc(700 * KIB, BACKWARD)
            if fresh and len(self.gradients) < 3:
                self.gradients.append(p.alloc(size, BACKWARD))
            p.drop(address, BACKWARD)
            p.drop(scratch, BACKWARD)

    def optimizer(self) -> None:
        p = self.program
        p.drop(p.alloc(64 * KIB, STEP), STEP)
        if self.adam and not self.state:
            self.state = [p.alloc(size, STATE) for size in PARAMETERS for _ in range(2)]
        if self.set_to_none:
            for gradient in self.gradients:
                p.drop(gradient, ZERO)
            self.gradients = []
