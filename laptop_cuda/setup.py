"""A wheel carries the runtime, built for the machine that builds it (or that CXX and --plat-name say)."""
import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


class WithRuntime(build_py):
    def find_package_modules(self, package, folder):
        return [found for found in super().find_package_modules(package, folder) if found[1] != "setup"]

    def run(self):
        super().run()
        if not self.editable_mode:
            made = Path(self.build_lib).resolve()
            command = [sys.executable, "-m", "laptop_cuda.ship", made / "laptop_cuda" / "built"]
            # pip's isolated build finds NumPy by a PYTHONPATH of its own
            path = os.pathsep.join(filter(None, [str(made), os.environ.get("PYTHONPATH")]))
            subprocess.run(command, check=True, cwd=made, env=os.environ | {"PYTHONPATH": path})


class OfOnePlatform(Distribution):
    def has_ext_modules(self):
        return True


class ForAnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=OfOnePlatform, cmdclass={"build_py": WithRuntime, "bdist_wheel": ForAnyPython})
