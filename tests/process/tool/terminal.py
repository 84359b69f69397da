"""vpool top on a terminal of its own, for the tests."""
# SPDX-License-Identifier: Apache-2.0
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

from guests import ENV, VPOOL


class Terminal:
    """top on a terminal."""

    def __init__(self, *args, kind="xterm", env={}):
        ready, go = os.pipe()
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.close(go)
            os.read(ready, 1)  # until the terminal is as it shall be found
            os.execve(VPOOL, [VPOOL, "top", "-d", "0.2", *map(str, args)], ENV | {"TERM": kind} | env)
        os.close(ready)
        self.size(20, 100)
        self.before = termios.tcgetattr(self.fd)
        os.close(go)

    def size(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, pattern, seconds=30):
        """Reads on until the pattern has come; what came since the last time."""
        begin, text = time.monotonic(), ""
        while time.monotonic() - begin < seconds:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    text += os.read(self.fd, 65536).decode()
                except OSError:
                    break
            if re.search(pattern, text):
                break
        assert re.search(pattern, text), (pattern, text[-2000:])
        return text

    def picture(self):
        """The next whole picture: the width of each of its lines."""
        lines = self.read(r"\033\[H(.*\n)+.*\033\[J").rsplit("\033[J", 1)[0].rsplit("\033[H", 1)[1].split("\r\n")
        return [len(re.sub(r"\033\[[0-9]*[A-Za-z]", "", line)) for line in lines]

    def press(self, keys):
        os.write(self.fd, keys)

    def end(self):
        return os.waitpid(self.pid, 0)[1]


LEFT = re.escape("\033[?25h\033[?1049l")
