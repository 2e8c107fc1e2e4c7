"""Travel times from a depot to all crossings while traffic changes."""

import argparse
import heapq
import random
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

CROSSINGS, ROADS, BUSY, WARM = 2000, 7, 40, 3


class City:
    def __init__(self):
        self.dice = random.Random(9)
        self.roads = [{} for _ in range(CROSSINGS)]
        for place in range(CROSSINGS):
            for other in self.dice.sample(range(CROSSINGS), ROADS // 2):
                minutes = self.dice.uniform(1.0, 12.0)
                self.roads[place][other] = self.roads[other][place] = minutes
            following = (place + 1) % CROSSINGS
            self.roads[place][following] = self.roads[following][place] = 6.0

    def traffic(self):
        for _ in range(BUSY):
            place = self.dice.randrange(CROSSINGS)
            other = self.dice.choice(list(self.roads[place]))
            minutes = min(30.0, max(0.5, self.roads[place][other] * self.dice.uniform(0.7, 1.4)))
            self.roads[place][other] = self.roads[other][place] = minutes


class Planner:
    def __init__(self, city):
        self.city = city

    def reach(self, depot):
        final, open_places = {}, {depot: 0.0}
        while open_places:
            place = min(open_places, key=open_places.get)
            minutes = open_places.pop(place)
            final[place] = minutes
            for other, more in self.city.roads[place].items():
                if other not in final and minutes + more < open_places.get(other, 1e18):
                    open_places[other] = minutes + more
        return final


class QueuePlanner(Planner):
    def reach(self, depot):
        final, best, waiting = {}, {depot: 0.0}, [(0.0, depot)]
        while waiting:
            minutes, place = heapq.heappop(waiting)
            if place in final:
                continue
            final[place] = minutes
            for other, more in self.city.roads[place].items():
                if other not in final and minutes + more < best.get(other, 1e18):
                    best[other] = minutes + more
                    heapq.heappush(waiting, (minutes + more, other))
        return final


class Board:
    """Smoothed travel times shown to the drivers."""

    def __init__(self):
        self.minutes = np.zeros(CROSSINGS)

    def show(self, final):
        fresh = np.fromiter((final[place] for place in range(CROSSINGS)), float, CROSSINGS)
        self.minutes = 0.8 * self.minutes + 0.2 * fresh
        return np.percentile(self.minutes, [50, 90, 99])


def main():
    city, board = City(), Board()
    planner = (Planner if args.variant == "slow" else QueuePlanner)(city)
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        city.traffic()
        levels = board.show(planner.reach(city.dice.randrange(CROSSINGS)))
        if step % 20 == 0:
            print(f"round {step} levels {levels.round(2).tolist()}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
