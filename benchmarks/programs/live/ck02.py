"""Streaming vocoder service: requests with mel frames come in, small chunks of audio go out."""
import argparse, json, statistics, time
from collections import OrderedDict
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils import parametrize


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--max-seconds", type=float, default=28)
    return p.parse_args()


class ResBlock(nn.Module):
    def __init__(self, ch, kernel, dilations=(1, 3, 5)):
        super().__init__()
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv1d(ch, ch, kernel, dilation=d, padding=d * (kernel - 1) // 2)) for d in dilations)

    def forward(self, x):
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return x


class Generator(nn.Module):
    def __init__(self, mels=80, base=512, rates=(4, 4), kernels=(3, 7)):
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(mels, base, 7, padding=3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        ch = base
        for r in rates:
            self.ups.append(weight_norm(nn.ConvTranspose1d(ch, ch // 2, 2 * r, r, padding=r // 2)))
            ch //= 2
            self.blocks.append(nn.ModuleList(ResBlock(ch, k) for k in kernels))
        self.post = weight_norm(nn.Conv1d(ch, 1, 7, padding=3))

    def forward(self, mel):
        x = self.pre(mel)
        for up, blocks in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(b(x) for b in blocks) / len(blocks)
        return torch.tanh(self.post(F.leaky_relu(x)))


def load_generator(variant):
    torch.manual_seed(0)
    net = Generator()
    state = OrderedDict((k, v.clone()) for k, v in net.state_dict().items())
    net.load_state_dict(state)
    net.eval()
    if variant == "fixed":
        for m in net.modules():
            if parametrize.is_parametrized(m, "weight"):
                parametrize.remove_parametrizations(m, "weight")
    for p in net.parameters():
        p.requires_grad_(False)
    return net


class Request:
    def __init__(self, number, rng):
        self.number = number
        self.mel = rng.standard_normal((80, int(rng.integers(24, 64)))).astype(np.float32)
        self.at = 0
        self.audio = []

    @property
    def done(self):
        return self.at >= self.mel.shape[1]


class Session:
    """Cuts a request into chunks with a little context on both sides."""

    def __init__(self, net, chunk=2, context=2):
        self.net, self.chunk, self.context = net, chunk, context
        self.hop = 16

    def window(self, req):
        lo, hi = max(0, req.at - self.context), min(req.mel.shape[1], req.at + self.chunk + self.context)
        return torch.from_numpy(req.mel[:, lo:hi]).unsqueeze(0), req.at - lo

    @torch.inference_mode()
    def advance(self, req):
        mel, skip = self.window(req)
        wave = self.net(mel)[0, 0]
        n = min(self.chunk, req.mel.shape[1] - req.at)
        piece = wave[skip * self.hop:(skip + n) * self.hop]
        req.audio.append(self.encode(piece))
        req.at += n
        return n

    @staticmethod
    def encode(piece):
        return (piece.clamp(-1, 1) * 32767).to(torch.int16).numpy().tobytes()


def serve(args):
    rng = np.random.default_rng(3)
    session = Session(load_generator(args.variant))
    lat, finished, total = [], 0, 0
    queue = [Request(i, rng) for i in range(4)]
    begin = time.perf_counter()
    for step in range(args.steps):
        t = time.perf_counter()
        req = queue.pop(0)
        session.advance(req)
        if req.done:
            finished += 1
            total += sum(map(len, req.audio))
            req = Request(4 + finished, rng)
        queue.append(req)
        lat.append((time.perf_counter() - t) * 1e3)
        if time.perf_counter() - begin > args.max_seconds:
            break
    body = lat[5:] or lat
    print(f"{finished} requests, {total} bytes of audio")
    print(json.dumps({"case": "ck02", "variant": args.variant, "steps": len(lat), "mean_ms": round(statistics.fmean(body), 3),
                      "median_ms": round(statistics.median(body), 3), "cpu_s": round(time.process_time(), 2)}))


if __name__ == "__main__":
    serve(parse())
