"""What a run does where something is missing, old, full or broken. Each case is a function that
returns what is wrong, if anything, or raises `Unavailable` if it can't be tried here."""

import contextlib, functools, os, sqlite3, subprocess, time
from . import specs
from .runner import card_of, last_error
from .toolkit import Unavailable, build_driver, build_log

# The exit code of a device that can't be used.
NO_DEVICE = 69


class Faults:
    def __init__(self, runner, card, old, other_binary, report):
        """`old`: earlier toolkits, by version."""
        self.runner, self.card, self.old, self.other_binary, self.report = (
            runner,
            card,
            old,
            other_binary,
            report,
        )
        # Few and small kernels: NVRTC takes a minute for one of a bf16 `mlp`.
        self.spec = specs.write("linear", runner.scratch / "fault-specs", 2)

    def run_all(self):
        cases = [
            ("no headers", "exit code 69, names the headers", self.no_headers),
            (
                "headers without crt",
                "exit code 69, names crt",
                functools.partial(self.without, "crt", "crt"),
            ),
            (
                "headers without CCCL",
                "exit code 69, names nv/target",
                functools.partial(self.without, "nv", "nv/target"),
            ),
            ("no NVRTC", "exit code 69, names NVRTC", self.no_nvrtc),
            ("headers of another minor version", "exit code 0", self.other_headers),
            ("driver of CUDA 12.4", "exit code 69, names the driver's age", self.old_driver),
            (
                "driver older than NVRTC",
                "exit code 69, names both; a newer driver then starts",
                self.refused_ptx,
            ),
            ("sm_70 under NVRTC 13", "exit code 69, names the capability", self.old_card),
            ("cache on a disk that is full", "exit code 0 without a cache", self.full_disk),
            ("disk fills during the run", "exit code 0, and again with space", self.filling_disk),
            ("cache that is garbage", "exit code 0", self.garbage),
            ("cache of another schema", "exit code 0, compiles again", self.other_schema),
            ("cache of another build", "exit code 0, compiles nothing", self.other_build),
        ]
        for version in self.old:
            cases.append(
                (
                    f"NVRTC {version}",
                    "exit code 0, no kernel fails",
                    functools.partial(self.old_nvrtc, version),
                )
            )
            cases.append(
                (
                    f"cache of NVRTC {version}",
                    "exit code 0, compiles again",
                    functools.partial(self.cache_of, version),
                )
            )
        for case, expected, attempt in cases:
            self.ended = []
            try:
                problem = attempt()
                found = problem or f"as expected ({', then '.join(self.ended)})"
                self.report.add_fault(case, expected, found, "FAIL" if problem else "ok")
            except Unavailable as e:
                self.report.add_fault(case, expected, str(e), "skipped")

    def run(self, cache=None, precision="f32", card=None, **more):
        outcome = self.runner.run(
            self.spec, card or self.card, precision, cache or self.runner.folder("cache"), **more
        )
        said = f": {last_error(outcome.text)}" if outcome.code else ""
        self.ended.append(f"exit code {outcome.code}, {len(outcome.kernels())} kernels{said}")
        return outcome

    def no_headers(self):
        folder = self.runner.folder("no-headers")
        (folder / "include").mkdir()
        return refused(self.run(CUDA_PATH=folder), "headers", "cuda_fp16.h")

    def without(self, header, word):
        folder = self.runner.toolkit.without(header, self.runner.folder(f"no-{header}"))
        return refused(self.run(CUDA_PATH=folder), word)

    def no_nvrtc(self):
        outcome = self.run(LD_LIBRARY_PATH=self.runner.driver)
        if outcome.code == 0:
            raise Unavailable("this machine has an NVRTC of its own")
        return refused(outcome, "nvrtc")

    def other_headers(self):
        """`cuda_runtime_api.h` of the headers says another minor version than NVRTC does."""
        folder = self.runner.toolkit.without(
            "cuda_runtime_api.h", self.runner.folder("other-headers")
        )
        api = (self.runner.toolkit.include / "cuda_runtime_api.h").read_text(errors="replace")
        major, minor = self.runner.version
        own, other = (
            f"CUDART_VERSION  {major * 1000 + 10 * at}" for at in (minor, minor - 1 if minor else 1)
        )
        if own not in api:
            raise Unavailable(f"cuda_runtime_api.h has no `{own}`")
        (folder / "include/cuda_runtime_api.h").write_text(api.replace(own, other))
        return accepted(self.run(precision="bf16", CUDA_PATH=folder))

    def old_driver(self):
        driver = build_driver(self.runner.folder("old-driver"), "-DWITHOUT_CONTEXT_EVENTS")
        path = f"{driver}:{self.runner.log}:{self.runner.toolkit.lib}"
        return refused(self.run(FAKE_CUDA_DRIVER=12040, LD_LIBRARY_PATH=path), "12.4", "12.8")

    def refused_ptx(self):
        """PTX that the driver refuses must not be kept: with a newer driver it would be read."""
        if self.runner.version < (12, 9):
            raise Unavailable("this NVRTC is not newer than CUDA 12.8")
        cache = self.runner.folder("cache")
        problem = refused(self.run(cache, FAKE_CUDA_DRIVER=12080), "12.8")
        later = accepted(self.run(cache))
        return " / ".join(filter(None, [problem, later and f"with a newer driver: {later}"]))

    def old_card(self):
        if 70 in self.runner.architectures:
            raise Unavailable("this NVRTC compiles for sm_70")
        return refused(self.run(card=card_of(70)), "sm_70", "7.0")

    def full_disk(self):
        with tmpfs(self.runner.folder("disk"), "1m") as disk:
            outcome = self.run(disk)
            problem = accepted(outcome)
            if not problem and "not cached" not in outcome.text:
                problem = "no log says that kernels are not cached"
            return problem

    def filling_disk(self):
        """A disk with the space that a start wants is full from the first kernel on."""
        with tmpfs(self.runner.folder("disk"), "160m") as disk:
            filler = disk / "filler"

            def fill(compiled, goes_on):
                while not compiled() and goes_on():
                    time.sleep(0.02)
                with open(filler, "wb", buffering=0) as file:
                    for size in (1 << 20, 4096):
                        with contextlib.suppress(OSError):
                            while file.write(bytes(size)) == size:
                                pass

            problems = [accepted(self.run(disk, meanwhile=fill))]
            if disk_free(disk) > 64 << 10:
                raise Unavailable("the disk was not filled")
            filler.unlink()
            again = accepted(self.run(disk))
            third = self.run(disk)
            problems.append(again and f"with space again: {again}")
            problems.append(
                f"the start after it compiled {len(third.kernels())} kernels"
                if third.compilations
                else None
            )
            return " / ".join(filter(None, problems))

    def garbage(self):
        cache, problem = self.filled()
        for path in databases(cache):
            path.write_bytes(os.urandom(32 << 10))
            for beside in path.parent.glob(f"{path.name}-*"):
                beside.unlink()
        return problem or accepted(self.run(cache))

    def other_schema(self):
        cache, problem = self.filled()
        if problem:
            return problem
        for path in databases(cache):
            try:
                with contextlib.closing(sqlite3.connect(path)) as database:
                    changed = database.execute(
                        "UPDATE meta SET v = '2' WHERE k = 'schema_version'"
                    ).rowcount
                    database.commit()
            except sqlite3.Error as e:
                raise Unavailable(f"SQLite can't change {path.name}: {e}") from None
            if changed != 1:
                raise Unavailable(f"{path.name} has no schema version")
        outcome = self.run(cache)
        return accepted(outcome) or (None if outcome.compilations else "it compiled nothing")

    def other_build(self):
        if not self.other_binary:
            raise Unavailable("no other build is given (--other-binary)")
        cache, problem = self.filled()
        if problem:
            return problem
        own, self.runner.binary = self.runner.binary, self.other_binary
        try:
            outcome = self.run(cache)
        finally:
            self.runner.binary = own
        return accepted(outcome) or (
            f"it compiled {len(outcome.kernels())} kernels" if outcome.compilations else None
        )

    def old_nvrtc(self, version):
        with self.older(version) as (card, driver):
            for precision in ("f32", "bf16", "f16"):
                problem = accepted(
                    self.run(precision=precision, card=card, FAKE_CUDA_DRIVER=driver)
                )
                if problem:
                    return f"{precision}: {problem}"

    def cache_of(self, version):
        """PTX of an old NVRTC is not used after an upgrade, nor the other way round."""
        cache = self.runner.folder("cache")
        with self.older(version) as (card, driver):
            first = self.run(cache, card=card, FAKE_CUDA_DRIVER=driver)
        outcome = self.run(cache, card=card)
        return (
            accepted(first)
            or accepted(outcome)
            or (None if outcome.compilations else "it compiled nothing")
        )

    @contextlib.contextmanager
    def older(self, version):
        """Runs within use another toolkit, and a driver of CUDA 12.8 or later: an older one is a
        case of its own."""
        own = self.runner.toolkit, self.runner.log
        toolkit = self.old[version]
        if isinstance(toolkit, Unavailable):
            raise toolkit
        log = build_log(toolkit, self.runner.folder(f"log-{version}"))
        (major, minor), architectures = toolkit.describe()
        card = self.card if self.card.sm in architectures else card_of(max(architectures))
        self.runner.toolkit, self.runner.log = toolkit, log
        try:
            yield card, max(12080, major * 1000 + minor * 10)
        finally:
            self.runner.toolkit, self.runner.log = own

    def filled(self):
        cache = self.runner.folder("cache")
        return cache, accepted(self.run(cache))


