#!/usr/bin/env python3
"""make_wheel.py WHEEL MEMBER FILE: a wheel with FILE's bytes as MEMBER, and the metadata that pip asks for."""
import os
import sys
import zipfile

wheel, member, source = sys.argv[1:]
name, version = os.path.basename(wheel).split("-")[:2]
info = f"{name}-{version}.dist-info"
with zipfile.ZipFile(wheel, "w") as archive:
    archive.write(source, member)
    archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    archive.writestr(f"{info}/RECORD", "")
