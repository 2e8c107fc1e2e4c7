"""What devices can do: data sheets with a source for each number, and ceilings measured here."""

from pinchpoint.hardware.specs import (
    DeviceSpec,
    alike_spec,
    all_specs,
    derived_spec,
    find_spec,
    flop_per_cycle,
)

__all__ = [
    "DeviceSpec",
    "alike_spec",
    "all_specs",
    "derived_spec",
    "find_spec",
    "flop_per_cycle",
]
