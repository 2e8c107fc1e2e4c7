"""Route support tickets to teams with a small BERT and the HF Trainer."""

import random
import statistics
import tempfile
import time

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

torch.set_num_threads(1)

WORDS = [
    f"{a}{b}"
    for a in "login invoice printer refund order account update crash server mail".split()
    for b in ["", "s", "ing", "ed", "er", "able"]
]


def make_tickets(n, seed=0):
    rnd = random.Random(seed)
    texts, labels = [], []
    for _ in range(n):
        label = rnd.randrange(6)
        words = [
            rnd.choice(WORDS[label * 10 : label * 10 + 10] if rnd.random() < 0.3 else WORDS)
            for _ in range(rnd.randint(15, 70))
        ]
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def build_tokenizer(texts):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=2000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
        ),
    )
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=256,
    )


class TicketDataset(torch.utils.data.Dataset):
    def __init__(self, texts, labels, tokenizer):
        self.encodings = tokenizer(texts, truncation=True, padding="max_length", max_length=256)
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        item = {k: v[idx] for k, v in self.encodings.items()}
        item["labels"] = self.labels[idx]
        return item


class StepTimer(TrainerCallback):
    def __init__(self):
        self.times = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.start = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.times.append(time.perf_counter() - self.start)


def main():
    texts, labels = make_tickets(2000)
    tokenizer = build_tokenizer(texts)
    dataset = TicketDataset(texts, labels, tokenizer)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=192,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=768,
            max_position_embeddings=256,
            num_labels=6,
        )
    )
    timer = StepTimer()
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=8,
        max_steps=80,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        learning_rate=3e-4,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=dataset,
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[timer],
    )
    t0 = time.perf_counter()
    trainer.train()
    print(
        f"median step {statistics.median(timer.times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    main()
