"""A training program under DDP, which test_resume_ranks.py kills or preempts, and restarts."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from resumed_training import main
from torch.nn.parallel import DistributedDataParallel


def mean_in_rank_order(group, bucket):
    """A DDP communication hook: the mean of the gradients, summed in the order of ranks.

    DDP changes its buckets after the first step of each run, including resumed runs. An all-reduce
    sums in an order that depends on the position in a bucket. The last bit of a mean would
    therefore differ between a resumed and an uninterrupted run.
    """
    mine = bucket.buffer()
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    total = parts[0]
    for part in parts[1:]:
        total += part
    done = torch.futures.Future()
    done.set_result(total.div_(len(parts)))
    return done


def wrap(model):
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.0005)
    ddp.register_comm_hook(None, mean_in_rank_order)
    return ddp


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{sys.argv[4]}",
        rank=int(sys.argv[5]),
        world_size=int(sys.argv[6]),
        timeout=timedelta(seconds=240),
    )
    try:
        main(
            sys.argv[1], sys.argv[2], int(sys.argv[3]), dist.get_rank(), dist.get_world_size(), wrap
        )
    except RuntimeError as error:
        print(error, file=sys.stderr)
        os._exit(3)  # the other rank has ended, so the process group cannot be destroyed
    dist.barrier()
    os._exit(0)
