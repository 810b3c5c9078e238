"""A Trainer of a tiny model. The tests run the Trainer in the process of pytest and in children."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from tenfold.transformers import AtomicCheckpointMixin

ROWS = [
    {"input_ids": [i % 7, 1, 2, (i * 3) % 11], "labels": [1, 2, (i * 3) % 11, 0]} for i in range(24)
]


class Losses(transformers.TrainerCallback):
    def __init__(self) -> None:
        self.by_step: dict[int, float] = {}

    def on_log(self, args, state, control, logs=None, **rest):
        if logs and "loss" in logs:
            self.by_step[state.global_step] = logs["loss"]


class AtomicTrainer(AtomicCheckpointMixin, transformers.Trainer):
    pass


def make(folder: Path | str, kind: type = AtomicTrainer, seed: int = 3, **options):
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8, bos_token_id=1, eos_token_id=2
    )
    torch.manual_seed(5)
    model = transformers.GPT2LMHeadModel(config)  # with dropout
    given = {
        "max_steps": 12,
        "save_steps": 4,
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": seed,
        "dataloader_pin_memory": False,
        **options,
    }
    losses = Losses()
    arguments = transformers.TrainingArguments(output_dir=str(folder), **given)
    trainer = kind(
        model=model, args=arguments, train_dataset=ROWS, eval_dataset=ROWS[:4], callbacks=[losses]
    )
    return trainer, losses.by_step
