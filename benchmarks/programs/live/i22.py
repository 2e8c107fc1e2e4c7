"""Self-play of five-in-a-row: tree search guided by a small policy/value network (CPU)."""

import argparse
import copy
import math
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

SIZE, VISITS, WIDEST = 9, 64, 10


class Position:
    def __init__(self):
        self.board = [[0] * SIZE for _ in range(SIZE)]
        self.crowd = [[0.0] * SIZE for _ in range(SIZE)]
        self.moves = []
        self.player = 1

    def play(self, move):
        row, col = divmod(move, SIZE)
        self.board[row][col] = self.player
        for near in self.crowd[max(0, row - 1) : row + 2]:
            near[col] += 0.25
        self.moves.append((move, self.player))
        self.player = -self.player

    def free(self):
        return [i for i in range(SIZE * SIZE) if not self.board[i // SIZE][i % SIZE]]

    def won(self):
        """Whether the last move completed a row of five."""
        if not self.moves:
            return False
        move, who = self.moves[-1]
        row, col = divmod(move, SIZE)
        for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
            run = 1
            for sign in (1, -1):
                r, c = row + sign * dr, col + sign * dc
                while 0 <= r < SIZE and 0 <= c < SIZE and self.board[r][c] == who:
                    run, r, c = run + 1, r + sign * dr, c + sign * dc
            if run >= 5:
                return True
        return False

    def after(self, move):
        other = copy.deepcopy(self)
        other.play(move)
        return other


class LightPosition(Position):
    def after(self, move):
        other = LightPosition.__new__(LightPosition)
        other.board = [row[:] for row in self.board]
        other.crowd = [row[:] for row in self.crowd]
        other.moves, other.player = self.moves[:], self.player
        other.play(move)
        return other


class Node:
    def __init__(self, prior):
        self.prior, self.count, self.total, self.children = prior, 0, 0.0, {}

    def best(self):
        scale = 1.5 * math.sqrt(self.count + 1)

        def score(entry):
            child = entry[1]
            mean = -child.total / child.count if child.count else 0.0
            return mean + scale * child.prior / (1 + child.count)

        return max(self.children.items(), key=score)


class Brain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * SIZE * SIZE, 128), nn.ReLU())
        self.policy, self.value = nn.Linear(128, SIZE * SIZE), nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return (8 * self.policy(h)).softmax(-1), torch.tanh(self.value(h))


def expand(node, position, brain):
    flat = [float(v * position.player) for row in position.board for v in row]
    flat += [v for row in position.crowd for v in row]
    policy, value = brain(torch.tensor(flat))
    policy = policy.tolist()
    likely = sorted(position.free(), key=policy.__getitem__, reverse=True)[:WIDEST]
    node.children = {move: Node(policy[move]) for move in likely}
    return value.item()


def search(position, brain):
    root = Node(1.0)
    expand(root, position, brain)
    for _ in range(VISITS):
        node, here, path = root, position, [root]
        while node.children:
            move, node = node.best()
            here = here.after(move)
            path.append(node)
        value = -1.0 if here.won() else expand(node, here, brain)
        for node in reversed(path):
            node.count += 1
            node.total += value
            value = -value
    return max(root.children, key=lambda m: root.children[m].count)


@torch.inference_mode()
def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    brain = Brain()
    make = Position if args.variant == "slow" else LightPosition
    position, games = make(), 0
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        position.play(search(position, brain))
        if position.won() or len(position.moves) > 40:
            games += 1
            position = make()
        if step % 10 == 0:
            print(f"move {step} games {games} plies {len(position.moves)}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={len(position.moves)}")


if __name__ == "__main__":
    main()
