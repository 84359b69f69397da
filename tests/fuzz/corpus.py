#!/usr/bin/env python3
"""The inputs that fuzzing found, TARGET/NAME each, in one archive: takes them out of it, and puts others in.

usage: corpus.py unpack ARCHIVE FOLDER           FOLDER holds them then, and nothing else
       corpus.py add ARCHIVE TARGET FILE...      more inputs for a target, named by their contents
       corpus.py replace ARCHIVE TARGET FOLDER   the files of FOLDER become all that there are for it

The same inputs make the same archive, whoever packs them and when.
"""
# SPDX-License-Identifier: Apache-2.0
import gzip
import hashlib
import io
import shutil
import sys
import tarfile
from pathlib import Path


def read(archive):
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def write(archive, inputs):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(inputs):
            member = tarfile.TarInfo(name)  # of nobody, and of no time
            member.size = len(inputs[name])
            tar.addfile(member, io.BytesIO(inputs[name]))
    Path(archive).write_bytes(gzip.compress(plain.getvalue(), mtime=0))


def unpack(archive, folder):
    folder = Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in read(archive).items():
        target, _, own = name.partition("/")
        if not own or "/" in own or {target, own} & {".", ".."}:
            sys.exit(f"{archive}: {name} is no TARGET/NAME")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def add(archive, target, *files):
    inputs = read(archive)
    for data in (Path(file).read_bytes() for file in files):
        if data not in [known for name, known in inputs.items() if name.startswith(target + "/")]:
            inputs[f"{target}/{hashlib.sha1(data).hexdigest()}"] = data
    write(archive, inputs)


def replace(archive, target, folder):
    inputs = {name: data for name, data in read(archive).items() if not name.startswith(target + "/")}
    write(archive, inputs | {f"{target}/{path.name}": path.read_bytes() for path in Path(folder).iterdir()})


def main(arguments):
    commands = {"unpack": unpack, "add": add, "replace": replace}
    if len(arguments) < 3 or arguments[0] not in commands:
        sys.exit(__doc__)
    commands[arguments[0]](*arguments[1:])


main(sys.argv[1:])
