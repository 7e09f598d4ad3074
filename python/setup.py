"""The metadata is in pyproject.toml. `build_ext` builds the optional process group for torch.distributed against the
headers of the installed torch; libgradwire itself is included where the repository has been built."""
import pathlib
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
BUILT = HERE.parent / "build" / "libgradwire.so.1"


class WithLibrary(build_py):
    """Installs the library beside the package."""

    def run(self):
        super().run()
        if BUILT.exists() and not self.editable_mode:
            shutil.copy(BUILT, pathlib.Path(self.build_lib) / "gradwire" / BUILT.name)


def extension():
    from torch.utils import cpp_extension

    class Build(cpp_extension.BuildExtension):
        """Uses the file name that the package looks for, and no ninja."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, use_ninja=False, no_python_abi_suffix=True, **options)

    one = cpp_extension.CppExtension("gradwire._c10d", ["csrc/process_group.cc"],
                                     include_dirs=[str(HERE.parent / "include")],
                                     library_dirs=[str(BUILT.parent)], libraries=["gradwire"],
                                     extra_compile_args=["-O2", "-Wall", "-fvisibility=hidden"])
    return {"ext_modules": [one], "cmdclass": {"build_py": WithLibrary, "build_ext": Build}}


setup(**(extension() if "build_ext" in sys.argv else {"cmdclass": {"build_py": WithLibrary}}))
