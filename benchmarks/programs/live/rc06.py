"""Sentence tagger trained with local steps and averaged weights."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

VOCAB, TAGS, DIM, BATCH, LOCAL_STEPS = 4000, 12, 256, 16, 4


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=0)
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, TAGS)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens), src_key_padding_mask=tokens == 0))


def corpus(count=6000):
    rng = random.Random(5)
    lengths = [max(6, min(160, int(rng.lognormvariate(3.6, 0.7)))) for _ in range(count)]
    return [[rng.randrange(1, VOCAB) for _ in range(n)] for n in lengths]


def batches(sentences, rank, world, variant):
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    if variant == "slow":
        share = len(order) // world
        mine = order[rank * share:(rank + 1) * share]
    else:
        mine = order[rank::world]
    groups = [mine[i:i + BATCH] for i in range(0, len(mine) - BATCH + 1, BATCH)]
    rng = random.Random(9)
    while True:
        rng.shuffle(groups)
        for group in groups:
            rows = [sentences[i] for i in group]
            tokens = torch.zeros(BATCH, max(map(len, rows)), dtype=torch.long)
            for row, sentence in enumerate(rows):
                tokens[row, :len(sentence)] = torch.tensor(sentence)
            yield tokens, torch.where(tokens > 0, tokens % TAGS, -100)


@torch.no_grad()
def average_weights(model, world):
    params = list(model.parameters())
    flat = torch.cat([p.view(-1) for p in params])
    dist.all_reduce(flat)
    flat.div_(world)
    for p, part in zip(params, flat.split([p.numel() for p in params])):
        p.copy_(part.view_as(p))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    source = batches(corpus(), rank, world, args.variant)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    times, total, step = [], args.steps, 0
    while step < total:
        begin = time.perf_counter()
        tokens, tags = next(source)
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (step + 1) % LOCAL_STEPS == 0:
            average_weights(model, world)
        step += 1
        times.append(time.perf_counter() - begin)
        if step == 24:
            plan = torch.tensor([args.max_seconds / statistics.mean(times[8:])])
            dist.broadcast(plan, 0)
            total = min(total, max(32, int(plan.item()) // LOCAL_STEPS * LOCAL_STEPS))
    if rank == 0:
        used = times[24:] or times
        print(json.dumps({"mean_ms": 1e3 * statistics.mean(used), "median_ms": 1e3 * statistics.median(used),
                          "steps": len(times), "loss": loss.item()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
