"""The table, and the same as JSON."""
import contextlib, json, os, time


class OutOfTime(Exception):
    """The row, its section, or the whole call has used up its time."""


class Report:
    def __init__(self, path):
        self.path = path
        self.rows = []
        self.name = ""
        self.began = time.monotonic()
        self.facts = {}

    def section(self, name):
        self.name = name

    def check(self, what, figure, goal, ok, **more):
        """A line that passes or fails."""
        self._add(what, figure, goal, "ok" if ok else "FAIL", more)

    def note(self, what, figure, goal="", **more):
        """A figure without a verdict."""
        self._add(what, figure, goal, "", more)

    def fail(self, what, why):
        self._add(what, why, "", "FAIL", {})

    def cut(self, what, why):
        """What time has ended, or left none for: it has not passed."""
        self._add(what, why, "", "CUT", {"cut": True})

    @contextlib.contextmanager
    def attempt(self, what):
        """What goes wrong within is a line of its own, and the next check goes on."""
        try:
            yield
        except OutOfTime as e:
            self.cut(what, str(e))
        except Exception as e:
            self.fail(what, f"{type(e).__name__}: {e}")

    def skip(self, why, what="the section", cut=False):
        """`cut`: for want of time, though nothing depends on it."""
        self._add(what, why, "", "skipped", {"cut": True} if cut else {})

    def failed(self):
        return any(row["status"] in ("FAIL", "CUT") for row in self.rows)

    def _add(self, what, figure, goal, status, more):
        at = round(time.monotonic() - self.began, 1)
        row = dict(section=self.name, what=what, figure=figure, goal=goal, status=status, at_s=at)
        self.rows.append({**row, **more})
        print(f"[{at:6.1f} s] {self.name}: {what}: {figure}  {status}", flush=True)
        # After each line: who kills the script still has what was measured.
        text = json.dumps({**self.facts, "rows": self.rows}, indent=1)
        scratch = f"{self.path}.tmp"
        with open(scratch, "w") as file:
            file.write(text)
        os.replace(scratch, self.path)

    def print(self):
        head = ["section", "check", "figure", "goal", ""]
        table = [[r["section"], r["what"], r["figure"].split("\n")[0][:100], r["goal"], r["status"]] for r in self.rows]
        widths = [max(len(row[i]) for row in [head, *table]) for i in range(5)]
        print()
        for row in [head, ["-" * w for w in widths], *table]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        cut = [f"  {row['section']}: {row['what']}" for row in self.rows if row.get("cut")]
        if cut:
            print("\n".join(["\ncut by time:", *cut]))
