"""Sampled-neighbourhood training of a two-layer graph network on a citation graph."""

import argparse
import random
import time

import networkx as nx
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()

PAPERS, LINKS, FACTS, WIDTH, TOPICS, SEEDS, FAN = 15_000, 12, 64, 128, 20, 256, 8


class WalkSampler:
    """Picks neighbours of each paper from the graph object."""

    def __init__(self, graph):
        self.graph = graph

    def around(self, papers):
        picked = []
        for paper in papers.tolist():
            near = list(self.graph.neighbors(paper)) or [paper]
            picked.append(random.choices(near, k=FAN))
        return torch.tensor(picked)


class RowSampler:
    """Picks neighbours of all papers at once from the rows of the adjacency."""

    def __init__(self, graph):
        rows = nx.to_scipy_sparse_array(graph, nodelist=range(PAPERS), format="csr")
        self.start, self.near = torch.from_numpy(rows.indptr).long(), torch.from_numpy(rows.indices).long()

    def around(self, papers):
        count = self.start[papers + 1] - self.start[papers]
        offset = (torch.rand(len(papers), FAN) * count[:, None]).long()
        return self.near[self.start[papers][:, None] + offset]


class SageLayer(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.own, self.near = nn.Linear(width_in, width_out), nn.Linear(width_in, width_out)

    def forward(self, own, near):
        return F.relu(self.own(own) + self.near(near.mean(-2)))


class Topics(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SageLayer(FACTS, WIDTH), SageLayer(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, TOPICS)

    def forward(self, facts, seeds, one, two):
        inner = self.first(facts[seeds], facts[one])
        outer = self.first(facts[one], facts[two])
        return self.head(self.second(inner, outer))


def main():
    random.seed(0), torch.manual_seed(0)
    graph = nx.barabasi_albert_graph(PAPERS, LINKS, seed=2)
    facts = torch.from_numpy(np.random.default_rng(4).standard_normal((PAPERS, FACTS)).astype(np.float32))
    topic = torch.randint(0, TOPICS, (PAPERS,))
    sampler = (WalkSampler if args.variant == "slow" else RowSampler)(graph)
    model = Topics().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    ends = []
    for step in range(args.steps):
        seeds = torch.randint(0, PAPERS, (SEEDS,))
        one = sampler.around(seeds)
        two = sampler.around(one.flatten()).view(SEEDS, FAN, FAN)
        loss = F.cross_entropy(model(facts, seeds, one, two), topic[seeds])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
