"""Speech-to-text worker: encodes a clip, then greedy-decodes a transcript token by token."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, VOCAB, FRAMES, MELS = 384, 6, 8192, 400, 80
MAX_TOKENS = 32


def split(x):
    return x.view(x.shape[0], x.shape[1], HEADS, D // HEADS).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).reshape(x.shape[0], -1, D)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D)

    def forward(self, x, state=None, pos=0):
        q, k, v = (split(t) for t in self.qkv(x).chunk(3, -1))
        if state is not None:
            state["k"][:, :, pos : pos + 1] = k
            state["v"][:, :, pos : pos + 1] = v
            k, v = state["k"][:, :, : pos + 1], state["v"][:, :, : pos + 1]
        return self.out(merge(F.scaled_dot_product_attention(q, k, v)))


class CrossAttention(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.q = nn.Linear(D, D)
        self.k = nn.Linear(D, D, bias=False)
        self.v = nn.Linear(D, D)
        self.out = nn.Linear(D, D)
        self.keep = keep

    def forward(self, x, audio, state):
        q = split(self.q(x))
        if "audio" in state:
            k, v = state["audio"]
        else:
            k, v = split(self.k(audio)), split(self.v(audio))
            if self.keep:
                state["audio"] = (k, v)
        return self.out(merge(F.scaled_dot_product_attention(q, k, v)))


def mlp():
    return nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn, self.mlp = SelfAttention(), mlp()

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class DecoderLayer(nn.Module):
    def __init__(self, keep):
        super().__init__()
        self.ln1, self.ln2, self.ln3 = nn.LayerNorm(D), nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn, self.cross, self.mlp = SelfAttention(), CrossAttention(keep), mlp()

    def forward(self, x, audio, state, pos):
        x = x + self.attn(self.ln1(x), state, pos)
        x = x + self.cross(self.ln2(x), audio, state)
        return x + self.mlp(self.ln3(x))


class Decoder(nn.Module):
    def __init__(self, layers, keep):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, D)
        self.pos = nn.Embedding(MAX_TOKENS + 1, D)
        self.layers = nn.ModuleList(DecoderLayer(keep) for _ in range(layers))
        self.ln = nn.LayerNorm(D)

    def forward(self, token, audio, states, pos):
        x = self.tok(token) + self.pos.weight[pos]
        for layer, state in zip(self.layers, states):
            x = layer(x, audio, state, pos)
        return self.ln(x[:, -1]) @ self.tok.weight.T


class Encoder(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.c1 = nn.Conv1d(MELS, D, 3, padding=1)
        self.c2 = nn.Conv1d(D, D, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(EncoderLayer() for _ in range(layers))
        self.ln = nn.LayerNorm(D)

    def forward(self, mel):
        x = F.gelu(self.c2(F.gelu(self.c1(mel)))).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.ln(x)


class Transcriber:
    def __init__(self, keep):
        torch.manual_seed(0)
        self.encoder = Encoder(2).eval()
        self.decoder = Decoder(4, keep).eval()

    def new_states(self, batch):
        shape = (batch, HEADS, MAX_TOKENS, D // HEADS)
        return [{"k": torch.zeros(shape), "v": torch.zeros(shape)} for _ in self.decoder.layers]

    @torch.inference_mode()
    def transcribe(self, mel, times):
        audio = self.encoder(mel)
        states = self.new_states(mel.shape[0])
        token = torch.ones(mel.shape[0], 1, dtype=torch.long)
        out = []
        for pos in range(MAX_TOKENS):
            start = time.perf_counter()
            logits = self.decoder(token, audio, states, pos)
            token = logits.argmax(-1, keepdim=True)
            out.append(token)
            times.append(time.perf_counter() - start)
        return torch.cat(out, 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000, help="clips")
    ap.add_argument("--max-seconds", type=float, default=18)
    a = ap.parse_args()
    worker = Transcriber(keep=a.variant == "fixed")
    gen = torch.Generator().manual_seed(1)
    clips = [torch.randn(2, MELS, FRAMES, generator=gen) for _ in range(8)]
    tokens, requests, seen = [], [], 0
    began = time.perf_counter()
    for i in range(a.steps):
        start = time.perf_counter()
        text = worker.transcribe(clips[i % len(clips)], tokens)
        requests.append(time.perf_counter() - start)
        seen += text.numel()
        if time.perf_counter() - began > a.max_seconds:
            break
    skip = MAX_TOKENS if len(requests) > 2 else 0
    t, r = tokens[skip:], requests[1 if skip else 0 :]
    print(json.dumps({"tokens": seen, "mean_step_ms": 1e3 * statistics.mean(t), "median_step_ms": 1e3 * statistics.median(t),
                      "mean_request_ms": 1e3 * statistics.mean(r)}))


if __name__ == "__main__":
    main()
