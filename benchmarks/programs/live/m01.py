"""Beam search captions from a decoder with preallocated key/value memory."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
WIDTH, HEADS, LAYERS = (1024, 16, 16) if GPU else (64, 4, 2)
IMAGES, BEAMS, CAPACITY, PREFIX = (16, 4, 4096, 48) if GPU else (2, 2, 64, 8)
VOCAB = 32000 if GPU else 500
REPLY = 400 if GPU else 20
WARM = 5
DTYPE = torch.bfloat16 if GPU else torch.float32


def sync():
    if GPU:
        torch.cuda.synchronize()


class Memory:
    """Keys and values of one layer: (row, position, head, channel)."""

    def __init__(self, rows):
        shape = (rows, CAPACITY, HEADS, WIDTH // HEADS)
        self.keys = torch.zeros(shape, device=args.device, dtype=DTYPE)
        self.values = torch.zeros(shape, device=args.device, dtype=DTYPE)

    def put(self, place, key, value):
        self.keys[:, place] = key
        self.values[:, place] = value

    def follow(self, parents, filled):
        self.keys = self.keys.index_select(0, parents)
        self.values = self.values.index_select(0, parents)


class PrefixMemory(Memory):
    def follow(self, parents, filled):
        self.keys[:, :filled] = self.keys[:, :filled].index_select(0, parents)
        self.values[:, :filled] = self.values[:, :filled].index_select(0, parents)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, memory, place):
        rows = len(x)
        q, k, v = self.qkv(self.norm1(x)).view(rows, 3, HEADS, -1).unbind(1)
        memory.put(place, k, v)
        keys = memory.keys[:, : place + 1].transpose(1, 2)
        values = memory.values[:, : place + 1].transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values)
        x = x + self.out(mixed.reshape(rows, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids, memories, place):
        x = self.words(ids)
        for layer, memory in zip(self.layers, memories):
            x = layer(x, memory, place)
        return F.linear(self.norm(x), self.words.weight)


class BeamSearch:
    def __init__(self, model):
        self.model = model
        kind = Memory if args.variant == "slow" else PrefixMemory
        self.memories = [kind(IMAGES * BEAMS) for _ in range(LAYERS)]
        self.base = (torch.arange(IMAGES, device=args.device) * BEAMS).unsqueeze(1)
        self.begin()

    def begin(self):
        self.place = PREFIX
        self.scores = torch.zeros(IMAGES, BEAMS, device=args.device)
        self.ids = torch.randint(VOCAB, (IMAGES * BEAMS,), device=args.device)

    def advance(self):
        logits = self.model(self.ids, self.memories, self.place).float().log_softmax(-1)
        total = self.scores.view(-1, 1) + logits
        self.scores, flat = total.view(IMAGES, BEAMS * VOCAB).topk(BEAMS)
        parents = (self.base + flat // VOCAB).view(-1)
        self.ids = (flat % VOCAB).view(-1)
        self.place += 1
        for memory in self.memories:
            memory.follow(parents, self.place)
        if self.place == PREFIX + REPLY:
            self.begin()


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    with torch.device(args.device):
        model = Captioner().to(DTYPE).eval()
    search = BeamSearch(model)
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        search.advance()
        if step % 100 == 0:
            print(f"token {step} best {search.scores.max().item():.2f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
