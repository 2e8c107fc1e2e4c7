"""Mini-batch k-means of image descriptors into a visual vocabulary (CPU)."""

import argparse
import copy
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

DIM, WORDS, BATCH = 1536, 4096, 2048


def descriptors(seed):
    """Batches read one image at a time; an image yields 256 descriptors."""
    gen = torch.Generator().manual_seed(seed)
    store = torch.randn(16, 256, DIM, generator=gen)
    while True:
        images = []
        while sum(len(i) for i in images) < BATCH:
            number = int(torch.randint(len(store), (1,), generator=gen))
            images.append(store[number])
        yield torch.cat(images)


class Vocabulary:
    def __init__(self, first):
        self.words = first[torch.randint(len(first), (WORDS,))] + 0.3 * torch.randn(WORDS, DIM)
        self.counts = torch.ones(WORDS)
        self.log = {"used": [], "inertia": []}

    def nearest(self, batch):
        half = self.words.square().sum(1) / 2
        score = torch.addmm(half, batch, self.words.T, beta=-1)
        return score.max(1)

    def update(self, batch):
        best, owner = self.nearest(batch)
        inertia = DIM - 2 * best.mean().item()
        for word in owner.unique().tolist()[:64]:
            self.counts[word] += 1
        hits = torch.bincount(owner, minlength=WORDS).float()
        self.counts += hits
        pull = (batch - self.words[owner]) / self.counts[owner][:, None]
        self.words.index_add_(0, owner, pull)
        self.log["used"].append(int((hits > 0).sum()))
        self.log["inertia"].append(inertia)
        return inertia


def main():
    torch.manual_seed(1)
    torch.set_num_threads(2)
    stream = descriptors(6)
    vocabulary = Vocabulary(next(stream))
    history = None
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        inertia = vocabulary.update(next(stream))
        history = copy.deepcopy(vocabulary.log)
        print(f"step {step} inertia {inertia:.3f} used {history['used'][-1]}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={inertia:.5f}")


if __name__ == "__main__":
    main()
