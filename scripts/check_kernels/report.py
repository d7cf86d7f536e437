"""The tables, and the same as JSON."""

import json, os, re, threading, time
from .runner import architecture, first_error

# Failures that the text lists; all are in the JSON file.
LISTED = 30


class Report:
    def __init__(self, path, facts):
        self.path, self.facts = path, facts
        self.rows, self.faults = [], []
        self.began = time.monotonic()
        self.lock = threading.Lock()

    def add(self, row):
        with self.lock:
            self.rows.append(row)
            again = f", second start {row['second']['kernels']}" if row["second"] else ""
            self._tell(
                f"{row['model']} {row['precision']} {row['card']}: "
                f"{row['kernels']} kernels compiled, {row['failed']} failed, "
                f"{row['nvrtc_s']:.1f} s of {row['wall_s']:.1f} s{again}",
                row,
            )

    def add_cut(self, model, precision, card):
        with self.lock:
            why = "not run: no time was left"
            self.rows.append(
                dict(model=model, precision=precision, card=card, status="CUT", why=why)
            )
            self._tell(f"{model} {precision} {card}", self.rows[-1])

    def add_fault(self, case, expected, found, status):
        """`status`: ok, FAIL or skipped."""
        with self.lock:
            self.faults.append(dict(case=case, expected=expected, found=found, status=status))
            self._tell(f"{case}: {found}", dict(status=status))

    def _tell(self, text, row):
        why = f": {row['why']}" if row.get("why") else ""
        print(f"[{time.monotonic() - self.began:7.1f} s] {text}  {row['status']}{why}", flush=True)
        # After each line: who ends the script still has what was found.
        if self.path:
            scratch = f"{self.path}.tmp"
            with open(scratch, "w") as file:
                json.dump(
                    dict(**self.facts, totals=self.totals(), rows=self.rows, faults=self.faults),
                    file,
                    indent=1,
                )
            os.replace(scratch, self.path)

    def failed(self):
        return any(row["status"] in ("FAIL", "CUT") for row in self.rows + self.faults)

    def totals(self):
        done = [row for row in self.rows if row["status"] != "CUT"]
        return dict(
            rows=len(self.rows),
            cut=len(self.rows) - len(done),
            kernels=sum(r["kernels"] for r in done),
            failed=sum(r["failed"] for r in done),
            nvrtc_s=round(sum(r["nvrtc_s"] for r in done), 1),
            second_kernels=sum(r["second"]["kernels"] for r in done if r["second"]),
        )

    def text(self):
        parts = []
        if self.rows:
            parts += [matrix(self.rows), by_failure(self.rows), slowest(self.rows)]
            parts.append(
                "{kernels} kernels compiled in {nvrtc_s} s, {failed} failed; "
                "second starts compiled {second_kernels}".format(**self.totals())
            )
        if self.faults:
            parts.append(
                table(
                    ["case", "expected", "found", ""],
                    [
                        [f["case"], f["expected"], f["found"].split("\n")[0][:110], f["status"]]
                        for f in self.faults
                    ],
                )
            )
        bad = [
            f"  {r['model']} {r['precision']} {r['card']}: {r['why']}"
            for r in self.rows
            if r["status"] != "ok"
        ]
        bad += [
            f"  {f['case']}: expected {f['expected']}; {f['found']}"
            for f in self.faults
            if f["status"] == "FAIL"
        ]
        if bad:
            more = [f"  and {len(bad) - LISTED} more"] if len(bad) > LISTED else []
            parts.append("\n".join(["failed:", *bad[:LISTED], *more]))
        return "\n\n".join(part for part in parts if part)


def matrix(rows):
    """Models and precisions down, cards across: how many kernels NVRTC was given, its seconds, and
    how many kernels failed.

    >>> done = dict(model="mlp", precision="f32", card="sm_80", kernels=12, failed=0, nvrtc_s=3.21)
    >>> print(matrix([
    ...     {**done, "status": "ok"}, {**done, "card": "sm_90", "failed": 1, "status": "FAIL"},
    ...     {**done, "card": "sm_100", "status": "CUT"}]))
    model  precision  sm_80       sm_90                 sm_100
    -----  ---------  ----------  --------------------  ------
    mlp    f32        12 in 3.2s  12 in 3.2s, 1 FAILED  CUT
    """
    cards = sorted({row["card"] for row in rows}, key=lambda card: int(card.split("_")[1]))
    lines = dict.fromkeys((row["model"], row["precision"]) for row in rows)
    found = {(row["model"], row["precision"], row["card"]): row for row in rows}

    def cell(row):
        if row is None or row["status"] == "CUT":
            return "CUT" if row else ""
        text = f"{row['kernels']} in {row['nvrtc_s']:.1f}s"
        if row["status"] == "ok":
            return text
        return f"{text}, {row['failed']} FAILED" if row["failed"] else f"{text}, FAILED"

    order = list(dict.fromkeys(model for model, _ in lines))
    by_model = sorted(lines, key=lambda line: order.index(line[0]))
    return table(
        ["model", "precision", *cards],
        [
            [model, precision, *(cell(found.get((model, precision, card))) for card in cards)]
            for model, precision in by_model
        ],
    )


def by_failure(rows):
    """Kernels that do not compile, by what NVRTC says first, without the place; empty if all do.

    >>> options = ["--gpu-architecture=sm_80"]
    >>> failure = dict(kernel="k", source="0a", options=options, log="p(1): error: no\\n")
    >>> print(by_failure([dict(model="mlp", precision="bf16", failures=[failure, failure])]))
    error of NVRTC  kernels  first kernel  card   source  of
    --------------  -------  ------------  -----  ------  --------
    error: no       1        k             sm_80  0a.cu   mlp bf16
    """
    found = {}
    for row in rows:
        for failure in row.get("failures", ()):
            error = re.sub(r"^\S+\(\d+\): ", "", first_error(failure["log"]))[:90]
            kernel = failure["source"], architecture(failure["options"])
            found.setdefault(error, {}).setdefault(kernel, (failure, row))
    lines = []
    for error, kernels in sorted(found.items(), key=lambda item: -len(item[1])):
        (source, card), (failure, row) = next(iter(kernels.items()))
        lines.append(
            [
                error,
                str(len(kernels)),
                failure["kernel"][:60],
                card,
                f"{source}.cu",
                f"{row['model']} {row['precision']}",
            ]
        )
    head = ["error of NVRTC", "kernels", "first kernel", "card", "source", "of"]
    return table(head, lines) if lines else ""


def slowest(rows, count=5):
    """The kernels that NVRTC took longest for, each row's slowest.

    >>> kernel = dict(kernel="k", source="0a", seconds=2.5)
    >>> print(slowest([dict(model="mlp", precision="bf16", card="sm_90", slowest=kernel)]))
    slowest kernel  seconds  of
    --------------  -------  --------------
    k               2.5      mlp bf16 sm_90
    """
    done = [row for row in rows if row.get("slowest")]
    done.sort(key=lambda row: -row["slowest"]["seconds"])
    lines = []
    for row in done[:count]:
        kernel, of = row["slowest"], f"{row['model']} {row['precision']} {row['card']}"
        lines.append([kernel["kernel"][:80], f"{kernel['seconds']:.1f}", of])
    return table(["slowest kernel", "seconds", "of"], lines) if lines else ""


def table(head, rows):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )
