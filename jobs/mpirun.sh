#!/usr/bin/env bash
# Usage: jobs/mpirun.sh [SPEC [FLAGS]]. NP ranks (default 2) under Open MPI's or MPICH's mpirun, on the hosts of HOSTFILE if that is
# set. `kill -USR1` of mpirun saves and stops: both pass it on to the ranks.
set -euo pipefail
hosts=(); [ -n "${HOSTFILE:-}" ] && hosts=(--hostfile "$HOSTFILE")
# A rank has threads: bound to one core, as Open MPI does with few ranks, they would share it.
exec "${MPIRUN:-mpirun}" -n "${NP:-2}" ${hosts[@]+"${hosts[@]}"} --bind-to none "${DDP_RUN:-ddp-run}" "${@:-configs/quickstart.toml}"
