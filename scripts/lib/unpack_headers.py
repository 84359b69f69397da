"""Takes the headers out of Python packages: all files below an include/ folder in them.

usage: unpack_headers.py WHEELS TARGET      two folders
"""
# SPDX-License-Identifier: Apache-2.0
import sys
import zipfile
from pathlib import Path


def main(wheels, target):
    for wheel in Path(wheels).glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                _, found, inside = name.partition("/include/")
                if found and inside and not name.endswith("/") and ".." not in inside:
                    path = Path(target) / inside
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.read(name))


if __name__ == "__main__":
    main(*sys.argv[1:])
