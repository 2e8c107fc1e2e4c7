"""Continues long prompts with a Hugging Face causal model (random weights)."""
import logging
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList
from transformers.utils import logging as hf_logging

from blocks_f import Meter, parse, torch_sync

hf_logging.set_verbosity_error()
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
NGRAM = 3


class Novel(LogitsProcessor):
    """Tokens that would finish an n-gram seen before in the row are ruled out."""

    def __init__(self, n):
        self.n = n

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] < self.n:
            return scores
        grams = input_ids.unfold(1, self.n, 1)
        tail = input_ids[:, None, input_ids.shape[1] - self.n + 1:]
        same = (grams[..., :-1] == tail).all(-1)
        vocab = scores.shape[1]
        last = torch.where(same, grams[..., -1], vocab)
        hit = torch.zeros(scores.shape[0], vocab + 1, dtype=torch.bool, device=scores.device)
        hit.scatter_(1, last, True)
        return scores.masked_fill(hit[:, :vocab], float("-inf"))


def build(tiny, device):
    if tiny:
        cfg = LlamaConfig(vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                          num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256)
    else:
        cfg = LlamaConfig(vocab_size=16000, hidden_size=768, intermediate_size=2048, num_hidden_layers=4,
                          num_attention_heads=12, num_key_value_heads=12, max_position_embeddings=2048)
    cfg.bos_token_id = cfg.eos_token_id = cfg.pad_token_id = None
    torch.manual_seed(9)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    return LlamaForCausalLM(cfg).to(device=device, dtype=dtype).eval(), cfg


def options(variant):
    common = dict(do_sample=False, use_cache=True)
    if variant == "slow":
        return dict(common, no_repeat_ngram_size=NGRAM)
    return dict(common, logits_processor=LogitsProcessorList([Novel(NGRAM)]))


class Writer:
    def __init__(self, model, new_tokens, variant):
        self.model = model
        self.kwargs = dict(options(variant), max_new_tokens=new_tokens)

    @torch.inference_mode()
    def __call__(self, prompts):
        mask = torch.ones_like(prompts)
        out = self.model.generate(prompts, attention_mask=mask, **self.kwargs)
        return out[:, prompts.shape[1]:]


def main():
    args = parse(["slow", "fixed"])
    device = torch.device(args.device)
    model, cfg = build(args.tiny, device)
    batch, length, new = (2, 12, 3) if args.tiny else (64, 512, 5)
    pool = torch.randint(0, cfg.vocab_size, (8, batch, length), device=device)
    writer = Writer(model, new, args.variant)
    for i in range(2):
        writer(pool[i])
    meter = Meter(torch_sync(device))
    for i in meter.loop(args.steps):
        text = writer(pool[i % 8])
        if (i + 1) % 60 == 0:
            logging.info("round %d first continuation %s", i + 1, text[0].tolist())
    meter.report()


if __name__ == "__main__":
    main()
