"""Low-latency token service for a few concurrent requests over one large decoder, a token per request and step."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn.functional as F

PROGRAM = "gd08"
CHOICES = ["healthy"]
DEFAULT_STEPS = 6000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
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


class Weights:
    def __init__(self, vocab, dim, hidden, depth, groups, head, device, dtype):
        def draw(*shape):
            return torch.empty(shape, device=device, dtype=dtype).normal_(0, 0.5 * shape[-1] ** -0.5)

        self.dim, self.groups, self.head = dim, groups, head
        self.token, self.final = draw(vocab, dim), torch.ones(dim, device=device, dtype=dtype)
        self.lm_head = draw(vocab, dim)
        self.layers = [{"qkv": draw(dim + 2 * groups * head, dim), "out": draw(dim, dim),
                        "gate_up": draw(2 * hidden, dim), "down": draw(dim, hidden),
                        "norm1": torch.ones(dim, device=device, dtype=dtype),
                        "norm2": torch.ones(dim, device=device, dtype=dtype)} for _ in range(depth)]


class Engine:
    def __init__(self, weights, slots, context, device):
        self.w, self.slots, self.context, self.device = weights, slots, context, device
        shape = (slots, context, weights.groups, weights.head)
        dtype = weights.token.dtype
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in weights.layers]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in weights.layers]
        self.tokens = torch.zeros(slots, dtype=torch.long, device=device)
        self.places = torch.zeros(slots, dtype=torch.long, device=device)
        self.rows = torch.arange(slots, device=device)
        self.ticks = torch.arange(context, device=device)
        self.graph = None
        if device.type == "cuda":
            self.capture()

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.chosen = self.forward()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.chosen = self.forward()

    def attend(self, qkv, index, blocked):
        w = self.w
        q, k, v = qkv.split([w.dim, w.groups * w.head, w.groups * w.head], -1)
        self.keys[index].index_put_((self.rows, self.places), k.view(self.slots, w.groups, w.head))
        self.values[index].index_put_((self.rows, self.places), v.view(self.slots, w.groups, w.head))
        q = q.view(self.slots, w.groups, -1, w.head)
        scores = torch.matmul(q, self.keys[index].permute(0, 2, 3, 1)) * w.head ** -0.5
        probs = (scores + blocked).softmax(-1)
        return torch.matmul(probs, self.values[index].transpose(1, 2)).reshape(self.slots, w.dim)

    def forward(self):
        w = self.w
        x = w.token[self.tokens]
        blocked = torch.zeros(self.slots, self.context, device=self.device, dtype=x.dtype)
        blocked = blocked.masked_fill_(self.ticks > self.places[:, None], float("-inf"))[:, None, None]
        for index, layer in enumerate(w.layers):
            normed = F.rms_norm(x, (w.dim,), layer["norm1"])
            x = torch.addmm(x, self.attend(F.linear(normed, layer["qkv"]), index, blocked), layer["out"].t())
            gate, up = F.linear(F.rms_norm(x, (w.dim,), layer["norm2"]), layer["gate_up"]).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate) * up, layer["down"].t())
        return F.linear(F.rms_norm(x, (w.dim,), w.final), w.lm_head).argmax(-1)

    def advance(self, tokens, places):
        self.tokens.copy_(torch.tensor(tokens))
        self.places.copy_(torch.tensor(places))
        if self.graph is not None:
            self.graph.replay()
        else:
            self.chosen = self.forward()
        return self.chosen.tolist()


class Request:
    def __init__(self, number, prompt, budget):
        self.number, self.tokens, self.fed = number, list(prompt), 0
        self.prompt_length, self.budget = len(prompt), budget
        self.arrived = time.perf_counter()

    def accept(self, token):
        self.fed += 1
        if self.fed >= len(self.tokens):
            self.tokens.append(token)
        return len(self.tokens) - self.prompt_length >= self.budget


class Service:
    def __init__(self, engine, vocab, longest):
        self.engine, self.vocab, self.longest = engine, vocab, longest
        self.random, self.number = random.Random(9), 0
        self.active = [self.arrive() for _ in range(engine.slots)]
        self.latencies, self.streamed = [], {}

    def arrive(self):
        self.number += 1
        prompt = [self.random.randrange(self.vocab) for _ in range(self.random.randint(4, self.longest // 4))]
        return Request(self.number, prompt, self.random.randint(self.longest // 4, self.longest // 2))

    @torch.inference_mode()
    def step(self):
        tokens = [r.tokens[r.fed] for r in self.active]
        places = [r.fed for r in self.active]
        for slot, token in enumerate(self.engine.advance(tokens, places)):
            request = self.active[slot]
            finished = request.accept(token)
            self.streamed[slot] = json.dumps({"id": request.number, "token": token, "done": finished})
            if finished:
                self.latencies.append(time.perf_counter() - request.arrived)
                self.active[slot] = self.arrive()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    sizes = (32000, 12288, 32768, 8, 8, 128) if big else (64, 32, 48, 1, 2, 8)
    with torch.inference_mode():
        weights = Weights(*sizes, device, torch.bfloat16 if big else torch.float32)
        engine = Engine(weights, 4, 512 if big else 16, device)
    run_loop(args, device, Service(engine, sizes[0], 512 if big else 16).step)


if __name__ == "__main__":
    main()
