"""What to say where a compiled function of JAX copies what it was given to change."""

from collections.abc import Sequence

from pinchpoint.regex import regex

_NAME = regex(r"[\[.]")  # of an argument, before the path to the leaf: buffer['next_obs']


def donate(function: str, arguments: Sequence[str]) -> str:
    """The fix; ``arguments`` as the program calls them, leaves of trees with their paths."""
    if arguments:
        names = ", ".join(dict.fromkeys(_NAME.split(one)[0] for one in arguments))
        return (
            f"Donate {names} to {function} (donate_argnums of jax.jit), which gives back what it"
            " changed: XLA then changes it in place"
        )
    return (
        f"Donate the arrays that {function} takes and gives back changed (donate_argnums of"
        " jax.jit): XLA then changes them in place"
    )
