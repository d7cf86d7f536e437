"""Each model and optimizer in each precision on each card: all kernels compile, and a second start
compiles none."""

import concurrent.futures, shutil, time
from . import specs
from .runner import first_error, last_error, output


def run_all(runner, names, precisions, cards, steps, jobs, minutes, report):
    """A row for each. Models share the kernel cache of their card and precision, as on a real
    machine, so these run one after the other."""
    ends = time.monotonic() + 60 * minutes
    paths = {name: specs.write(name, runner.scratch / "specs", steps) for name in names}

    def group(card, precision):
        cache = runner.folder(f"cache-{precision}-{card}")
        for name in names:
            if time.monotonic() > ends:
                report.add_cut(name, precision, str(card))
                continue
            first = runner.run(paths[name], card, precision, cache)
            second = runner.run(paths[name], card, precision, cache) if first.code == 0 else None
            report.add(row(name, precision, str(card), first, second))
        shutil.rmtree(cache)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [
                pool.submit(group, card, precision) for card in cards for precision in precisions
            ]
            for future in concurrent.futures.as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            runner.stop()
            raise


def row(model, precision, card, first, second):
    failures = first.failures()
    slowest = max(first.compilations, key=lambda c: c["seconds"], default=None)
    found = dict(
        model=model,
        precision=precision,
        card=card,
        exit_code=first.code,
        kernels=len(first.kernels()),
        failed=len(failures),
        loaded=first.loads,
        launches=first.launches,
        nvrtc_s=round(first.seconds(), 2),
        wall_s=round(first.wall, 2),
        slowest=slowest
        and dict(kernel=slowest["kernel"], source=slowest["source"], seconds=slowest["seconds"]),
        second=second
        and dict(
            exit_code=second.code,
            kernels=len(second.kernels()),
            loaded=second.loads,
            wall_s=round(second.wall, 2),
        ),
        failures=[
            dict(
                kernel=f["kernel"],
                source=f["source"],
                options=f["options"],
                result=f["result"],
                log=f.get("log", ""),
            )
            for f in failures
        ],
    )
    found["why"] = why(found, first, second)
    found["status"] = "FAIL" if found["why"] else "ok"
    if found["why"]:
        found["output"] = output(first.text if first.code or second is None else second.text)
    return found


def why(found, first, second):
    """What is wrong with a row, if anything."""
    reasons = []
    if found["failed"]:
        log = found["failures"][0]["log"]
        reasons.append(
            f"{found['failed']} of {found['kernels']} kernels do not compile: {first_error(log)}"
        )
    if first.code != 0:
        reasons.append(f"exit code {first.code}: {last_error(first.text)}")
    elif not first.compilations and not first.loads:
        reasons.append("no kernel was compiled or loaded: did the run use CUDA?")
    if second is not None:
        if second.code != 0:
            reasons.append(
                f"exit code {second.code} of the second start: {last_error(second.text)}"
            )
        elif second.compilations:
            reasons.append(f"the second start compiled {len(second.kernels())} kernels again")
        elif first.loads and not second.loads:
            reasons.append("the second start loaded no kernel")
    return "; ".join(reasons)
