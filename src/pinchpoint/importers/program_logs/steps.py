"""How long steps took, as training programs print it every few of them."""

from pinchpoint.importers.program_logs._figures import Figure, figures_table, parsed, said_table
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

# Of a line: words that must be in it, what is measured, and of one of it so many milliseconds.
_TIMES = (
    ("elapsed time per", regex(r"elapsed time per iteration \(ms\): ([\d.]+)"), "step (ms)", 1.0),
    # NeMo, Megatron Bridge; nanoGPT; llm.c; the runs on a page of NanoGPT's; torchvision's example
    ("Step Time", regex(r"\bStep Time ?: ?([\d.]+) ?s\b"), "step (ms)", 1e3),
    ("iter ", regex(r"^iter \d+: loss .*\btime ([\d.]+)ms"), "step (ms)", 1.0),
    (" ms", regex(r"\bstep +\d+/\d+ .*[|(] ?([\d.]+) ms\b"), "step (ms)", 1.0),
    ("step_avg:", regex(r"\bstep_avg:([\d.]+)ms"), "step, mean so far (ms)", 1.0),
    ("]\tTime ", regex(r"\]\s+Time +([\d.]+) \( *[\d.]+\)"), "step (ms)", 1e3),
    ("Data ", regex(r"\sData +([\d.]+) \( *[\d.]+\)"), "waiting for data (ms)", 1e3),
    # of an image, as Ultralytics prints them
    ("process, ", regex(r"Speed: ([\d.]+)ms pre-?process"), "preprocess (ms)", 1.0),
    ("ms inference", regex(r"([\d.]+)ms inference"), "inference (ms)", 1.0),
    ("ms inference", regex(r"([\d.]+)ms post-?process"), "postprocess (ms)", 1.0),
    ("ms/step", regex(r"- \d+s ([\d.]+)ms/step"), "step (ms)", 1.0),  # Keras
    # mmengine, detectron2; DeepSpeed; torchtitan; Megatron; NeMo
    ("data_time: ", regex(r"\bdata_time: ([\d.]+)"), "waiting for data (ms)", 1e3),
    (" time: ", regex(r"\stime: ([\d.]+)(?= +(?:data_|last_t|memory))"), "step (ms)", 1e3),
    ("CurrSamplesPer", regex(r"\bCurrSamplesPerSec=([\d.]+)"), "samples/s", 1.0),
    ("tps: ", regex(r"\btps: ([\d.,]+)"), "tokens/s", 1.0),
    ("(TFLOP/s/GPU): ", regex(r"\(TFLOP/s/GPU\): ([\d.]+)"), "TFLOP/s of a device", 1.0),
    ("MODEL_TFLOP", regex(r"([\d.]+) ?MODEL_TFLOP/s/GPU"), "TFLOP/s of a device", 1.0),
    ("tflops: ", regex(r"\btflops: ([\d.,]+)"), "TFLOP/s of a device", 1.0),
)
# Of OLMo and many others: throughput/device/tokens_per_second=50,032; whatever is counted.
_RATE = regex(r"_per_sec(?:ond)?['\"]?\s?[=:] ?'?(\d[\d.,]*)")
_NAME = regex(r"[\w/]+\Z")
_LONGEST_NAME = 60  # characters before the unit of time
_MOST_RATES = 50  # names; a program prints some


class Steps:
    """Times and rates of steps."""

    def __init__(self) -> None:
        self._figures: dict[str, Figure] = {}

    def line(self, text: str) -> str:
        """Looks at one line of the log; what is taken of it is left out of the rest."""
        rest = text
        if "_per_sec" in text and "train_runtime" not in text:
            self._rates(text)
            rest = _RATE.sub("", rest)
        for words, pattern, meaning, unit in _TIMES:
            if words not in text or (found := pattern.search(text)) is None:
                continue
            if (value := parsed(found[1])) is not None:
                self._figures.setdefault(meaning, Figure()).add(value * unit)
                rest = rest.replace(found[0], "", 1)
        return rest

    def _rates(self, text: str) -> None:
        """``device/tokens_per_second=1,234`` is so many device/tokens/s."""
        for found in _RATE.finditer(text):
            before = text[max(0, found.start() - _LONGEST_NAME) : found.start()]
            value = parsed(found[1].rstrip(",."))
            if value is None or (called := _NAME.search(before)) is None:
                continue
            name = f"{called[0].removeprefix('throughput/').replace('_', ' ')}/s"
            if name in self._figures or len(self._figures) < _MOST_RATES:
                self._figures.setdefault(name, Figure()).add(value)

    def is_open(self) -> bool:
        """No line belongs to the one before."""
        return False

    def tables(self) -> tuple[SummaryTable, ...]:
        """One, where any step was printed."""
        title = "steps, as the program prints them"
        found = figures_table(title, "figure of a line", self._figures.items())
        return found + said_table("of the time of these steps", self._share())

    def _share(self) -> list[tuple[str, str]]:
        """Waiting for data, where the same lines give both times."""
        step, data = (self._figures.get(name) for name in ("step (ms)", "waiting for data (ms)"))
        if step is None or data is None or len(step.values) != len(data.values):
            return []
        whole, waited = sum(step.values), sum(data.values)
        return (
            [("waiting for data", f"{100 * waited / whole:.1f} %")] if 0 < waited <= whole else []
        )
