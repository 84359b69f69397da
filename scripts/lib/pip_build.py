"""What pip asks for a wheel of the clone (`pip install .`): made by this machine's own compiler, for it and newer ones.
scripts/wheel makes one for others."""
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import packages


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = packages.ROOT / "build-pip"
    packages.build(folder / "meson", "--prefix=/usr/local", "--libdir=lib")
    prefix = packages.stage(folder / "meson", folder / "staged")
    return packages.wheel(prefix, Path(wheel_directory)).name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("there are no packages of the source: clone the repository")
