"""Records a memory snapshot of a small GPT on a CUDA device, with what is true of it.

    python record.py --out base --layers 12 --width 1024
    python record.py --out ckpt --layers 12 --width 1024 --checkpoint
    python record.py --out leak --keep graph            # graph, outputs, loss
    python record.py --out eval --evaluate graph        # graph, no-grad

Writes OUT.pickle.gz and OUT.truth.json: the peaks of torch.cuda.memory_stats(), and at the end of
each phase the bytes of parameters, gradients and optimizer state, each storage once.
"""

import argparse
import gzip
import json
import pickle
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

PEAKS = ("requested", "allocated", "active", "reserved")


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.mix(x).view(shape).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.wide(self.between(x))


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.checkpointed = options.checkpoint
        self.words = nn.Embedding(options.vocabulary, options.width)
        self.layers = nn.ModuleList(
            Layer(options.width, options.heads) for _ in range(options.layers)
        )
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(self.norm(x))


class Recording:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.marks: list[list[Any]] = []
        self.model = Model(options)
        self.optimizer: torch.optim.Optimizer | None = None

    def begin(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.memory._record_memory_history(
            "all", stacks=self.options.stacks, max_entries=self.options.max_entries
        )

    def mark(self, label: str) -> None:
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        now = [
            stats[f"{name}_bytes.all.current"] for name in ("allocated", "requested", "reserved")
        ]
        sizes = [_bytes(tensors) for tensors in self.tensors().values()]
        self.marks.append([label, time.time_ns() // 1000, *sizes, *now])

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        parameters = list(self.model.parameters())
        state = self.optimizer.state.values() if self.optimizer else ()
        return {
            "params": parameters,
            "grads": [p.grad for p in parameters if p.grad is not None],
            "optim": [v for one in state for v in one.values() if torch.is_tensor(v)],
            "buffers": list(self.model.buffers()),
        }

    def write(self) -> None:
        stats = torch.cuda.memory_stats()
        snapshot = torch.cuda.memory._snapshot()
        truth = {f"{name}_peak": stats[f"{name}_bytes.all.peak"] for name in PEAKS}
        truth |= {k: stats[k] for k in ("num_alloc_retries", "num_ooms")}
        truth["at_end"] = {k: _bytes(v) for k, v in self.tensors().items()}
        truth["marks"] = self.marks
        truth["device"], truth["torch"] = torch.cuda.get_device_name(), torch.__version__
        with gzip.open(f"{self.options.out}.pickle.gz", "wb") as file:
            pickle.dump(snapshot, file, protocol=4)
        Path(f"{self.options.out}.truth.json").write_text(json.dumps(truth))


def _bytes(tensors: list[torch.Tensor]) -> int:
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.is_cuda
    }
    return sum(storages.values())


def batches(options: argparse.Namespace) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for _ in range(options.steps):
        shape = (options.batch, options.length)
        yield tuple(torch.randint(0, options.vocabulary, shape, device="cuda") for _ in range(2))


def loss_of(model: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())


def train(recording: Recording) -> list[Any]:
    options, model, kept = recording.options, recording.model, []
    recording.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for number, (tokens, targets) in enumerate(batches(options)):
        with torch.profiler.record_function(f"ProfilerStep#{number}"):
            with torch.autocast("cuda", torch.bfloat16, enabled=options.bf16):
                loss = loss_of(model, tokens, targets)
            recording.mark(f"step{number}.after_forward")
            loss.backward()
            recording.mark(f"step{number}.after_backward")
            recording.optimizer.step()
            recording.optimizer.zero_grad(set_to_none=not options.keep_gradients)
            if options.keep == "graph":
                kept.append(loss_of(model, tokens, targets))
            elif options.keep == "outputs":
                with torch.no_grad():
                    kept.append(model(tokens))
            elif options.keep == "loss":
                kept.append(loss)
            del loss, tokens, targets
        recording.mark(f"step{number}.end")
    return kept


def evaluate(recording: Recording) -> list[Any]:
    grad = nullcontext() if recording.options.evaluate == "graph" else torch.no_grad()
    result = None
    with grad:
        for number, (tokens, _) in enumerate(batches(recording.options)):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                result = recording.model(tokens)
            recording.mark(f"step{number}.end")
    return [result]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    for name, value in (("layers", 6), ("width", 512), ("heads", 8), ("vocabulary", 8192)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("batch", 8), ("length", 256), ("steps", 5), ("max-entries", 1_000_000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--stacks", choices=("python", "all"), default="python")
    parser.add_argument("--keep", choices=("graph", "outputs", "loss"))
    parser.add_argument("--evaluate", choices=("graph", "no-grad"))
    for name in ("checkpoint", "bf16", "keep-gradients", "late"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    recording = Recording(options)
    if not options.late:
        recording.begin()
    recording.model = recording.model.to("cuda")
    if options.late:
        steps, options.steps = options.steps, 1
        train(recording)
        recording.marks.clear()
        options.steps = steps
        recording.begin()
    kept = evaluate(recording) if options.evaluate else train(recording)
    recording.write()
    del kept


if __name__ == "__main__":
    main()
