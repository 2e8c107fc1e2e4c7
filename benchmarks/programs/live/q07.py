"""Completes log lines with a GPT-2-like model: greedy with a cache, stop words, streamed text."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["healthy"], default="healthy")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()

WIDTH, HEADS, LAYERS, VOCAB, PROMPT, CONTEXT = 768, 12, 6, 16000, 24, 160


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, past):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.n2(x)))), (k, v)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens, start, past):
        x = self.embed(tokens) + self.place(torch.arange(start, start + tokens.size(1), device=tokens.device))
        kept = []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, None if past is None else past[i])
            kept.append(kv)
        return self.norm(x[:, -1]) @ self.embed.weight.T, kept


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    device = torch.device(args.device)
    model = Decoder().to(device).eval()
    words = [f"w{i}" for i in range(VOCAB)]
    stop = {"w13", "w77", "w4096"}
    past, length, text, times = None, 0, "", []
    tokens = torch.randint(0, VOCAB, (1, PROMPT), device=device)
    for step in range(args.steps):
        start = time.perf_counter()
        logits, past = model(tokens, length, past)
        length += tokens.size(1)
        token = logits.argmax(-1).item()
        text = text + " " + words[token]
        print(f"\r{text[-40:]}", end="", flush=True)
        if words[token] in stop or length >= CONTEXT:
            past, length, text = None, 0, ""
            tokens = torch.randint(0, VOCAB, (1, PROMPT), device=device)
        else:
            tokens = torch.tensor([[token]], device=device)
        times.append(time.perf_counter() - start)
    print()
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


main()
