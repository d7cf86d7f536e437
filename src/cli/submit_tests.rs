use super::*;
use crate::error::ExitCode;
use clap::Parser;

const SPEC: &str = "name = \"job\"\nbatch_size = 4\n[model]\nname = \"linear\"\n[dataset]\nname = \"random\"\n\
                    [optimizer]\nname = \"sgd\"\nlr = 0.1\n";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SlurmArgs,
}

/// The script for a spec and a command line.
fn script(spec: &str, line: &str) -> Result<String> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("a job.toml");
    std::fs::write(&path, spec).expect("write");
    let words = ["slurm", path.to_str().expect("UTF-8")];
    let line = Line::try_parse_from(words.into_iter().chain(line.split_whitespace()));
    let (sbatch, _) = line.map_err(|e| Error::usage(e.to_string()))?.args.script(&Registry::standard())?;
    Ok(sbatch.to_string().replace(folder.path().to_str().expect("UTF-8"), "FOLDER"))
}

fn refused(spec: &str, line: &str) -> String {
    let error = script(spec, line).expect_err(line);
    assert_eq!(error.code, ExitCode::Usage, "{line}");
    format!("{} {}", error.message, error.hint.unwrap_or_default())
}

#[test]
fn ranks_are_tasks_of_srun() {
    let spec = SPEC.to_owned() + "[launch]\nnproc_per_node = 4\nnnodes = 2\nthreads = 8\nrequeue = true\n";
    let line = "--time 2:00:00 --partition gpu --account lab-1 --option=--qos=low --set seed=3";
    insta::assert_snapshot!(script(&spec, line).expect("good"), @r##"
    #!/bin/bash
    # Written by `ddp-run submit slurm`. `sbatch FILE` submits it, from the folder that the spec's paths start from; the
    # folder of --output has to be there.
    #SBATCH --job-name=job
    #SBATCH --nodes=2
    #SBATCH --ntasks-per-node=4
    #SBATCH --cpus-per-task=8
    #SBATCH --time=2:00:00
    #SBATCH --partition=gpu
    #SBATCH --account=lab-1
    #SBATCH --output=runs/job/slurm-%j.out
    #SBATCH --signal=USR1@120
    #SBATCH --requeue
    #SBATCH --open-mode=append
    #SBATCH --qos=low
    set -euo pipefail
    # Since Slurm 22.05 srun does not take over --cpus-per-task from sbatch.
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
    # exec: a waiting shell would die of the signals that end a job, and with it the job, before the ranks have saved.
    exec srun "${DDP_RUN:-ddp-run}" 'FOLDER/a job.toml' --set seed=3 --set checkpoint.grace=110
    "##);
}

#[test]
fn a_supervisor_is_the_batch_scripts_own_process() {
    let spec = SPEC.to_owned() + "[launch]\nmax_restarts = 3\nthreads = 2\n[checkpoint]\ngrace = 30\n";
    let line = "--nproc-per-node 4 --out /scratch/run --unset launch.nnodes";
    assert!(script(&spec, line).is_err(), "unset of what is not set");
    let line = "--nproc-per-node 4 --out /scratch/run";
    insta::assert_snapshot!(script(&spec, line).expect("good"), @r##"
    #!/bin/bash
    # Written by `ddp-run submit slurm`. `sbatch FILE` submits it, from the folder that the spec's paths start from; the
    # folder of --output has to be there.
    #SBATCH --job-name=job
    #SBATCH --nodes=1
    #SBATCH --ntasks-per-node=1
    #SBATCH --cpus-per-task=8
    #SBATCH --output=/scratch/run/slurm-%j.out
    #SBATCH --signal=B:USR1@120
    #SBATCH --no-requeue
    set -euo pipefail
    # exec: a waiting shell would die of the signals that end a job, and with it the job, before the ranks have saved.
    exec "${DDP_RUN:-ddp-run}" 'FOLDER/a job.toml' --nproc-per-node 4 --out /scratch/run
    "##);
}

#[test]
fn supervisors_of_several_nodes_meet_on_the_first() {
    let line = "--launcher supervisor --nodes 3 --nproc-per-node 2 --gpus-per-node 2";
    insta::assert_snapshot!(script(SPEC, line).expect("good"), @r##"
    #!/bin/bash
    # Written by `ddp-run submit slurm`. `sbatch FILE` submits it, from the folder that the spec's paths start from; the
    # folder of --output has to be there.
    #SBATCH --job-name=job
    #SBATCH --nodes=3
    #SBATCH --ntasks-per-node=1
    #SBATCH --cpus-per-task=2
    #SBATCH --gpus-per-node=2
    #SBATCH --output=runs/job/slurm-%j.out
    #SBATCH --signal=USR1@120
    #SBATCH --no-requeue
    set -euo pipefail
    # Since Slurm 22.05 srun does not take over --cpus-per-task from sbatch.
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
    # The supervisors meet on the first node, at a port that follows from the job's number.
    first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
    port=$((15000 + SLURM_JOB_ID % 16000))
    # exec: a waiting shell would die of the signals that end a job, and with it the job, before the ranks have saved.
    exec srun "${DDP_RUN:-ddp-run}" 'FOLDER/a job.toml' --set checkpoint.grace=110 --nproc-per-node 2 --nnodes 3 --rdzv-endpoint "$first:$port"
    "##);
}

#[test]
fn what_slurm_could_not_run_is_refused() {
    assert!(refused(SPEC, "--nproc-per-node auto").contains("--nproc-per-node N"));
    let elastic = SPEC.to_owned() + "[launch]\nnnodes = \"2:4\"\n";
    assert!(refused(&elastic, "").contains("--nodes N"));
    assert!(script(&elastic, "--nodes 3").is_ok());
    assert!(refused(SPEC, "--time 1 --signal-before 90s").contains("--time 60 s"));
    for line in [
        "--time soon",
        "--partition a#b",
        "--partition=--x",
        "--option qos=low",
        "--option=--comment=#x",
        "--signal-before 5s",
        "--signal-before 1000000",
        "--nodes 0",
        "--launcher mpirun",
    ] {
        assert!(refused(SPEC, line).contains("expected") || line.contains("nodes"), "{line}");
    }
}

#[test]
fn a_spec_that_is_wrong_is_not_submitted() {
    assert_eq!(script(&SPEC.replace("sgd", "sgdd"), "").expect_err("wrong").code, ExitCode::Spec);
}
