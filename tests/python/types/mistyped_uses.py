"""Five mistakes: a type checker reports exactly one error in each marked line, and no other."""

import torch

import tenfold
from tenfold import TensorClass, TensorDict


class Sample(TensorClass):
    image: torch.Tensor


def mistakes(td: TensorDict) -> None:
    td.reshap(2, 3)  # mistake
    print(td.unsqueeze(1).batch_sise)  # mistake
    td.select("a", inplce=True)  # mistake
    tenfold.stack([td, td], dim="rows")  # mistake
    Sample(torch.zeros(3), batch_sizes=[3])  # mistake
