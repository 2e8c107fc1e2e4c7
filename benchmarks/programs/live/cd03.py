"""Batched text generation with a GPT-2 style model and top-k sampling."""
import argparse
import json
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def build(layers=6, dim=512, heads=8, vocab=12000):
    cfg = GPT2Config(vocab_size=vocab, n_positions=512, n_embd=dim, n_layer=layers, n_head=heads,
                     resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)
    return GPT2LMHeadModel(cfg).eval()


def prompts(n, length, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab, (n, length), generator=g)


class TopKSampler:
    def __init__(self, k, temperature, seed):
        self.k, self.temperature = k, temperature
        self.rng = torch.Generator().manual_seed(seed)

    def __call__(self, logits):
        top = torch.topk(logits / self.temperature, self.k, dim=-1)
        probs = torch.softmax(top.values, dim=-1)
        pick = torch.multinomial(probs, 1, generator=self.rng)
        return top.indices.gather(1, pick)


class StopWhenDone:
    def __init__(self, eos, rows):
        self.eos = eos
        self.done = torch.zeros(rows, dtype=torch.bool)

    def __call__(self, tokens):
        self.done |= tokens.squeeze(1) == self.eos
        return self.done.all().item()


class Transcript:
    def __init__(self, rows):
        self.rows = [[] for _ in range(rows)]

    def add(self, tokens):
        for row, t in zip(self.rows, tokens.squeeze(1).tolist()):
            row.append(t)


@torch.inference_mode()
def generate(model, ids, new_tokens, sampler, on_step):
    out = model(input_ids=ids, use_cache=True)
    cache = out.past_key_values
    token = sampler(out.logits[:, -1])
    seq = torch.cat([ids, token], dim=1)
    stop, text = StopWhenDone(model.config.eos_token_id, ids.shape[0]), Transcript(ids.shape[0])
    for _ in range(new_tokens - 1):
        out = model(input_ids=token, cache=cache, use_cache=True)
        cache = out.past_key_values
        token = sampler(out.logits[:, -1])
        seq = torch.cat([seq, token], dim=1)
        text.add(token)
        if stop(token) or on_step():
            break
    return seq


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="healthy", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--prompt", type=int, default=16)
    p.add_argument("--new-tokens", type=int, default=48)
    args = p.parse_args()
    torch.manual_seed(0)
    model = build()
    times, begin = [], time.perf_counter()
    last = [begin]

    def on_step():
        now = time.perf_counter()
        times.append((now - last[0]) * 1e3)
        last[0] = now
        return len(times) >= args.steps or now - begin > args.max_seconds

    sampler, rounds, digest = TopKSampler(40, 0.9, 7), 0, 0
    while len(times) < args.steps and time.perf_counter() - begin < args.max_seconds:
        ids = prompts(args.batch, args.prompt, model.config.vocab_size, rounds)
        seq = generate(model, ids, args.new_tokens, sampler, on_step)
        digest = (digest * 31 + int(seq.sum())) % 1000003
        rounds += 1
    t = times[5:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "digest": digest}))


if __name__ == "__main__":
    main()
