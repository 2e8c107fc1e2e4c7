"""Hugging Face Trainer: the collator spells every token in Python."""

import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

SLOW = "collate"

torch.set_num_threads(1)


class Texts(torch.utils.data.Dataset):
    """Lines of numbers."""

    def __len__(self):
        return 8 * int(sys.argv[1])

    def __getitem__(self, position):
        return " ".join(str((position * i) % 97) for i in range(64))


def collate(texts):
    """Token by token, as a tokenizer that is not batched."""
    rows = []
    for text in texts:
        row = []
        for word in text.split():
            for _ in range(40):
                number = sum(ord(letter) for letter in word) % 97
            row.append(number)
        rows.append(row)
    ids = torch.tensor(rows)
    return {"input_ids": ids, "labels": ids}


model = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=2, n_head=2))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=8,
        num_train_epochs=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=Texts(), data_collator=collate).train()
