#!/usr/bin/env bash
# Usage: jobs/env.sh [SPEC [N] [FLAGS]]. Starts N ranks (default 2) of SPEC on this machine without any launcher.
set -euo pipefail
spec=${1:-configs/quickstart.toml}; [ $# -gt 0 ] && shift
n=2; [[ ${1:-} =~ ^[0-9]+$ ]] && { n=$1; shift; }
ddp=${DDP_RUN:-ddp-run}
export WORLD_SIZE=$n LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=${MASTER_PORT:-29500}
pids=()
for rank in $(seq 0 $((n - 1))); do
  RANK=$rank LOCAL_RANK=$rank "$ddp" "$spec" "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit "$status"
