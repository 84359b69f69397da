"""Packages and sources of other releases of Debian, asked for by an apt of our own: nothing is installed on this machine."""
# SPDX-License-Identifier: Apache-2.0
import os
import subprocess


class Release:
    """A release; what is fetched of it lies in a folder."""

    def __init__(self, folder, name):
        self.folder, self.name, self.updated = folder / name, name, False
        for part in ("lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "sources.list").write_text("".join(
            f"{kind} [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {name} main\n"
            for kind in ("deb", "deb-src")))
        (self.folder / "apt.conf").write_text(
            f'Dir::Etc::sourcelist "{self.folder}/sources.list";\nDir::Etc::sourceparts "/nonexistent";\n'
            f'Dir::State::lists "{self.folder}/lists";\nDir::Cache "{self.folder}/cache";\n'
            'Dir::State::status "/dev/null";\nAPT::Sandbox::User "root";\n')

    def apt(self, *words, cwd):
        env = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf")}
        if not self.updated:
            subprocess.run(["apt-get", "-qq", "update"], env=env, check=True, stdout=subprocess.DEVNULL)
            self.updated = True
        subprocess.run(["apt-get", "-qq", *words], cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def unpacked(self, *packages, into):
        """The packages' files, in a folder that is made for them; those of the packages' names and versions."""
        debs = into / "debs"
        debs.mkdir(parents=True)
        self.apt("download", *packages, cwd=debs)
        found = {deb.name.split("_")[0]: deb.name.split("_")[1] for deb in debs.glob("*.deb")}
        for deb in sorted(debs.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", deb, into], check=True)
            deb.unlink()
        debs.rmdir()
        return found
