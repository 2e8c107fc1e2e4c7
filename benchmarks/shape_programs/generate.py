"""`generate` of a language model: a processor of logits looks at every token of the past."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

SLOW = "__call__"

torch.set_num_threads(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=512, n_positions=256, n_embd=64, n_layer=2, n_head=2))


class NoRepeats(LogitsProcessor):
    """Lowers the logit of each token that was there."""

    def __call__(self, input_ids, scores):
        """Token by token."""
        for row, ids in zip(scores, input_ids, strict=True):
            for token in ids.tolist():
                row[token] = row[token] - 1.0
        return scores


prompt = torch.randint(0, 512, (2, 128))
for _ in range(int(sys.argv[1]) // 10):
    model.generate(
        prompt, max_new_tokens=64, do_sample=False, pad_token_id=0,
        logits_processor=LogitsProcessorList([NoRepeats()]),
    )  # fmt: skip
