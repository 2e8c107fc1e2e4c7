"""Collects facts one by one; what cannot be read becomes null with a reason."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Unreadable(Exception):
    """A fact that this machine or process does not tell; the text says why."""


class Facts:
    """Named values under a path, with the reasons for those that are null.

    >>> facts = Facts("host")
    >>> facts.read("kernel", platform.release)
    >>> facts.values, facts.unknown
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}

    def read(self, name: str, how: Callable[[], Any]) -> None:
        """Store ``how()``; if it raises or gives None, store null and the reason."""
        try:
            value = how()
        except Unreadable as why:
            self.no(name, str(why))
        except Exception as error:  # any driver or file-system failure is a reason, never a crash
            self.no(name, f"{type(error).__name__}: {error}"[:200])
        else:
            if value is None:
                self.no(name, "not told by the system")
            else:
                self.values[name] = value

    def no(self, name: str, why: str) -> None:
        """Store null with its reason."""
        self.values[name] = None
        self.unknown[f"{self.path}.{name}"] = why

    def put(self, name: str, value: Any) -> None:
        """Store a value that is known."""
        self.values[name] = value


def file_text(path: str | Path) -> str:
    """The stripped text of a small system file; Unreadable if it is not there."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None


def file_number(path: str | Path) -> int:
    """The whole number in a small system file."""
    text = file_text(path)
    try:
        return int(text)
    except ValueError:
        raise Unreadable(f"{path} holds {text[:40]!r}, not a number") from None


# ------------------------------------------------------------------------------------------------
# Environment variables and command lines, without their secrets.


# Names whose values change how fast a program runs, and hold nothing private.
_ALLOWED_NAMES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_DEVICE_ORDER",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "NVIDIA_TF32_OVERRIDE",
        "NVIDIA_VISIBLE_DEVICES",
        "CUBLAS_WORKSPACE_CONFIG",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_NVML_BASED_CUDA_CHECK",
        "XLA_FLAGS",
        "LD_PRELOAD",
        "PYTHONHASHSEED",
        "PYTHONMALLOC",
        "PYTHONOPTIMIZE",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
    }
)
_ALLOWED_PREFIXES = (
    "CUDA_CACHE_",
    "NCCL_",
    "RCCL_",
    "TORCHINDUCTOR_",
    "TORCH_",
    "TORCHDYNAMO_",
    "TRITON_",
    "JAX_",
    "XLA_",
    "OMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "MALLOC_",
    "HSA_",
    "MIOPEN_",
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE|AUTH", re.I)
_URL_WITH_USER = re.compile(r"://[^/\s@]*@")
_SECRET_OPTION = re.compile(r"(token|secret|passw|credential|api[-_]?key|private|auth)", re.I)
WITHHELD = "(withheld)"


def variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """All names, and the values of those that are known to be harmless and to matter."""
    values = {name: environ[name] for name in sorted(environ) if _may_show(name, environ[name])}
    return {"names": sorted(environ), "values": values}


def _may_show(name: str, value: str) -> bool:
    if _SECRET.search(name) or _URL_WITH_USER.search(value):
        return False
    return name in _ALLOWED_NAMES or name.startswith(_ALLOWED_PREFIXES)


def redacted_command(command: Sequence[str]) -> list[str]:
    """The command with the values of options that look like secrets withheld.

    >>> redacted_command(["python", "t.py", "--api-key", "abc", "--token=xyz"])
    ['python', 't.py', '--api-key', '(withheld)', '--token=(withheld)']
    """
    out: list[str] = []
    hide_next = False
    for word in command:
        if hide_next and not word.startswith("-"):
            out.append(WITHHELD)
        else:
            out.append(_redacted_word(word))
        is_option = word.startswith("-") and "=" not in word
        hide_next = is_option and _SECRET_OPTION.search(word) is not None
    return out


def _redacted_word(word: str) -> str:
    name, equals, _ = word.partition("=")
    if equals and _SECRET_OPTION.search(name):
        return f"{name}={WITHHELD}"
    return _URL_WITH_USER.sub(f"://{WITHHELD}@", word)
