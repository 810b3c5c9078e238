"""A Hugging Face Trainer that is killed during training, and resumes from a complete checkpoint.

python examples/with_transformers.py    # some seconds
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import transformers

from tenfold.transformers import AtomicCheckpointMixin


class Trainer(AtomicCheckpointMixin, transformers.Trainer):
    """Creates each checkpoint-<step> atomically. A training script needs no other change."""


def train(folder: Path) -> None:
    texts = [[(start + step * i) % 31 for i in range(16)] for start in range(31) for step in (1, 2)]
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "vocab_size": 32, "n_positions": 16}
    config = transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)
    trainer = Trainer(
        model=transformers.GPT2LMHeadModel(config),
        args=transformers.TrainingArguments(
            str(folder),
            num_train_epochs=3,
            per_device_train_batch_size=8,
            learning_rate=1e-2,
            save_steps=4,
            save_total_limit=2,
            logging_steps=8,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=[{"input_ids": text, "labels": text} for text in texts],
    )
    there = any(folder.glob("checkpoint-*"))
    result = trainer.train(resume_from_checkpoint=there)
    print(f"steps {result.global_step}, checkpoints", *sorted(p.name for p in folder.iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="train here, without the kill")
    options = parser.parse_args()
    if options.folder is not None:
        train(options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "run")
        child = subprocess.Popen([sys.executable, __file__, "--folder", str(folder)])
        while not list(folder.glob("checkpoint-*")) and child.poll() is None:
            pass
        child.kill()
        child.wait()
        print("killed; there are", *sorted(path.name for path in folder.glob("checkpoint-*")))
        train(folder)


if __name__ == "__main__":
    main()
