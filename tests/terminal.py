"""A flatlab process on a pseudo-terminal, for the tests of what a person sees."""

import os
import pty
import re
import select
import signal
import sys
import time

from conftest import command, environment


class Terminal:
    """A process on a pseudo-terminal of 140 columns; `seen` is what it wrote, without colours."""

    def __init__(self, *args, cwd, code=None):
        """Start `flatlab` with arguments, or python with code."""
        self.seen = ""
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            environ = environment(TERM="xterm", COLUMNS="140")
            words = command(*args) if code is None else [sys.executable, "-c", code]
            os.execve(sys.executable, words, environ)

    def read(self, until=None, seconds=90):
        """Read to the end, or until a pattern is seen."""
        deadline = time.monotonic() + seconds
        while not (until and re.search(until, self.seen, re.DOTALL)):
            assert time.monotonic() < deadline, f"no {until!r} in {self.seen[-2000:]!r}"
            if select.select([self.descriptor], [], [], 0.1)[0]:
                try:
                    part = os.read(self.descriptor, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    return
                self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part)

    def interrupt(self):
        """Send what Ctrl-C sends."""
        os.kill(self.pid, signal.SIGINT)

    def end(self):
        """Read what is left and return the exit code."""
        self.read()
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(status)
