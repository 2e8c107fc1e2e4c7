"""A character model of chess games with accelerate: recurrent, logged every step, saved at times."""

import argparse
import os
import tempfile
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.tensorboard import SummaryWriter


class Games(Dataset):
    def __init__(self, count, length, letters):
        gen = torch.Generator().manual_seed(13)
        self.text = torch.randint(0, letters, (count * length + 1,), generator=gen)
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        piece = self.text[i * self.length : (i + 1) * self.length + 1]
        return piece[:-1], piece[1:]


class GameModel(nn.Module):
    def __init__(self, letters, width):
        super().__init__()
        self.letter = nn.Embedding(letters, 64)
        self.rnn = nn.LSTM(64, width, num_layers=1, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, x):
        h, _ = self.rnn(self.letter(x))
        return self.head(h)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=120)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    accelerator = Accelerator(cpu=args.device == "cpu")
    letters = 64
    loader = DataLoader(Games(4000, 32, letters), batch_size=32, shuffle=True, drop_last=True)
    model = GameModel(letters, 320)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    folder = tempfile.mkdtemp()
    board = SummaryWriter(folder)

    times, step, running = [], 0, 0.0
    start = time.perf_counter()
    while step < args.steps:
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            opt.zero_grad()
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            running = 0.95 * running + 0.05 * loss.item()
            board.add_scalar("loss", running, step)
            board.add_scalar("gradient", float(norm), step)
            print(f"\rstep {step} loss {running:.3f}", end="", flush=True)
            step += 1
            if step % 60 == 0:
                state = accelerator.unwrap_model(model).state_dict()
                torch.save(state, os.path.join(folder, "last.pt"))
            now = time.perf_counter()
            times.append(now - start)
            start = now
            if step >= args.steps:
                break
    board.close()

    print()
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
