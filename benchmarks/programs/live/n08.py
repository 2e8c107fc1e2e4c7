"""Card-fraud scoring: payments are joined with what is known of the card, then a net is trained."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=500)
args = parser.parse_args()

CARDS, PAYMENTS, BATCH, KNOWN = 400_000, 200_000, 512, 10
COLUMNS = [f"known_{at}" for at in range(KNOWN)]


class Bank:
    """Two tables: payments in time order and one row of facts for each card."""

    def __init__(self):
        pick = np.random.default_rng(6)
        number = 4_000_000_000 + pick.permutation(CARDS) * 7
        self.cards = pd.DataFrame(pick.standard_normal((CARDS, KNOWN)).astype(np.float32), columns=COLUMNS)
        self.cards.insert(0, "card", number)
        self.payments = pd.DataFrame(
            {
                "card": number[pick.integers(0, CARDS, PAYMENTS)],
                "amount": pick.lognormal(3, 1, PAYMENTS).astype(np.float32),
                "hour": pick.integers(0, 24, PAYMENTS),
                "fraud": (pick.random(PAYMENTS) < 0.05).astype(np.float32),
            }
        )


class Features:
    def __init__(self, bank):
        self.bank = bank
        self.by_card = bank.cards.set_index("card")
        self.by_card.index.get_indexer(self.by_card.index[:1])

    def join(self, rows):
        return rows.merge(self.bank.cards, on="card", how="left")

    def look_up(self, rows):
        at = self.by_card.index.get_indexer(rows["card"])
        known = self.by_card.iloc[at].set_axis(rows.index)
        return pd.concat([rows, known], axis=1)

    def batch(self, rows):
        joined = self.join(rows) if args.variant == "slow" else self.look_up(rows)
        joined["log_amount"] = np.log1p(joined["amount"])
        joined["night"] = joined["hour"].between(0, 5).astype(np.float32)
        x = joined[[*COLUMNS, "log_amount", "night"]].to_numpy(np.float32)
        return torch.from_numpy(x), torch.from_numpy(joined["fraud"].to_numpy(np.float32))


def main():
    torch.manual_seed(0)
    bank = Bank()
    features = Features(bank)
    model = nn.Sequential(
        nn.Linear(KNOWN + 2, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 1)
    ).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    weight, ends = torch.tensor(19.0), []
    for step in range(args.steps):
        start = step * BATCH % (PAYMENTS - BATCH)
        x, fraud = features.batch(bank.payments.iloc[start : start + BATCH])
        score = model(x.to(args.device)).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(score, fraud.to(args.device), pos_weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
