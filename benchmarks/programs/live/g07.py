"""Small GPT on characters of chess games (PGN-like), written the way a first script is."""
import argparse
import random
import statistics
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

FILES, PIECES = "abcdefgh", ["", "N", "B", "R", "Q", "K"]


def game(rng, moves=90):
    text = []
    for number in range(1, moves):
        pair = " ".join(rng.choice(PIECES) + rng.choice(FILES) + str(rng.randint(1, 8)) for _ in range(2))
        text.append(f"{number}. {pair}")
    return " ".join(text)


class Games(Dataset):
    def __init__(self, count=240, block=192):
        rng = random.Random(11)
        self.games = [game(rng) for _ in range(count)]
        letters = sorted(set("".join(self.games)))
        self.code = {letter: i for i, letter in enumerate(letters)}
        self.block = block

    def __len__(self):
        return len(self.games)

    def __getitem__(self, index):
        text = self.games[index]
        start = random.randint(0, len(text) - self.block)
        return torch.tensor([self.code[letter] for letter in text[start:start + self.block]])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="healthy", choices=["healthy"])
    parser.add_argument("--steps", type=int, default=110)
    args = parser.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    games = Games()
    loader = DataLoader(games, batch_size=8, shuffle=True, num_workers=0, drop_last=True)
    config = GPT2Config(vocab_size=len(games.code), n_positions=192, n_embd=256, n_layer=3, n_head=4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    history, norms, times, step = [], {}, [], 0
    while step < args.steps:
        for tokens in loader:
            begin = time.perf_counter()
            loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
            for name, parameter in model.named_parameters():
                if name.endswith("ln_1.weight"):
                    norms[name] = float(parameter.grad.norm())
            smoothed = sum(history[-50:]) / len(history[-50:])
            times.append((time.perf_counter() - begin) * 1e3)
            print(f"\rstep {step} loss {history[-1]:.3f} smoothed {smoothed:.3f}", end="", flush=True)
            step += 1
            if step >= args.steps:
                break
    print()
    times = times[5:]
    print(f"median_step_ms={statistics.median(times):.2f} mean_step_ms={statistics.fmean(times):.2f}")


if __name__ == "__main__":
    main()
