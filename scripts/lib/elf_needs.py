#!/usr/bin/env python3
"""What a program or library needs of the machine it runs on: the libraries it names, and the newest glibc of all symbols.

usage: elf_needs.py [--most 2.28] FILE...     with --most: fails where a file needs a newer glibc, or more than glibc

Reads the ELF file itself, as auditwheel does for its tags: DT_NEEDED, and .gnu.version_r.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import re
import struct
import sys
from pathlib import Path

# What belongs to glibc. Each Linux of the last ten years with glibc has them.
GLIBC = re.compile(r"(libc|libpthread|libdl|librt|libm)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+")
# And zlib, which the command may use: auditwheel takes it for given, too. By library, Debian's package of it.
COMMON = {"libz.so.1": "zlib1g"}
DT_NEEDED, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 0x6ffffffe, 0x6fffffff
PT_LOAD, PT_DYNAMIC = 1, 2


class Elf:
    """A 64-bit little-endian ELF file with a dynamic section."""

    def __init__(self, path):
        self.bytes = Path(path).read_bytes()
        if self.bytes[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: no 64-bit ELF file")
        start, = struct.unpack_from("<Q", self.bytes, 32)
        size, count = struct.unpack_from("<HH", self.bytes, 54)
        headers = [struct.unpack_from("<IIQQQQ", self.bytes, start + i * size) for i in range(count)]
        self.loads = [(vaddr, offset, filesz) for kind, _, offset, vaddr, _, filesz in headers if kind == PT_LOAD]
        self.dynamic = []
        for kind, _, offset, _, _, filesz in headers:
            if kind == PT_DYNAMIC:
                self.dynamic = [struct.unpack_from("<qQ", self.bytes, offset + at) for at in range(0, filesz, 16)]

    def value(self, tag):
        return next((value for found, value in self.dynamic if found == tag), None)

    def offset(self, address):
        return next(address - vaddr + offset for vaddr, offset, size in self.loads if vaddr <= address < vaddr + size)

    def text(self, at):
        begin = self.offset(self.value(DT_STRTAB)) + at
        return self.bytes[begin:self.bytes.index(b"\0", begin)].decode()

    def libraries(self):
        return [self.text(value) for tag, value in self.dynamic if tag == DT_NEEDED]

    def versions(self):
        """(library, version) of all symbols that have one."""
        found, at = [], self.value(DT_VERNEED) and self.offset(self.value(DT_VERNEED))
        for _ in range(self.value(DT_VERNEEDNUM) or 0):
            _, count, file, first, following = struct.unpack_from("<HHIII", self.bytes, at)
            entry = at + first
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", self.bytes, entry)
                found.append((self.text(file), self.text(name)))
                entry += step
            at += following
        return found


def number(version):
    return tuple(map(int, version.split(".")))


def glibc_of(path):
    """The newest glibc that a file needs, as (2, 28); (0,): it needs none."""
    versions = [re.fullmatch(r"GLIBC_([\d.]+)", name) for _, name in Elf(path).versions()]
    return max((number(found[1]) for found in versions if found), default=(0,))


def others_of(path):
    """Libraries that are neither glibc's nor common, and versions of symbols that are of neither (GLIBC_PRIVATE among them)."""
    elf = Elf(path)
    wrong = [name for library, name in elf.versions() if library not in COMMON and not re.fullmatch(r"GLIBC_[\d.]+", name)]
    return [name for name in elf.libraries() if not GLIBC.fullmatch(name) and name not in COMMON] + wrong


def packages_of(path):
    """Debian's packages of the common libraries that a file needs."""
    return [COMMON[name] for name in Elf(path).libraries() if name in COMMON]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", help="the newest glibc that may be needed, such as 2.28")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    faults = 0
    for path in options.files:
        newest, others = glibc_of(path), others_of(path)
        print(f"{path}: glibc {'.'.join(map(str, newest))}" + "".join(f", {name}" for name in others))
        faults += bool(options.most) and (newest > number(options.most) or bool(others))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
