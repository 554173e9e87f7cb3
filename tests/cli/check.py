#!/usr/bin/env python3
"""Runs one command in an empty directory and checks what a shell would see of it.

A command that fails must say why in exactly one line on stderr, leave stdout empty and not die from a signal;
one that succeeds must exit with 0. --stdout and --stderr are regular expressions that the streams must contain.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--exit", type=int, required=True, help="the expected exit code")
parser.add_argument("--stdout", default="", help="pattern that stdout must contain")
parser.add_argument("--stderr", default="", help="pattern that stderr must contain")
parser.add_argument("--setup", default="", help="shell command run first, in the same directory")
parser.add_argument("--absent", action="append", default=[], help="a file that must not exist afterwards")
parser.add_argument("--noisy", action="store_true", help="the command may print more than one line on stderr")
parser.add_argument("--shell", action="store_true", help="the command is one bash command line; $VARVE is the program")
parser.add_argument("--timeout", type=float, default=300)
parser.add_argument("command", nargs="+")
args = parser.parse_args()

problems = []
with tempfile.TemporaryDirectory(prefix="varve-cli-") as directory:
    if args.setup:
        subprocess.run(["bash", "-euo", "pipefail", "-c", args.setup], cwd=directory, check=True)
    command = ["bash", "-euo", "pipefail", "-c", args.command[0]] if args.shell else args.command
    done = subprocess.run(command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, timeout=args.timeout)
    for name in args.absent:
        if os.path.exists(os.path.join(directory, name)):
            problems.append(f"{name} was left behind")

stdout = done.stdout.decode("utf-8", "replace")
stderr = done.stderr.decode("utf-8", "replace")
if done.returncode != args.exit:
    problems.append(f"exit code {done.returncode}, expected {args.exit}")
if args.exit != 0:
    if stdout:
        problems.append("stdout is not empty")
    if not args.noisy and (stderr.count("\n") != 1 or not stderr.endswith("\n")):
        problems.append("stderr is not exactly one line")
for name, pattern, text in (("stdout", args.stdout, stdout), ("stderr", args.stderr, stderr)):
    if not re.search(pattern, text):
        problems.append(f"{name} does not contain {pattern!r}")

if problems:
    print("\n".join(problems))
    print(f"--- command: {args.command}\n--- stdout\n{stdout}--- stderr\n{stderr}", end="")
    sys.exit(1)
