"""The metadata is in pyproject.toml. A wheel holds libgradwire and the program: scripts/wheel puts them into a copy of
this folder and runs this there. An editable installation has neither, and uses those of build/."""
import pathlib

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

LIBRARY = pathlib.Path(__file__).resolve().parent / "gradwire" / "lib" / "libgradwire.so.1"


class Complete(build_py):
    """Refuses to install a package that would not find its library."""

    def run(self):
        if not self.editable_mode and not LIBRARY.exists():
            raise SystemExit("gradwire: this folder has the Python files but no compiled library. Run `make wheel` "
                             "at the top of the repository, then `pip install build/gradwire-*.whl`")
        super().run()


class Compiled(Distribution):
    """Belongs where compiled packages do."""

    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    """The compiled code is not for one version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=Compiled, cmdclass={"build_py": Complete, "bdist_wheel": Wheel})
