"""Reading a radio's packet stream and watching the level of every channel."""

import argparse
import struct
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

PACKETS, CHANNELS, WARM = 3000, 16, 3
HEADER = struct.Struct("<HH")


class Radio:
    """Delivers one second of packets as a block of bytes, at times with half a packet at its end."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        parts = []
        for _ in range(PACKETS):
            samples = rng.normal(0, 1000, rng.integers(60, 140)).astype("<i2").tobytes()
            parts.append(HEADER.pack(rng.integers(CHANNELS), len(samples)) + samples)
        self.stream = b"".join(parts)
        self.cuts = rng.integers(1, 60, 64)
        self.held, self.turn = b"", 0

    def receive(self):
        cut = len(self.stream) - int(self.cuts[self.turn % len(self.cuts)])
        block, self.held = self.held + self.stream[:cut], self.stream[cut:]
        self.turn += 1
        return block


class Decoder:
    """Splits blocks into packets and keeps what is incomplete."""

    def __init__(self):
        self.pending = b""

    def packets(self, block):
        self.pending += block
        while len(self.pending) >= HEADER.size:
            channel, size = HEADER.unpack_from(self.pending)
            if len(self.pending) < HEADER.size + size:
                break
            payload = self.pending[HEADER.size : HEADER.size + size]
            self.pending = self.pending[HEADER.size + size :]
            yield channel, payload


class OffsetDecoder(Decoder):
    def packets(self, block):
        data, place = self.pending + block, 0
        while len(data) - place >= HEADER.size:
            channel, size = HEADER.unpack_from(data, place)
            if len(data) - place < HEADER.size + size:
                break
            place += HEADER.size + size
            yield channel, data[place - size : place]
        self.pending = data[place:]


class Levels:
    def __init__(self):
        self.energy, self.count = [0.0] * CHANNELS, [0] * CHANNELS

    def add(self, channel, payload):
        samples = np.frombuffer(payload, dtype="<i2").astype(np.float32)
        self.energy[channel] = 0.99 * self.energy[channel] + 0.01 * float(samples @ samples) / len(samples)
        self.count[channel] += 1

    def loudest(self):
        return max(range(CHANNELS), key=self.energy.__getitem__)


def main():
    radio, levels = Radio(0), Levels()
    decoder = (Decoder if args.variant == "slow" else OffsetDecoder)()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        for channel, payload in decoder.packets(radio.receive()):
            levels.add(channel, payload)
        if step % 25 == 0:
            print(f"second {step} packets {sum(levels.count)} loudest {levels.loudest()}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
