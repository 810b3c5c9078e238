"""A TorchRL replay buffer on disk, saved without pickle, which persists across restarts.

python examples/with_torchrl.py              # a second
python examples/with_torchrl.py --folder run # run it twice: the second run has the old rows
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from tensordict import TensorDict
from torchrl.data import SamplerWithoutReplacement, TensorDictReplayBuffer

import tenfold
from tenfold.torchrl import RingStorage, load_buffer, save_buffer


def rollout(first: int, steps: int) -> TensorDict:
    """Returns a flat batch, such as ``data.reshape(-1)`` of the data of a TorchRL collector."""
    number = torch.arange(first, first + steps)
    observation = torch.sin(number[:, None] * torch.linspace(0.1, 1, 8))
    return TensorDict(
        {
            "observation": observation,
            "action": observation[:, :2],
            "next": {"reward": observation.sum(1, keepdim=True), "done": number % 50 == 49},
            "step": number,
        },
        batch_size=[steps],
    )


def run(folder: Path, steps: int) -> None:
    with RingStorage(folder / "buffer", 10_000) as storage:
        buffer = TensorDictReplayBuffer(
            storage=storage, sampler=SamplerWithoutReplacement(), batch_size=256
        )
        state = folder / "buffer_state"
        if state.exists():
            load_buffer(buffer, state)
        first = int(storage[:]["step"].max()) + 1 if len(buffer) else 0
        print(f"{len(buffer):,} transitions restored; the next one has number {first}")
        for step in range(first, first + steps, 1000):
            buffer.extend(rollout(step, 1000))
            sample = buffer.sample()
            assert torch.equal(sample["next", "reward"][:, 0], sample["observation"].sum(1))
        save_buffer(buffer, state)
    print(f"{len(storage):,} transitions; the newest one:", int(storage[:]["step"].max()))
    # The buffer is a data set. Other processes can read it, even while rows are written.
    print(tenfold.Dataset(folder / "buffer").schema)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the buffer is; default: temporary")
    parser.add_argument("--steps", type=int, default=15_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run(options.folder or Path(temporary), options.steps)


if __name__ == "__main__":
    main()
