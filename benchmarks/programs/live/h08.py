"""Interactive single-stream generation server loop: one request at a time, token by token."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, dim, heads, ffn, window):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.n1, self.n2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.gate_up = nn.Linear(dim, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)
        self.register_buffer("k", torch.zeros(1, heads, window, self.hd))
        self.register_buffer("v", torch.zeros(1, heads, window, self.hd))

    def forward(self, x, pos, mask):
        q, k, v = self.qkv(self.n1(x)).view(1, 1, 3, self.heads, self.hd).permute(2, 0, 3, 1, 4)
        self.k.index_copy_(2, pos, k)
        self.v.index_copy_(2, pos, v)
        y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)
        x = x + self.out(y.reshape(1, 1, -1))
        g, u = self.gate_up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


class Model(nn.Module):
    def __init__(self, vocab, dim, layers, heads, ffn, window):
        super().__init__()
        self.window = window
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(window, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, ffn, window) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.register_buffer("slots", torch.arange(window))

    def forward(self, token, pos):
        x = (self.tok(token) + self.pos(pos)).unsqueeze(0)
        mask = (self.slots <= pos).view(1, 1, 1, -1)
        for layer in self.layers:
            x = layer(x, pos, mask)
        logits = F.linear(self.norm(x), self.tok.weight).view(-1).float()
        score, nxt = logits.max(0)
        return nxt.view(1), score - logits.logsumexp(0)


class Runner:
    """Holds the static input slots and, on a GPU, the captured step."""

    def __init__(self, model, device):
        self.model = model
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        self.graph = None
        if device == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    model(self.token, self.pos)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = model(self.token, self.pos)

    def __call__(self, token, position):
        self.token.copy_(token)
        self.pos.fill_(position)
        if self.graph is not None:
            self.graph.replay()
            return self.result
        return self.model(self.token, self.pos)


@torch.inference_mode()
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=5000)
    ap.add_argument("--max-seconds", type=float, default=32)
    args = ap.parse_args()
    torch.manual_seed(0)
    gpu = args.device == "cuda"
    shape = (32000, 8192, 12, 64, 28672, 256) if gpu else (100, 32, 2, 2, 64, 16)
    torch.set_default_dtype(torch.bfloat16 if gpu else torch.float32)
    with torch.device(args.device):
        model = Model(*shape)
    runner = Runner(model, args.device)
    eos = shape[0] - 1
    t0, total, request, logp = time.perf_counter(), 0, 0, 0.0
    while total < args.steps and time.perf_counter() - t0 < args.max_seconds:
        token = torch.tensor([request % shape[0]], device=args.device)
        text = []
        for position in range(model.window):
            token, score = runner(token, position)
            text.append(token.item())
            logp += score.item()
            total += 1
            if text[-1] == eos or total >= args.steps:
                break
        request += 1
        print(f"request {request}: {len(text)} tokens, ends {text[-3:]}", flush=True)
    took = time.perf_counter() - t0
    print(f"done steps={total} ms_per_step={1e3 * took / total:.2f} loss={-logp / total:.5f}")


if __name__ == "__main__":
    main()
