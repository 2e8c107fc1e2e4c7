"""Beam-search transcription with a speech encoder-decoder: batches of utterances, five beams each, key/value caches."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "t03"
STEPS = 400
WARMUP = 6


class BeamMemory:
    """Keys and values of the encoder states, one row for each running hypothesis."""

    def __init__(self, keys, values, beams):
        self.beams = beams
        self.keys = keys.repeat_interleave(beams, 0)
        self.values = values.repeat_interleave(beams, 0)

    def attend(self, q):
        return F.scaled_dot_product_attention(q, self.keys, self.values)

    def reorder(self, order):
        self.keys = self.keys.index_select(0, order)
        self.values = self.values.index_select(0, order)


class UtteranceMemory:
    """Keys and values of the encoder states, one row for each utterance; its hypotheses are the query positions."""

    def __init__(self, keys, values, beams):
        self.beams, self.keys, self.values = beams, keys, values

    def attend(self, q):
        rows, heads, _, width = q.shape
        q = q.view(rows // self.beams, self.beams, heads, width).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, self.keys, self.values)
        return y.transpose(1, 2).reshape(rows, heads, 1, width)

    def reorder(self, order):
        pass


class History:
    def __init__(self, rows, heads, length, width, device, dtype):
        self.keys = torch.zeros(rows, heads, length, width, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def append(self, k, v, at):
        self.keys[:, :, at:at + 1] = k
        self.values[:, :, at:at + 1] = v
        return self.keys[:, :, :at + 1], self.values[:, :, :at + 1]

    def reorder(self, order, used):
        self.keys[:, :, :used] = self.keys[:, :, :used].index_select(0, order)
        self.values[:, :, :used] = self.values[:, :, :used].index_select(0, order)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.width = heads, width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.cross_q = nn.Linear(width, width)
        self.cross_kv = nn.Linear(width, 2 * width)
        self.cross_out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def remember(self, states):
        k, v = self.cross_kv(states).chunk(2, -1)
        return self.split(k).contiguous(), self.split(v).contiguous()

    def forward(self, x, history, memory, at):
        q, k, v = (self.split(p) for p in self.qkv(self.norms[0](x)).chunk(3, -1))
        k, v = history.append(k, v, at)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        y = memory.attend(self.split(self.cross_q(self.norms[1](x))))
        x = x + self.cross_out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norms[2](x))))


class Decoder(nn.Module):
    def __init__(self, vocab, width, heads, depth, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, histories, memories, at):
        x = self.embed(ids)[:, None] + self.place.weight[at]
        for layer, history, memory in zip(self.layers, histories, memories):
            x = layer(x, history, memory, at)
        return F.linear(self.norm(x[:, 0]), self.embed.weight)


class BeamSearch:
    def __init__(self, decoder, utterances, beams, states, length, memory, device, dtype):
        self.decoder, self.beams, self.count, self.length = decoder, beams, utterances, length
        self.device, self.dtype, self.states, self.memory = device, dtype, states, memory
        first = decoder.layers[0]
        rows = utterances * beams
        self.histories = [History(rows, first.heads, length, first.width // first.heads, device, dtype) for _ in decoder.layers]
        self.base = torch.arange(utterances, device=device)[:, None] * beams
        self.begin()

    def begin(self):
        self.at = 0
        self.memories = None
        self.memories = [self.memory(*layer.remember(self.states), self.beams) for layer in self.decoder.layers]
        self.tokens = torch.ones(self.count * self.beams, dtype=torch.long, device=self.device)
        self.scores = torch.full((self.count, self.beams), -1e9, device=self.device)
        self.scores[:, 0] = 0
        self.text = torch.zeros(self.count * self.beams, self.length, dtype=torch.long, device=self.device)

    @torch.inference_mode()
    def step(self):
        if self.at == self.length:
            self.begin()
        logits = self.decoder(self.tokens, self.histories, self.memories, self.at)
        scores = F.log_softmax(logits.float(), -1).view(self.count, self.beams, -1) + self.scores[..., None]
        vocab = scores.shape[-1]
        self.scores, flat = scores.flatten(1).topk(self.beams, -1)
        order = (self.base + flat // vocab).flatten()
        self.tokens = (flat % vocab).flatten()
        self.text = self.text.index_select(0, order)
        self.text[:, self.at] = self.tokens
        for history, memory in zip(self.histories, self.memories):
            history.reorder(order, self.at + 1)
            memory.reorder(order)
        self.at += 1


VARIANTS = {"slow": BeamMemory, "fixed": UtteranceMemory}


@torch.inference_mode()
def build(device, memory):
    gpu = device.type == "cuda"
    vocab, width, heads, depth, frames, length, utterances = (51865, 1024, 16, 24, 750, 200, 64) if gpu else (97, 32, 2, 2, 30, 12, 3)
    dtype = torch.bfloat16 if gpu else torch.float32
    decoder = Decoder(vocab, width, heads, depth, length).to(device, dtype).eval()
    states = torch.randn(utterances, frames, width, device=device, dtype=dtype)
    return BeamSearch(decoder, utterances, 5, states, length, memory, device, dtype).step


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step, device, steps, limit):
    marks = []
    settle(device)
    begin = time.perf_counter()
    last = begin
    for _ in range(steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
        if limit and now - begin > limit:
            break
    settle(device)
    total = (time.perf_counter() - begin) * 1e3
    return len(marks), total / len(marks), statistics.median(marks)


def record(step, device, path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
                                record_shapes=True, with_stack=True, with_modules=True,
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default=sorted(VARIANTS)[-1])
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    step = build(device, VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    count, mean, median = timed(step, device, args.steps, args.max_seconds)
    print(json.dumps({"program": NAME, "variant": args.variant, "steps": count,
                      "step_ms_mean": round(mean, 3), "step_ms_median": round(median, 3)}), flush=True)
    if args.trace:
        record(step, device, args.trace)


if __name__ == "__main__":
    main()
