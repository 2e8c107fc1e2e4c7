"""LoRA fine-tuning of a Llama-shaped model, mixed precision, gradient accumulation over short samples."""
import argparse
import json
import math
import statistics
import time

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


class LoraLinear(nn.Module):
    def __init__(self, base, rank=16, alpha=32):
        super().__init__()
        self.base = base
        self.scale = alpha / rank
        where = base.weight.device
        self.down = nn.Parameter(torch.empty(rank, base.in_features, device=where))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device=where))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x):
        update = nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return self.base(x) + self.scale * update


def load_base(config, device, dtype):
    with torch.device(device):
        model = LlamaForCausalLM(config)
    model = model.to(dtype)
    model.requires_grad_(False)
    return model


def add_adapters(model, names=("q_proj", "v_proj")):
    for layer in model.model.layers:
        for name in names:
            setattr(layer.self_attn, name, LoraLinear(getattr(layer.self_attn, name)))
    return [p for p in model.parameters() if p.requires_grad]


def main():
    args = parse_args(["slow", "fixed"], 85)
    dtype = {"slow": torch.float32, "fixed": torch.bfloat16}[args.variant]
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    if gpu:
        config = LlamaConfig(hidden_size=8192, intermediate_size=28672, num_hidden_layers=4,
                             num_attention_heads=64, num_key_value_heads=8, vocab_size=32000,
                             attn_implementation="sdpa", use_cache=False)
        micro, length, accumulate = 1, 512, 6
    else:
        config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, vocab_size=200,
                             attn_implementation="sdpa", use_cache=False)
        micro, length, accumulate = 1, 16, 2
    model = load_base(config, device, dtype)
    trainable = add_adapters(model)
    model.train()
    opt = torch.optim.AdamW(trainable, lr=1e-4, fused=gpu)
    pool = [torch.randint(0, config.vocab_size, (micro, length), device=device) for _ in range(8)]
    count = 0

    def step():
        nonlocal count
        for _ in range(accumulate):
            ids = pool[count % len(pool)]
            count += 1
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
            (loss / accumulate).backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0, foreach=True)
        opt.step()
        opt.zero_grad(set_to_none=True)

    run_loop("o16", args, step)


if __name__ == "__main__":
    main()
