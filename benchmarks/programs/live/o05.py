"""Streaming text generation server loop: decode a batch, detokenise, emit text deltas, look for stop strings."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PROGRAM = "o05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 700
WARMUP = 8


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


def train_tokenizer(vocab_size, seed=0):
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "an", "er", "ou")]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)]
    corpus = [" ".join(rng.choices(words, k=40)) for _ in range(1500)]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<pad>", "<eos>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", eos_token="<eos>",
                                   clean_up_tokenization_spaces=False)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, cache, pos):
        b, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, 3, self.heads, d // self.heads).unbind(1)
        cache[0][:, :, pos] = k
        cache[1][:, :, pos] = v
        y = F.scaled_dot_product_attention(q.unsqueeze(2), cache[0][:, :, : pos + 1], cache[1][:, :, : pos + 1])
        x = x + self.out(y.reshape(b, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TinyGPT(nn.Module):
    def __init__(self, vocab, dim, heads, layers, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens, caches, pos):
        x = self.tok(tokens) + self.pos.weight[pos]
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, pos)
        return self.head(self.norm(x))


class Stream:
    __slots__ = ("ids", "sent", "prefix", "read", "tail", "out")

    def __init__(self):
        self.ids, self.sent, self.prefix, self.read, self.tail, self.out = [], 0, 0, 0, "", []


def next_delta(tokenizer, stream):
    text = tokenizer.decode(stream.ids)
    delta = text[stream.sent:]
    if delta.endswith("\ufffd"):
        return "", text
    stream.sent = len(text)
    return delta, text


def next_delta_windowed(tokenizer, stream):
    before = tokenizer.decode(stream.ids[stream.prefix: stream.read])
    now = tokenizer.decode(stream.ids[stream.prefix:])
    if len(now) <= len(before) or now.endswith("\ufffd"):
        return "", stream.tail
    delta = now[len(before):]
    stream.prefix, stream.read = stream.read, len(stream.ids)
    stream.tail = (stream.tail + delta)[-64:]
    return delta, stream.tail


DELTA = {"slow": next_delta, "fixed": next_delta_windowed}


class Server:
    STOPS = ("\n\nUser:", "###", "</answer>")

    def __init__(self, model, tokenizer, batch, heads, dim, layers, prompt, max_len, device, dtype, delta):
        self.model, self.tokenizer, self.delta = model, tokenizer, delta
        self.batch, self.prompt, self.max_len, self.device = batch, prompt, max_len, device
        shape = (batch, heads, max_len, dim // heads)
        self.caches = [(torch.randn(shape, device=device, dtype=dtype), torch.randn(shape, device=device, dtype=dtype))
                       for _ in range(layers)]
        self.begin()

    def begin(self):
        self.pos = self.prompt
        self.streams = [Stream() for _ in range(self.batch)]
        self.tokens = torch.full((self.batch,), 5, device=self.device)

    @torch.inference_mode()
    def generate_one(self):
        logits = self.model(self.tokens, self.caches, self.pos)
        logits[:, :2] = float("-inf")
        probs = torch.softmax(logits.float(), -1)
        self.tokens = torch.multinomial(probs, 1).squeeze(-1)
        self.pos += 1
        return self.tokens.tolist()

    def emit(self, ids):
        finished = 0
        for stream, token in zip(self.streams, ids):
            stream.ids.append(token)
            delta, text = self.delta(self.tokenizer, stream)
            if delta:
                stream.out.append(delta)
            finished += any(s in text for s in self.STOPS)
        return finished

    def step(self):
        self.emit(self.generate_one())
        if self.pos == self.max_len:
            self.begin()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        dtype, dim, heads, layers, batch, prompt, new, vocab = torch.bfloat16, 2048, 16, 12, 64, 128, 1024, 4096
    else:
        dtype, dim, heads, layers, batch, prompt, new, vocab = torch.float32, 32, 2, 1, 4, 8, 64, 512
    tokenizer = train_tokenizer(vocab)
    with torch.device(device):
        model = TinyGPT(len(tokenizer), dim, heads, layers, prompt + new).to(dtype).eval()
    server = Server(model, tokenizer, batch, heads, dim, layers, prompt, prompt + new, device, dtype, DELTA[args.variant])
    run_loop(args, device, server.step)


if __name__ == "__main__":
    main()
