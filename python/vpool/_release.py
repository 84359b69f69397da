"""The release of the package: written beside it in a wheel and in Debian's package, and else read from meson.build."""
# SPDX-License-Identifier: Apache-2.0
import os
import re


def release():
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        with open(os.path.join(folder, "release.txt"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        pass
    with open(os.path.join(folder, "../../meson.build"), encoding="utf-8") as file:
        return re.search(r"version: '([^']+)'", file.read())[1]
