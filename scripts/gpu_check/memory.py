"""The device memory that is in use, sampled while something runs."""
import shutil, subprocess, threading

QUERY = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]


def used():
    """MiB; `None` where nvidia-smi is not there or says something else."""
    if not shutil.which(QUERY[0]):
        return None
    done = subprocess.run(QUERY, capture_output=True, text=True)
    text = done.stdout.strip()
    return int(text) if text.isdigit() else None


class Peak:
    """The most that came on top of what was there before, in MiB."""

    def __enter__(self):
        self.before, self.most, self.over = used(), 0, threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)
        if self.before is not None:
            self.thread.start()
        return self

    def _sample(self):
        while not self.over.wait(0.2):
            self.most = max(self.most, (used() or 0) - self.before)

    def __exit__(self, *_):
        self.over.set()
        if self.before is not None:
            self.thread.join()

    def told(self):
        return None if self.before is None else self.most
