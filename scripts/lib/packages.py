"""What scripts/wheel and scripts/deb share: an installation of a build in a folder, and packages made of that."""
# SPDX-License-Identifier: Apache-2.0
import base64
import gzip
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import elf_needs

ROOT = Path(__file__).resolve().parent.parent.parent
SUMMARY = "GPU memory from one pool, for CUDA programs as they are"
# A wheel is the same whenever it is made.
MOMENT = (1980, 1, 1, 0, 0, 0)


def release():
    """The one place that has it is meson.build."""
    return re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())[1]


def say(text):
    print(f"==> {text}", flush=True)


def run(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, **more)


def build(folder, *options, env=None):
    """Sets up and builds without the tests, for speed. The headers of CUDA are those of build/."""
    headers = run(ROOT / "scripts/cuda-headers", ROOT / "build", stdout=subprocess.PIPE, text=True).stdout.strip()
    env = {**os.environ, **(env or {})}
    if not (folder / "build.ninja").exists():
        run("meson", "setup", folder, ROOT, "--buildtype=release", "-Dtests=disabled",
            f"-Dcuda-include={ROOT / headers}", *options, env=env, stdout=subprocess.DEVNULL)
    run("ninja", "-C", folder, "all", env=env, stdout=subprocess.DEVNULL)


def stage(build_folder, target, strip=True):
    """Installs what is built into `target`; the folder there that stands for the prefix."""
    shutil.rmtree(target, ignore_errors=True)
    run("meson", "install", "-C", build_folder, "--no-rebuild", "--destdir", target, stdout=subprocess.DEVNULL)
    prefix = next(path.parent.parent for path in sorted(target.rglob("bin/vpool")))
    for path in elf_files(prefix) if strip and shutil.which("strip") else []:
        run("strip", "--strip-unneeded", path)
    return prefix


def elf_files(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()
            and path.open("rb").read(4) == b"\x7fELF"]


def newest_glibc(folder):
    """The newest that any file needs; what needs more than glibc ends this."""
    for path in elf_files(folder):
        if elf_needs.others_of(path):
            sys.exit(f"{path} needs {', '.join(elf_needs.others_of(path))}: only glibc is allowed")
    return max(map(elf_needs.glibc_of, elf_files(folder)))


def python_files():
    return sorted((ROOT / "python/vpool").glob("*.py"))


# ---- wheel ----

def wheel_files(prefix):
    """(name in the wheel, content, may be run)."""
    name = f"vpool-{release()}"
    for path in python_files():
        yield f"vpool/{path.name}", path.read_bytes(), False
    yield "vpool/release.txt", release().encode(), False
    libdir = next(prefix.rglob("libvpool.so")).parent
    for path in sorted(prefix.rglob("*")):
        if not path.is_file() or path.name == "vpool-snapshot-to-trace":
            continue
        inside = path.relative_to(prefix)
        if path.is_relative_to(libdir):
            # The command looks in ../lib, whatever the folder's name was here. A link is a file in a zip.
            inside = Path("lib") / path.relative_to(libdir)
            if path.is_symlink():
                continue
        if inside.parts[:2] == ("share", "man") or "completions" in str(inside) or "site-functions" in inside.parts:
            yield f"{name}.data/data/{inside}", path.read_bytes(), False
        else:
            yield f"vpool/{inside}", path.read_bytes(), os.access(path, os.X_OK)
    script = (ROOT / "scripts/snapshot-to-trace").read_text()
    yield f"{name}.data/scripts/vpool-snapshot-to-trace", re.sub(r"^#!.*", "#!python", script, count=1).encode(), True


def wheel_metadata(tag):
    version, text = release(), (ROOT / "README.md").read_text()
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: vpool\nVersion: {version}\nSummary: {SUMMARY}\n"
                    "License: Apache-2.0\nRequires-Python: >=3.8\nClassifier: Operating System :: POSIX :: Linux\n"
                    "Classifier: Environment :: GPU :: NVIDIA CUDA\n"
                    f"Description-Content-Type: text/markdown\n\n{text}",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: vpool {version}\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": "[console_scripts]\nvpool = vpool.__main__:main\n",
        "LICENSE": (ROOT / "LICENSE").read_text(),
    }


def wheel(prefix, out):
    """Packs an installation; the wheel's tag says which glibc its files need."""
    major, minor = newest_glibc(prefix)[:2]
    tag = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"
    path, records = out / f"vpool-{release()}-{tag}.whl", []
    files = list(wheel_files(prefix))
    files += [(f"vpool-{release()}.dist-info/{name}", text.encode(), False) for name, text in wheel_metadata(tag).items()]
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, content, runs):
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.external_attr = (0o100755 if runs else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
        for name, content, runs in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(content)}")
            add(name, content, runs)
        record = f"vpool-{release()}.dist-info/RECORD"
        add(record, "\n".join(records + [f"{record},,"]) + "\n", False)
    return path


# ---- Debian ----

def debian_control(prefix, architecture):
    major, minor = newest_glibc(prefix)[:2]
    more = sorted({name for path in elf_files(prefix) for name in elf_needs.packages_of(path)})
    size = sum(path.stat().st_size for path in prefix.rglob("*") if path.is_file()) // 1024 + 1
    return (f"Package: vpool\nVersion: {release()}\nArchitecture: {architecture}\nSection: utils\nPriority: optional\n"
            f"Maintainer: vpool's maintainers <vpool@localhost>\nInstalled-Size: {size}\n"
            f"Depends: {', '.join([f'libc6 (>= {major}.{minor})'] + more)}\nRecommends: python3\nDescription: {SUMMARY}\n"
            " libvpool.so is preloaded into a CUDA program and serves its GPU memory from one pool of\n"
            " virtual memory on each device; the command vpool starts programs under it, and shows what\n"
            " their memory does. The Python package vpool is in here, too.\n")


def debian_layout(prefix):
    """What Debian wants otherwise than an installation has it."""
    package = prefix / "lib/python3/dist-packages/vpool"
    package.mkdir(parents=True)
    for path in python_files():
        shutil.copy(path, package)
    (package / "release.txt").write_text(release())
    doc = prefix / "share/doc/vpool"
    shutil.move(doc / "LICENSE", doc / "copyright")
    for path in sorted((prefix / "share/man").rglob("*.[1-9]")) + [doc / "CHANGELOG.md"]:
        with open(f"{path}.gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
            packed.write(path.read_bytes())
        path.unlink()
    (doc / "CHANGELOG.md.gz").rename(doc / "changelog.gz")


def deb(prefix, root, out, *how):
    """Packs the installation in `root`, of which `prefix` is usr/; `how`: more words for dpkg-deb."""
    architecture = run("dpkg", "--print-architecture", stdout=subprocess.PIPE, text=True).stdout.strip()
    debian_layout(prefix)
    control = root / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(debian_control(prefix, architecture))
    # What Python has left there, dpkg does not know.
    (control / "prerm").write_text("#!/bin/sh\nset -e\nrm -rf /usr/lib/python3/dist-packages/vpool/__pycache__\n")
    (control / "prerm").chmod(0o755)
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n"
            for path in sorted(prefix.rglob("*")) if path.is_file() and not path.is_symlink()]
    (control / "md5sums").write_text("".join(sums))
    for path in [root, *root.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"vpool_{release()}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", *how, "--build", root, path, stdout=subprocess.DEVNULL)
    return path
