"""`python -m gradwire`, and the command `gradwire` of a wheel: the program takes the place of this process."""
import os
import pathlib
import shutil
import sys


def program():
    """The program of the wheel, of the repository that the package lies in, or of the system; None if there is none."""
    package = pathlib.Path(__file__).resolve().parent
    places = [package / "bin" / "gradwire", package.parents[1] / "build" / "gradwire", shutil.which("gradwire")]
    for place in filter(None, places):
        # A command without its program must not start itself.
        if os.access(place, os.X_OK) and os.path.realpath(place) != os.path.realpath(sys.argv[0]):
            return str(place)
    return None


def main():
    path = program()
    if path is None:
        sys.exit("gradwire: this package came without the program gradwire: install a wheel (`make wheel` builds one), "
                 "or build the program (`make`, `make install`)")
    sys.stdout.flush()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
