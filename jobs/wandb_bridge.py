#!/usr/bin/env python3
"""Passes the events of a run on to Weights & Biases (`pip install wandb`). In the spec:

    [[observer]]
    name = "exec"
    command = ["python3", "jobs/wandb_bridge.py"]

WANDB_PROJECT, WANDB_MODE and the other variables count as usual. A resumed run continues its run there.
"""
import json, os, pathlib, sys, uuid

import wandb


def numbers(values, prefix):
    """The numbers among `values`; JSON has no NaN, which is null there."""
    values = {name: float("nan") if value is None else value for name, value in values.items()}
    return {prefix + name: value for name, value in values.items() if isinstance(value, (int, float))}


for line in sys.stdin:
    event = json.loads(line)
    kind = event.pop("event")
    if kind == "start":
        kept = pathlib.Path(event["folder"], "metrics", "wandb.id")
        kept.parent.mkdir(exist_ok=True)
        if not kept.exists():
            kept.write_text(uuid.uuid4().hex[:8])
        project = os.environ.get("WANDB_PROJECT", "ddp-run")
        run = wandb.init(project=project, name=event["name"], id=kept.read_text(), resume="allow", config=event["spec"])
    elif kind == "step":
        run.log(numbers(event, "step/"), step=event["step"])
    elif kind == "epoch":
        run.log(numbers(event["train"], "train/") | numbers(event.get("val") or {}, "val/"), step=event["step"])
    elif kind == "end":
        run.finish(exit_code=0 if event["exit_code"] in (0, 75) else 1)
