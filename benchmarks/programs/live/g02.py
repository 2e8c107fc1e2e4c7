"""Scores logged robot trajectories with a critic; an operator can change the threshold meanwhile."""
import argparse
import queue
import statistics
import threading
import time

import torch
from torch import nn


class Console:
    """Receives commands from the operator, such as ("threshold", 0.1), and applies them."""

    def __init__(self, patient):
        self.inbox = queue.Queue()
        self.settings = {"threshold": 0.0}
        self.closed = False
        self.receive = self._receive_patient if patient else self._receive
        self.thread = threading.Thread(target=self._serve, name="console", daemon=True)
        self.thread.start()

    def _receive(self):
        try:
            return self.inbox.get_nowait()
        except queue.Empty:
            return None

    def _receive_patient(self):
        try:
            return self.inbox.get(timeout=0.25)
        except queue.Empty:
            return None

    def _serve(self):
        while not self.closed:
            message = self.receive()
            if message is not None:
                name, value = message
                self.settings[name] = value

    def close(self):
        self.closed = True
        self.thread.join()


class Critic(nn.Module):
    def __init__(self, observation=96, hidden=1024):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observation, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)

    def forward(self, observation):
        return self.value(self.trunk(observation))


class Trajectories:
    def __init__(self, episodes=200, length=150):
        generator = torch.Generator().manual_seed(5)
        self.observations = torch.randn(episodes * length, 96, generator=generator)

    def chunk(self, number, size):
        start = number * size % (len(self.observations) - size)
        return self.observations[start:start + size]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    parser.add_argument("--steps", type=int, default=220)
    args = parser.parse_args()
    torch.manual_seed(0)
    console = Console(patient=args.variant == "fixed")
    trajectories, critic = Trajectories(), Critic().eval()
    times, kept, scored = [], 0, 0
    with torch.inference_mode():
        for step in range(args.steps):
            begin = time.perf_counter()
            if step == args.steps // 2:
                console.inbox.put(("threshold", 0.02))
            values = critic(trajectories.chunk(step, 1024))
            kept += int((values > console.settings["threshold"]).sum())
            scored += len(values)
            times.append((time.perf_counter() - begin) * 1e3)
            if step % 40 == 0:
                print(f"{step:4d} kept {kept} of {scored} at {console.settings['threshold']}")
    console.close()
    times = times[5:]
    print(f"median_step_ms={statistics.median(times):.2f} mean_step_ms={statistics.fmean(times):.2f}")


if __name__ == "__main__":
    main()
