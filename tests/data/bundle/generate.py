"""Writes folders like those beside this file to FOLDER.

Usage: python tests/data/bundle/generate.py FOLDER

Those beside this file were written by transformers 5.24 (Trainer), accelerate 1.15 (save_state) and
torch_checkpointing 0.1.1, with torch 2.13 on one CPU. They are never changed: newer versions get
separate folders.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import torch


class Pairs(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.arange(4) + index % 4, "labels": torch.tensor(index % 2)}


class Custom:
    def state_dict(self) -> dict[str, Any]:
        return {"n": 3, "t": torch.ones(2)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def write_trainer(folder: Path) -> None:
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        Trainer,
        TrainingArguments,
    )

    config = BertConfig(
        vocab_size=16,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=4,
        max_position_embeddings=8,
    )
    arguments = TrainingArguments(
        output_dir="trainer",  # the string in training_args.bin
        max_steps=2,
        save_steps=2,
        per_device_train_batch_size=2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
    )
    Trainer(BertForSequenceClassification(config), arguments, train_dataset=Pairs()).train()
    shutil.move("trainer/checkpoint-2", folder)
    shutil.rmtree("trainer")


def write_accelerate(folder: Path) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    rows = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(8, 3)), batch_size=2
    )
    model, optimizer, scheduler, rows = accelerator.prepare(model, optimizer, scheduler, rows)
    accelerator.register_for_checkpointing(Custom())
    for (batch,) in rows:
        model(batch).sum().backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    accelerator.save_state(str(folder))


def write_torch_checkpointing(folder: Path) -> None:
    from torch_checkpointing import CheckpointManager, ItemSpec, SyncCheckpointSaverConfig
    from torch_checkpointing.default_resharder import DefaultResharder
    from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    manager = CheckpointManager(
        CheckpointManager.Config(
            save=SyncCheckpointSaverConfig(),
            storage_config=LocalFileSystemStorageConfig(use_direct_io=False),
            default=ItemSpec(resharder=DefaultResharder()),
        )
    )
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 5}
    manager.save(str(folder), state)
    manager.close()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    torch.manual_seed(0)
    write_trainer(target / "trainer")
    write_accelerate(target / "accelerate")
    write_torch_checkpointing(target / "torch_checkpointing")
