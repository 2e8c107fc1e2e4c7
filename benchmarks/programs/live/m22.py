"""Turning rows of door-badge records into hourly counts per building."""

import argparse
import time
from datetime import datetime, timedelta

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

BUILDINGS, DAYS, ROWS, FILES, WARM = 24, 28, 5000, 12, 3
FIRST = datetime(2024, 3, 4)


class Archive:
    """Text files as the badge system writes them."""

    def __init__(self):
        self.dice = np.random.default_rng(6)
        self.files = [self.make() for _ in range(FILES)]

    def make(self):
        seconds = np.sort(self.dice.integers(0, DAYS * 86400, ROWS))
        building = self.dice.integers(0, BUILDINGS, ROWS)
        badge = self.dice.integers(10_000, 99_999, ROWS)
        return "\n".join(
            f"{(FIRST + timedelta(seconds=int(s))).strftime('%Y-%m-%d %H:%M:%S')},B{b:02d},{c}"
            for s, b, c in zip(seconds, building, badge)
        )


class Reader:
    def moment(self, text):
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")

    def rows(self, content):
        for line in content.split("\n"):
            stamp, building, badge = line.split(",")
            yield self.moment(stamp), int(building[1:]), int(badge)


class IsoReader(Reader):
    def moment(self, text):
        return datetime.fromisoformat(text)


class Occupancy:
    def __init__(self):
        self.counts = np.zeros((BUILDINGS, DAYS * 24))
        self.people = [set() for _ in range(BUILDINGS)]

    def add(self, rows):
        place, hour = [], []
        for moment, building, badge in rows:
            passed = moment - FIRST
            place.append(building)
            hour.append(passed.days * 24 + passed.seconds // 3600)
            self.people[building].add(badge)
        np.add.at(self.counts, (place, hour), 1)

    def profile(self):
        week = self.counts.reshape(BUILDINGS, DAYS // 7, 168).mean(1)
        weight = np.hanning(9)
        return np.array([np.convolve(row, weight / weight.sum(), mode="same") for row in week])

    def busiest(self):
        profile = self.profile()
        building, hour = np.unravel_index(profile.argmax(), profile.shape)
        return building, hour, profile[building, hour]


def main():
    archive, occupancy = Archive(), Occupancy()
    reader = (Reader if args.variant == "slow" else IsoReader)()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        occupancy.add(reader.rows(archive.files[step % FILES]))
        building, hour, level = occupancy.busiest()
        if step % 50 == 0:
            print(f"file {step} building {building} hour {hour} level {level:.1f}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
