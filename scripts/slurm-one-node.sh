#!/usr/bin/env bash
# A real Slurm on this one machine, for the tests: munge, slurmctld and slurmd of Debian's packages, as root. Does nothing where one
# answers already. SLURM_CONF names its configuration (default /etc/slurm/slurm.conf), which is written if it is not there.
set -euo pipefail
export SLURM_CONF=${SLURM_CONF:-/etc/slurm/slurm.conf} DEBIAN_FRONTEND=noninteractive
if ! { command -v slurmctld && command -v slurmd && command -v munged; } >/dev/null; then
    apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge
fi
[ -s "$SLURM_CONF" ] && timeout 10 sinfo --noheader >/dev/null 2>&1 && exit 0

host=$(hostname -s)
port=${SLURM_PORT:-6817}
state=${SLURM_STATE:-/var/spool/slurm-one-node}
mkdir -p "$(dirname "$SLURM_CONF")" "$state/ctld" "$state/d" /run/munge
chown munge /run/munge
if [ ! -s /etc/munge/munge.key ]; then
    dd if=/dev/urandom of=/etc/munge/munge.key bs=1k count=1 status=none
    chown munge:munge /etc/munge/munge.key
    chmod 400 /etc/munge/munge.key
fi
# cred_expire: a requeued job starts again that much later (and a second), 120 s by default.
# CPUs and OverSubscribe: the tests start small jobs beside each other, on any number of cores.
[ -s "$SLURM_CONF" ] || cat > "$SLURM_CONF" <<CONF
ClusterName=one-node
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=cred_expire=5
SlurmUser=root
SlurmdUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=0,sched_interval=5
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=$state/ctld
SlurmdSpoolDir=$state/d
SlurmctldPidFile=$state/slurmctld.pid
SlurmdPidFile=$state/slurmd.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdLogFile=$state/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
munge --no-input >/dev/null 2>&1 || runuser -u munge -- munged --force
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF"
for _ in $(seq 100); do
    sinfo --noheader --format %t 2>/dev/null | grep -q idle && exit 0
    sleep 0.2
done
echo "slurmctld and slurmd were started, but no node is idle:" >&2
sinfo >&2
exit 1
