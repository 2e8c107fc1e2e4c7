"""Versions, framework switches and the state of the code. Standard library only.

It also runs inside the measured program, whose Python may be another one than ours.
"""

import gc
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from pinchpoint.monitor.environment.facts import Facts, Unreadable

# Distributions whose version can change the speed of a step.
_NAMED = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "triton",
        "pytorch-triton",
        "jax",
        "jaxlib",
        "numpy",
        "cupy",
        "tensorflow",
        "transformers",
        "accelerate",
        "deepspeed",
        "lightning",
        "pytorch-lightning",
        "vllm",
        "sglang",
        "flash-attn",
        "xformers",
        "transformer-engine",
        "apex",
        "torchao",
        "bitsandbytes",
        "datasets",
        "nvidia-dali-cuda120",
        "pinchpoint",
    ]
)
_PREFIXES = ("nvidia-", "cupy-cuda", "jax-cuda", "jax-rocm", "jax-tpu", "libtpu")
_GIT_SECONDS = 5
_ASK_SECONDS = 30  # to start another interpreter from a cold disk, on a full machine
_ASK = """import json, sys
sys.path.append({root!r})
from pinchpoint.monitor.environment.software import software
sys.path.pop()
print(json.dumps(software()))"""
_DIFF_BYTES_LIMIT = 32 << 20


def versions() -> dict[str, str]:
    """Version by distribution name, for those that can matter."""
    found: dict[str, str] = {}
    for dist in metadata.distributions():
        name = (dist.name or "").lower().replace("_", "-")
        if name in _NAMED or name.startswith(_PREFIXES):
            found.setdefault(name, dist.version)
    return dict(sorted(found.items()))


def software() -> tuple[dict[str, Any], dict[str, str]]:
    """Interpreter, distributions, and how torch was built; without importing torch."""
    facts = Facts("software")
    facts.put("python", platform.python_version())
    facts.put("implementation", platform.python_implementation())
    facts.read("distributions", versions)
    facts.read("torch_build", _torch_build)
    facts.read("lock_file_sha256", _lock_file)
    return facts.values, facts.unknown


def software_of(words: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The same of the Python that a command names as its program, which is asked; else of this."""
    python = shutil.which(words[0]) if words else None
    if python is None or not Path(python).name.startswith("python"):
        return software()
    if Path(python).absolute().parent == Path(sys.executable).parent:
        return software()
    ask = [python, "-c", _ASK.format(root=str(Path(__file__).parents[3]))]
    try:
        said = subprocess.run(ask, capture_output=True, timeout=_ASK_SECONDS, check=True)
        values, unknown = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}, {"software": f"{python} did not say"}
    return values, unknown


def _torch_build() -> dict[str, str | None]:
    try:
        dist = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        raise Unreadable("torch is not installed in this interpreter") from None
    text = Path(str(dist.locate_file("torch/version.py"))).read_text(encoding="utf-8")
    assigned = dict(re.findall(r"^(\w+)(?:\s*:[^=]*)?\s*=\s*'([^']*)'", text, re.M))
    return {key: assigned.get(key) for key in ("git_version", "cuda", "hip")}


def _lock_file() -> str:
    for name in ("uv.lock", "poetry.lock", "pdm.lock", "requirements.lock", "requirements.txt"):
        path = Path(name)
        if path.is_file():
            return f"{name}:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    raise Unreadable("no lock file in the working directory")


def switches() -> tuple[dict[str, Any], dict[str, str]]:
    """Framework switches of this process; null unless torch is already imported here."""
    facts = Facts("switches")
    facts.put("gc_enabled", gc.isenabled())
    facts.put("hash_randomized", bool(sys.flags.hash_randomization))
    facts.read("aslr", lambda: Path("/proc/sys/kernel/randomize_va_space").read_text().strip())
    torch = sys.modules.get("torch")
    for name, how in _TORCH_SWITCHES.items():
        if torch is None:
            facts.no(name, "torch is not imported in this process")
        else:
            facts.read(name, partial(how, torch))
    return facts.values, facts.unknown


_TORCH_SWITCHES: dict[str, Any] = {
    "torch": lambda t: str(t.__version__),
    "float32_matmul_precision": lambda t: t.get_float32_matmul_precision(),
    "cudnn_allow_tf32": lambda t: bool(t.backends.cudnn.allow_tf32),
    "cudnn_benchmark": lambda t: bool(t.backends.cudnn.benchmark),
    "cudnn_deterministic": lambda t: bool(t.backends.cudnn.deterministic),
    "deterministic_algorithms": lambda t: bool(t.are_deterministic_algorithms_enabled()),
    "torch_num_threads": lambda t: int(t.get_num_threads()),
    "onednn": lambda t: bool(t.backends.mkldnn.is_available() and t._C._get_mkldnn_enabled()),
    "torch_num_interop_threads": lambda t: int(t.get_num_interop_threads()),
    "cudnn": lambda t: t.backends.cudnn.version(),
    "default_dtype": lambda t: str(t.get_default_dtype()),
}


def code_state(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Commit, branch, dirt and the hash of the difference of the git tree around ``folder``."""
    facts = Facts("code")
    if _git(folder, "rev-parse", "--is-inside-work-tree") != "true":
        for name in ("commit", "branch", "dirty", "diff_sha256"):
            facts.no(name, "the working directory is not in a git repository, or git is missing")
        return facts.values, facts.unknown
    facts.read("commit", lambda: _git(folder, "rev-parse", "HEAD"))
    facts.read("branch", lambda: _git(folder, "rev-parse", "--abbrev-ref", "HEAD"))
    diff = git_diff(folder)
    if diff is None:
        facts.no("dirty", "git diff gave no answer")
        facts.no("diff_sha256", "git diff gave no answer")
    else:
        facts.put("dirty", bool(diff))
        facts.put("diff_sha256", hashlib.sha256(diff.encode()).hexdigest() if diff else "")
    return facts.values, facts.unknown


def git_diff(folder: Path) -> str | None:
    """What is not committed in the git tree around ``folder``; None if nobody can tell."""
    return _git(folder, "diff", "HEAD", "--no-ext-diff", "--no-textconv")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, stripped; None if there is no git, no repository, or no quick answer."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments],
            cwd=folder,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode != 0 or len(done.stdout) > _DIFF_BYTES_LIMIT:
        return None
    return done.stdout.decode("utf-8", "replace").strip()
