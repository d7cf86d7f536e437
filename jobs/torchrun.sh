#!/usr/bin/env bash
# Usage: jobs/torchrun.sh [SPEC [FLAGS]]. NPROC ranks a node (default 2). Over several nodes set NNODES and RDZV=host:port and start it
# on each. ddp-run needs torchrun's variables only; no Python is involved in the training.
set -euo pipefail
ddp=$(command -v "${DDP_RUN:-ddp-run}")
if [ "${NNODES:-1}" -gt 1 ]; then
  rendezvous=(--nnodes "$NNODES" --rdzv-backend c10d --rdzv-endpoint "$RDZV")
else
  rendezvous=(--standalone)
fi
exec torchrun "${rendezvous[@]}" --nproc-per-node "${NPROC:-2}" --no-python "$ddp" "${@:-configs/quickstart.toml}"
