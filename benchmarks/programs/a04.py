"""Streams audio frames through a recurrent acoustic model, one frame of all callers at a time.

TRUTH: the LSTM's weights no longer lie in one block: `adopt` replaces p.data of each parameter with its own tensor after the
module was moved to the device, so every call of nn.LSTM (aten::_cudnn_rnn, "RNN module weights are not part of single contiguous
chunk of memory") copies all weights (370 MB) into a fresh flat buffer before it computes one frame. Fix: call
lstm.flatten_parameters() once after the weights are set.
"""
import torch
import torch.nn as nn

from common import Work, main


class Acoustic(nn.Module):
    def __init__(self, feats, hidden, layers, symbols):
        super().__init__()
        self.lstm = nn.LSTM(feats, hidden, layers)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, frame, state):
        y, state = self.lstm(frame, state)
        return self.head(y[0]), state


def adopt(module, weights):
    for name, p in module.named_parameters():
        p.data = weights[name].to(p.device).clone()


def build(ctx):
    feats, hidden, layers = ctx.pick(1024, 16), ctx.pick(2048, 32), ctx.pick(3, 2)
    calls, frames = 8, ctx.pick(30, 4)
    net = Acoustic(feats, hidden, layers, ctx.pick(512, 10)).to(ctx.device).eval()
    adopt(net.lstm, {k: v.clone() for k, v in net.lstm.state_dict().items()})
    if not ctx.slow:
        net.lstm.flatten_parameters()
    sound = torch.randn(frames, 1, calls, feats, device=ctx.device)

    @torch.inference_mode()
    def chunk(i):
        state = (torch.zeros(layers, calls, hidden, device=ctx.device), torch.zeros(layers, calls, hidden, device=ctx.device))
        best = []
        for t in range(frames):
            logits, state = net(sound[t], state)
            best.append(logits.argmax(-1))
        return torch.stack(best)

    return Work(chunk, items=calls * frames)


if __name__ == "__main__":
    main(build, steps=(80, 6), warmup=5)
