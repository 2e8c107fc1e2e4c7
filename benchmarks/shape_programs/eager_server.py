"""Requests come with pauses between them, as to a server: each is tokenized letter by letter."""

import sys
import threading
import time
from queue import Queue

import torch

SLOW = "tokenize"

torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Embedding(256, 64), torch.nn.Flatten(), torch.nn.Linear(4096, 64)
)
requests: Queue = Queue()


def tokenize(text):
    """Letter by letter, more than once."""
    ids = []
    for letter in text:
        for code in range(256):
            if chr(code) == letter:
                ids.append(code)
    return torch.tensor([ids[:64]])


def worker():
    """Answer until told to end."""
    with torch.inference_mode():
        while (text := requests.get()) is not None:
            model(tokenize(text))


thread = threading.Thread(target=worker)
thread.start()
for number in range(5 * int(sys.argv[1])):
    requests.put(chr(65 + number % 26) * 640)
    time.sleep(0.002)
requests.put(None)
thread.join()
