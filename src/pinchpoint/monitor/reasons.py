"""Why a device clock is where it is: the driver's bit mask in words.

Bits as in ``nvml.h`` (``nvmlClocksEventReasons``), the same since driver 384.
"""

IDLE = 0x1
APPLICATION_CLOCKS = 0x2
POWER_CAP = 0x4
HARDWARE_SLOWDOWN = 0x8
SYNC_BOOST = 0x10
SOFTWARE_THERMAL = 0x20
HARDWARE_THERMAL = 0x40
POWER_BRAKE = 0x80
DISPLAY = 0x100

WORDS: dict[int, str] = {
    IDLE: "idle",
    APPLICATION_CLOCKS: "clock set by a person",
    POWER_CAP: "power-capped",
    HARDWARE_SLOWDOWN: "slowed by hardware (heat, power or brake)",
    SYNC_BOOST: "held at the clock of the slowest device of a group",
    SOFTWARE_THERMAL: "slowed by the driver for heat",
    HARDWARE_THERMAL: "slowed by hardware for heat",
    POWER_BRAKE: "slowed by the power supply's brake signal",
    DISPLAY: "clock held by a display",
}
"""What each bit means, as it reads in a sentence."""

HOLDS_DOWN = (
    POWER_CAP
    | HARDWARE_SLOWDOWN
    | SOFTWARE_THERMAL
    | HARDWARE_THERMAL
    | POWER_BRAKE
    | SYNC_BOOST
    | APPLICATION_CLOCKS
)
"""The bits that keep a busy device below the clock it could have."""

SLOWED = HARDWARE_SLOWDOWN | HARDWARE_THERMAL | SOFTWARE_THERMAL | POWER_BRAKE
"""The bits that say that heat or the hardware slowed a device; a power cap is how it is run."""


def in_words(mask: int) -> tuple[str, ...]:
    """The set reasons, most basic bit first; unknown bits in hexadecimal."""
    known = tuple(text for bit, text in WORDS.items() if mask & bit)
    rest = mask & ~sum(WORDS)
    return (*known, f"unknown reason {rest:#x}") if rest else known
