"""A prefill service: client threads send documents, one runner answers them in batches."""

import argparse
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
WIDTH, LAYERS, HEADS, LENGTH, BATCH = (8192, 6, 64, 2048, 4) if GPU else (64, 2, 4, 32, 4)
WORDS, CLIENTS, WARM = 32_000, 12, 3
DTYPE = torch.bfloat16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.relu(self.up(self.second(x))))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x.mean(1))


class Service:
    def __init__(self, model):
        self.model, self.inbox = model, queue.Queue()
        self.guard, self.totals = threading.Lock(), {"tokens": 0, "scores": []}

    def submit(self, words):
        reply = queue.Queue(1)
        self.inbox.put((words, reply))
        return reply

    def gather(self):
        return [self.inbox.get() for _ in range(BATCH)]

    def account(self, words, score):
        with self.guard:
            self.totals["tokens"] += len(words)
            self.totals["scores"].append(score)

    @torch.inference_mode()
    def step(self):
        asked = self.gather()
        ids = torch.stack([torch.tensor(words) for words, _ in asked]).to(args.device)
        answer = self.model(ids)
        for row, (words, reply) in zip(answer, asked):
            score = row.float().norm().item()
            self.account(words, score)
            reply.put(row.float().cpu())


def client(service, number, closing):
    mixer = torch.Generator().manual_seed(number)
    while not closing.is_set():
        words = torch.randint(WORDS, (LENGTH,), generator=mixer).tolist()
        reply = service.submit(words)
        while not closing.is_set():
            try:
                reply.get(timeout=0.2)
                break
            except queue.Empty:
                continue


def build():
    with torch.device(args.device):
        torch.set_default_dtype(DTYPE)
        model = Reader().eval()
        torch.set_default_dtype(torch.float32)
    return model


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    service, closing = Service(build()), threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for number in range(CLIENTS):
            pool.submit(client, service, number, closing)
        start = begin = time.perf_counter()
        for step in range(1, args.steps + 1):
            service.step()
            if step % 10 == 0:
                print(f"batch {step} mean score {sum(service.totals['scores']) / len(service.totals['scores']):.3f}")
            if step == WARM:
                sync()
                start = time.perf_counter()
            if time.perf_counter() - begin > args.max_seconds:
                break
        sync()
        took = time.perf_counter() - start
        closing.set()
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
