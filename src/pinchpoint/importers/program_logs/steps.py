"""How long steps took, as training programs print it every few of them."""

from pinchpoint.importers.program_logs._figures import Figure, figures_table, parsed
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

# Of a line: what is measured, the group of the number, milliseconds of one of it.
_TIMES = (
    (regex(r"elapsed time per iteration \(ms\): ([\d.]+)"), "step (ms)", 1.0),  # Megatron
    (regex(r"\bStep Time ?: ?([\d.]+) ?s\b"), "step (ms)", 1e3),  # NeMo, Megatron Bridge
    (regex(r"^iter \d+: loss .*\btime ([\d.]+)ms"), "step (ms)", 1.0),  # nanoGPT
    (regex(r"\bstep +\d+/\d+ .*[|(] ?([\d.]+) ms\b"), "step (ms)", 1.0),  # llm.c
    (
        regex(r"\bstep:\d+/\d+ .*\bstep_avg:([\d.]+)ms"),
        "step, mean so far (ms)",
        1.0,
    ),  # NanoGPT runs
    (
        regex(r"\]\s+Time +([\d.]+) \( *[\d.]+\)"),
        "step (ms)",
        1e3,
    ),  # torchvision's ImageNet example
    (regex(r"\sData +([\d.]+) \( *[\d.]+\)"), "waiting for data (ms)", 1e3),
    (regex(r"\bdata_time: ([\d.]+)"), "waiting for data (ms)", 1e3),  # mmengine, detectron2
    (regex(r"[\s,]time: ([\d.]+)(?= +(?:data_time|last_time|memory))"), "step (ms)", 1e3),
    (regex(r"\bCurrSamplesPerSec=([\d.]+)"), "samples/s", 1.0),  # DeepSpeed
    (regex(r"\btps: ([\d.,]+)"), "tokens/s", 1.0),  # torchtitan
    (regex(r"throughput per GPU \(TFLOP/s/GPU\): ([\d.]+)"), "TFLOP/s of a device", 1.0),
    (regex(r"([\d.]+) ?MODEL_TFLOP/s/GPU"), "TFLOP/s of a device", 1.0),
    (regex(r"\btflops: ([\d.,]+)"), "TFLOP/s of a device", 1.0),
)
_FEWEST = 2  # one number is no pace


class Steps:
    """Times and rates of steps."""

    def __init__(self) -> None:
        self._figures: dict[str, Figure] = {}

    def line(self, text: str) -> None:
        """Looks at one line of the log."""
        for pattern, meaning, unit in _TIMES:
            if (found := pattern.search(text)) and (value := parsed(found[1])) is not None:
                self._figures.setdefault(meaning, Figure()).add(value * unit)

    def tables(self) -> tuple[SummaryTable, ...]:
        """One, where at least two steps were printed."""
        rows = [(m, f) for m, f in self._figures.items() if len(f.values) >= _FEWEST]
        return figures_table("steps, as the program prints them", "figure of a line", rows)
