"""Generates packages, so that tests can install them without a network: packages.py DIRECTORY

`tiny-package` 1.0 and 2.0 are wheels. `slow-package` 1.0 is an sdist whose build records itself in $SLOW_LOG and takes
$SLOW_SECONDS.
"""

import io
import os
import sys
import tarfile
import zipfile

BACKEND = '''
import os, time, zipfile

def get_requires_for_build_wheel(config_settings=None):
    return []

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if os.environ.get("SLOW_LOG"):
        with open(os.environ["SLOW_LOG"], "a") as log:
            log.write("built\\n")
    time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))
    name = "slow_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for number in range(200):
            wheel.writestr(f"slow_package/part{number}.py", f"NUMBER = {number}\\n" * 50)
        wheel.writestr("slow_package/__init__.py", "VERSION = '1.0'\\nfrom .part199 import NUMBER\\n")
        info = "slow_package-1.0.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: slow-package\\nVersion: 1.0\\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "RECORD", "")
    return name
'''

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "slow-package"
version = "1.0"
"""


def make_tiny(directory, version):
    info = f"tiny_package-{version}.dist-info/"
    with zipfile.ZipFile(os.path.join(directory, f"tiny_package-{version}-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("tiny_package.py", f"VERSION = {version!r}\ndef main(): print('tiny', VERSION)\n")
        wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: tiny-package\nVersion: {version}\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "entry_points.txt", "[console_scripts]\ntiny = tiny_package:main\n")
        wheel.writestr(info + "RECORD", "")


def make_slow(directory):
    with tarfile.open(os.path.join(directory, "slow_package-1.0.tar.gz"), "w:gz") as sdist:
        for name, text in (
            ("PKG-INFO", "Metadata-Version: 2.1\nName: slow-package\nVersion: 1.0\n"),
            ("pyproject.toml", PYPROJECT),
            ("backend.py", BACKEND),
        ):
            member = tarfile.TarInfo("slow_package-1.0/" + name)
            member.size = len(text)
            sdist.addfile(member, io.BytesIO(text.encode()))


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    make_tiny(sys.argv[1], "1.0")
    make_tiny(sys.argv[1], "2.0")
    make_slow(sys.argv[1])
