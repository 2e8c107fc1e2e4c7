"""Greedy decoding, token by token, with our own loop around a GPT-2."""
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(2)
EOS = 0


@torch.inference_mode()
def generate(model, prompt, max_new_tokens):
    tokens = prompt
    out = model(tokens, use_cache=True)
    past = out.past_key_values
    finished = torch.zeros(len(prompt), dtype=torch.bool)
    produced, times = [], []
    last = time.perf_counter()
    for _ in range(max_new_tokens):
        nxt = out.logits[:, -1].argmax(-1)
        finished |= nxt == EOS
        if finished.all().item():
            break
        produced.append(nxt.tolist())
        out = model(nxt.unsqueeze(1), past_key_values=past, use_cache=True)
        past = out.past_key_values
        now = time.perf_counter()
        times.append(now - last)
        last = now
    return produced, times


def main():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16000, n_embd=768, n_layer=8, n_head=12)).eval()
    times = []
    t0 = time.perf_counter()
    for request in range(4):
        prompt = torch.randint(1, 16000, (16, 32))
        produced, t = generate(model, prompt, 64)
        times += t
        print(f"request {request}: {len(produced)} tokens for {len(prompt)} sequences", flush=True)
    print(f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s")


if __name__ == "__main__":
    main()
