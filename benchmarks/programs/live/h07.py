"""Convolutional acoustic model trained with CTC on utterances of natural length."""

import argparse
import contextlib
import time
from typing import Iterator, NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class Utterances(NamedTuple):
    feats: torch.Tensor
    feat_len: torch.Tensor
    labels: torch.Tensor
    label_len: torch.Tensor


def setup(device: str, variant: str) -> None:
    torch.manual_seed(0)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = variant == "slow"


class ConvBlock(nn.Module):
    def __init__(self, width: int, kernel: int):
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + F.relu(self.norm(self.conv(x)))


class AcousticModel(nn.Module):
    def __init__(self, mels: int, width: int, depth: int, symbols: int):
        super().__init__()
        self.stem = nn.Conv1d(mels, width, 11, stride=2, padding=5)
        self.blocks = nn.Sequential(*[ConvBlock(width, 11) for _ in range(depth)])
        self.head = nn.Linear(width, symbols)

    def forward(self, feats):
        h = self.blocks(F.relu(self.stem(feats)))
        return self.head(h.transpose(1, 2)).float().log_softmax(-1)


def utterance_batches(
    batch: int, mels: int, lo: int, hi: int, symbols: int, device: str
) -> Iterator[Utterances]:
    """Batches of similar length (the corpus is sorted into length bins, bins visited in random order)."""
    gen = torch.Generator().manual_seed(23)
    while True:
        longest = int(torch.randint(lo, hi, (1,), generator=gen)) * 16
        lens = torch.randint(int(longest * 0.95), longest + 1, (batch,), generator=gen)
        lens[0] = longest
        n_lab = longest // 16
        feats = torch.randn(batch, mels, longest, device=device)
        keep = torch.arange(longest, device=device) < lens.to(device)[:, None]
        labels = torch.randint(1, symbols, (batch, n_lab), generator=gen)
        yield Utterances(
            feats * keep[:, None],
            (lens + 1) // 2,
            labels.to(device),
            torch.full((batch,), n_lab, dtype=torch.long),
        )


def train_step(model, batch, opt, amp):
    with amp():
        logp = model(batch.feats)
    loss = F.ctc_loss(
        logp.transpose(0, 1), batch.labels, batch.feat_len, batch.label_len, zero_infinity=True
    )
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    return loss.detach()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cuda")
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--max-seconds", type=float, default=36)
    a = p.parse_args()
    setup(a.device, a.variant)
    gpu = a.device == "cuda"
    width, depth, batch, mels, lo, hi = (768, 14, 48, 80, 20, 160) if gpu else (32, 2, 4, 20, 4, 12)
    model = AcousticModel(mels, width, depth, 64).to(a.device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=gpu)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))

    def amp():
        if gpu:
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    t0 = time.perf_counter()
    frames = 0
    for step, batch_ in enumerate(utterance_batches(batch, mels, lo, hi, 64, a.device), 1):
        loss = train_step(model, batch_, opt, amp)
        warm.step()
        frames += batch_.feats.shape[-1]
        if step % 20 == 0:
            print(f"step {step} ctc {loss.item():.4f} frames {frames}", flush=True)
        if step >= a.steps or time.perf_counter() - t0 > a.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - t0
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
