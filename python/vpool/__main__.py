"""The command: `python -m vpool run -- python train.py` is `vpool run -- python train.py`."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys


def places():
    """Where the command may be: in a wheel, in the clone that this lies in, installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, "bin/vpool")
    if os.path.exists(os.path.join(here, "../../meson.build")):
        yield os.path.normpath(os.path.join(here, "../../build/vpool"))
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) + ["/usr/local/bin", "/usr/bin"]:
        yield os.path.join(folder, "vpool")


def is_program(path):
    """Not the script that pip makes for this module: that would come back here."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False


def main():
    command = next(filter(is_program, places()), None)
    if command is None:
        print("vpool: the command is neither in this package, nor in build/ beside it, nor in PATH", file=sys.stderr)
        return 127
    if sys.stdout:      # None where it is closed
        sys.stdout.flush()
    try:
        os.execv(command, ["vpool"] + sys.argv[1:])
    except OSError as problem:
        print(f"vpool: {command}: {problem.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main())
