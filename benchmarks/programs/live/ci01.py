"""Voice-command server: encode a batch of utterances, decode a short command for each."""
import argparse, json, statistics, time
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, HEADS, FRAMES, TOKENS, VOCAB = 384, 6, 320, 10, 4096


def split(x):
    b, t, d = x.shape
    return x.view(b, t, HEADS, d // HEADS).transpose(1, 2)


def merge(x):
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x, past=None, position=None):
        q, k, v = (split(t) for t in self.qkv(x).chunk(3, dim=-1))
        if past is not None:
            keys, values = past
            keys[:, :, position:position + 1] = k
            values[:, :, position:position + 1] = v
            k, v = keys[:, :, :position + 1], values[:, :, :position + 1]
        return self.out(merge(F.scaled_dot_product_attention(q, k, v)))


class AudioAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(DIM, DIM)
        self.kv = nn.Linear(DIM, 2 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def memory(self, audio):
        return tuple(split(t) for t in self.kv(audio).chunk(2, dim=-1))

    def forward(self, x, audio):
        k, v = audio if isinstance(audio, tuple) else self.memory(audio)
        return self.out(merge(F.scaled_dot_product_attention(split(self.q(x)), k, v)))


def mlp():
    return nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn, self.mlp = SelfAttention(), mlp()

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.n3 = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn, self.cross, self.mlp = SelfAttention(), AudioAttention(), mlp()

    def forward(self, x, audio, past, position):
        x = x + self.attn(self.n1(x), past, position)
        x = x + self.cross(self.n2(x), audio)
        return x + self.mlp(self.n3(x))


class Recogniser(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.front = nn.Conv1d(80, DIM, 3, stride=2, padding=1)
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(2))
        self.embed = nn.Embedding(VOCAB, DIM)
        self.decoder = nn.ModuleList(DecoderLayer() for _ in range(layers))
        self.norm = nn.LayerNorm(DIM)

    def encode(self, mel):
        x = F.gelu(self.front(mel)).transpose(1, 2)
        for layer in self.encoder:
            x = layer(x)
        return x

    def decode_one(self, tokens, audio, pasts, position):
        x = self.embed(tokens)
        for layer, memory, past in zip(self.decoder, audio, pasts):
            x = layer(x, memory, past, position)
        return self.norm(x[:, -1]) @ self.embed.weight.t()


class Server:
    def __init__(self, model, variant):
        self.model, self.variant = model.eval(), variant

    def caches(self, batch):
        shape = (batch, HEADS, TOKENS, DIM // HEADS)
        return [(torch.zeros(shape), torch.zeros(shape)) for _ in self.model.decoder]

    @torch.inference_mode()
    def transcribe(self, mel):
        audio = self.model.encode(mel)
        if self.variant == "fixed":
            memories = [layer.cross.memory(audio) for layer in self.model.decoder]
        else:
            memories = [audio] * len(self.model.decoder)
        pasts = self.caches(len(mel))
        tokens = torch.zeros(len(mel), 1, dtype=torch.long)
        said = []
        for position in range(TOKENS):
            logits = self.model.decode_one(tokens, memories, pasts, position)
            tokens = logits.argmax(-1, keepdim=True)
            said.append(tokens)
        return torch.cat(said, 1).tolist()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    torch.manual_seed(0)
    server = Server(Recogniser(), a.variant)
    requests = [torch.randn(4, 80, 2 * FRAMES) for _ in range(8)]
    times, words, start = [], 0, time.perf_counter()
    for step in range(a.steps):
        t = time.perf_counter()
        answer = server.transcribe(requests[step % len(requests)])
        words += sum(len(row) for row in answer)
        times.append((time.perf_counter() - t) * 1e3)
        if time.perf_counter() - start > a.max_seconds:
            break
    kept = times[3:] or times
    print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "words": words}))


if __name__ == "__main__":
    main()
