"""Trains with Lightning; checkpoints are atomic, checksummed and written in the background.

python examples/with_lightning.py              # some seconds
python examples/with_lightning.py --folder run # kill it and start it again: it resumes
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import tenfold
from tenfold.lightning import CheckpointIO


class Regression(lightning.LightningModule):
    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.net(batch["x"]), batch["y"])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams["lr"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where checkpoints are; default: temporary")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        torch.manual_seed(0)  # a resumed training has the same rows
        x = torch.rand(2048, 2)
        rows = tenfold.ingest({"x": x, "y": x.sum(1, keepdim=True)}, folder / "rows")
        trainer = lightning.Trainer(
            plugins=[CheckpointIO(async_save=True)],
            callbacks=[ModelCheckpoint(folder / "steps", monitor="loss", save_last=True)],
            max_epochs=options.epochs,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
        )
        model = Regression()
        last = folder / "steps" / "last.ckpt"
        trainer.fit(
            model,
            tenfold.BatchLoader(rows, batch_size=64, shuffle=True, seed=0),
            ckpt_path=last if last.exists() else None,
        )
        best = trainer.checkpoint_callback.best_model_path
        score = trainer.checkpoint_callback.best_model_score
        assert tenfold.verify(best).ok
        print(f"loss {score:.4f} in {Path(best).name}")
        # The checkpoints are torch files, so Lightning also reads them without the plugin.
        again = Regression.load_from_checkpoint(best)
        print("learning rate of the checkpoint:", again.hparams["lr"])


if __name__ == "__main__":
    main()