def accepted(outcome):
    """What is wrong with a run that should train."""
    if outcome.code != 0:
        return f"exit code {outcome.code}: {last_error(outcome.text)}"
    failures = outcome.failures()
    if failures:
        return f"{len(failures)} kernels do not compile: {failures[0].get('log', '')[:300]}"
    return None


def refused(outcome, *words):
    """What is wrong with a run that should end with a message that has one of `words`."""
    text = outcome.text.lower()
    if outcome.code == 0:
        return f"exit code 0 after {len(outcome.kernels())} kernels"
    if outcome.code != NO_DEVICE:
        return f"exit code {outcome.code}: {last_error(outcome.text)}"
    if "panicked at" in text or "[source]" in text:
        return "a panic or a kernel's source in its output"
    if not any(word.lower() in text for word in words):
        return f"none of {', '.join(words)} in its output: {last_error(outcome.text)}"
    return None


def databases(cache):
    found = sorted(cache.glob("*.db"))
    if not found:
        raise Unavailable(f"no database in {cache}")
    return found


@contextlib.contextmanager
def tmpfs(folder, size):
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        raise Unavailable("there is no `mount`") from None
    if done.returncode:
        raise Unavailable(f"a small disk can't be mounted: {done.stderr.strip()[:200]}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


def disk_free(folder):
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
