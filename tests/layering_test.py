#!/usr/bin/env python3
"""Fails when a layer of src/ includes from a layer that it must not know.

usage: layering_test.py ROOT [--self-test]
"""
import pathlib
import re
import sys
import tempfile

# Layer -> the layers of src/ whose headers it may include, besides its own and include/varve.
MAY_INCLUDE = {"base": set()}
MAY_INCLUDE["format"] = {"base"}
MAY_INCLUDE["kernels"] = {"base", "format"}
MAY_INCLUDE["attention"] = {"base", "format", "kernels"}
MAY_INCLUDE["cache"] = {"base"}  # pools and pages do not know what a format's bytes mean
MAY_INCLUDE["content"] = {"base", "format"}  # what a text says, whatever model reads it
MAY_INCLUDE["model"] = {"base", "format", "kernels", "attention", "cache"}
for above in ("engine", "eval", "server", "cli"):
    MAY_INCLUDE[above] = set(MAY_INCLUDE)

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"/]+)/', re.MULTILINE)


def violations(root):
    """Lines that say which file breaks which rule, and the number of files read."""
    found, count = [], 0
    for path in sorted(root.glob("src/**/*")) + sorted(root.glob("include/**/*")):
        if path.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        count += 1
        relative = path.relative_to(root)
        layer = relative.parts[1] if relative.parts[0] == "src" else "include/varve"
        if layer == "include/varve":
            allowed = set()
        elif layer in MAY_INCLUDE:
            allowed = MAY_INCLUDE[layer] | {layer}
        else:
            found.append(f"{relative}: src/{layer} is not a known layer; add it to MAY_INCLUDE where it belongs")
            continue
        for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if name in MAY_INCLUDE and name not in allowed:
                found.append(f"{relative}: {layer} must not include from {name}")
    return found, count


def self_test():
    """The rules must be able to fail."""
    cases = {
        "src/format/a.cc": ('#include "cache/cache.h"', "format must not include from cache"),
        "src/cache/a.h": ('#include "format/codec.h"', "cache must not include from format"),
        "src/base/a.h": ('  #  include "cli/terminal.h"', "base must not include from cli"),
        "src/colour/a.cc": ("", "src/colour is not a known layer"),
        "include/varve/a.h": ('#include "engine/engine.h"', "include/varve must not include from engine"),
        "src/cli/a.cc": ('#include "engine/engine.h"\n#include <base/x>\n#include "varve/status.h"', None),
    }
    for name, (text, expected) in cases.items():
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, name)
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            found, _ = violations(pathlib.Path(directory))
            if [expected in line for line in found] != ([True] if expected else []):
                sys.exit(f"{name} with {text!r} gave {found}, expected {expected!r}")


if "--self-test" in sys.argv:
    self_test()
    sys.exit(0)
problems, files = violations(pathlib.Path(sys.argv[1]))
if files == 0:
    problems.append("no source files found")
print("\n".join(problems) or f"{files} files keep the direction")
sys.exit(1 if problems else 0)
