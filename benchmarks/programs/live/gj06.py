"""Speaker recognition: the transformer of a wav2vec2 model is tuned, its convolutional front end is kept."""
import argparse
import json
import statistics
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

PROGRAM = "gj06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 700
WARMUP = 4


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


def build_model(big, speakers, variant):
    width = 512 if big else 32
    config = Wav2Vec2Config(
        hidden_size=width, num_hidden_layers=4 if big else 1, num_attention_heads=8 if big else 2,
        intermediate_size=4 * width, conv_dim=(512,) * 7 if big else (16,) * 7,
        num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=16,
        classifier_proj_size=256 if big else 16, num_labels=speakers,
        apply_spec_augment=False, layerdrop=0.0, hidden_dropout=0.0, attention_dropout=0.0,
        activation_dropout=0.0, feat_proj_dropout=0.0)
    model = Wav2Vec2ForSequenceClassification(config)
    if variant == "fixed":
        model.freeze_feature_encoder()
    else:
        for p in model.wav2vec2.feature_extractor.parameters():
            p.requires_grad = False
    return model


class Voices:
    """Synthetic utterances: every speaker has a pitch and a formant."""

    def __init__(self, speakers, batch, samples, device):
        self.batch, self.samples, self.device = batch, samples, device
        self.pitch = torch.empty(speakers, device=device).uniform_(80, 300)
        self.formant = torch.empty(speakers, device=device).uniform_(400, 2500)
        self.t = torch.arange(samples, device=device) / 16000.0

    def draw(self):
        who = torch.randint(0, len(self.pitch), (self.batch,), device=self.device)
        phase = 6.2832 * self.t
        wave = torch.sin(self.pitch[who, None] * phase) + 0.5 * torch.sin(self.formant[who, None] * phase)
        wave = wave + 0.1 * torch.randn_like(wave)
        return (wave - wave.mean(1, keepdim=True)) / wave.std(1, keepdim=True), who


class Accuracy:
    def __init__(self, device):
        self.hit = torch.zeros((), device=device)
        self.count = 0

    def add(self, logits, who):
        self.hit += (logits.argmax(-1) == who).sum()
        self.count += len(who)

    def value(self):
        return self.hit.item() / max(self.count, 1)


class Tuner:
    def __init__(self, args, device):
        big = device.type == "cuda"
        self.device = device
        self.model = build_model(big, 200, args.variant).to(device).train()
        self.voices = Voices(200, 32 if big else 2, 160_000 if big else 4000, device)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.opt = torch.optim.AdamW(trained, lr=1e-4, fused=device.type == "cuda")
        self.accuracy = Accuracy(device)
        self.at = 0

    def step(self):
        wave, who = self.voices.draw()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(wave).logits
        loss = F.cross_entropy(logits.float(), who)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.accuracy.add(logits.detach(), who)
        self.at += 1
        if self.at % 100 == 0:
            print(f"# step {self.at} loss {loss.item():.3f} accuracy {self.accuracy.value():.3f}", flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    run_loop(args, device, Tuner(args, device).step)


if __name__ == "__main__":
    main()
