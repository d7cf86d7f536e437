"""The toy of PyTorch's DDP tutorial, as torchrun starts it: `env://`, and a snapshot of each epoch from which it resumes.

    ddp_toy.py SNAPSHOT [EPOCH]: rank 1 of the first attempt is killed at the beginning of EPOCH.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 4


@record
def main():
    snapshot = sys.argv[1]
    die_at = int(sys.argv[2]) if len(sys.argv) > 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else None
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(512, 20), torch.rand(512, 1))
    model = DDP(torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(data)
    first = 0
    if os.path.exists(snapshot):
        saved = torch.load(snapshot)
        model.module.load_state_dict(saved["model"])
        first = saved["epochs"]
    for epoch in range(first, EPOCHS):
        if rank == 1 and epoch == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=32, sampler=sampler):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "epochs": epoch + 1}, snapshot + ".tmp")
            os.replace(snapshot + ".tmp", snapshot)
    if rank == 0:
        weights = torch.cat([p.flatten() for p in model.parameters()]).tolist()
        print("resumed at", first, "weights", [w.hex() for w in weights])
    dist.destroy_process_group()


main()
