"""Runs a command with its stdout on a terminal of a given size and prints what it wrote there.

usage: in_terminal.py COLUMNS LINES COMMAND...
"""
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", int(sys.argv[2]), int(sys.argv[1]), 0, 0))
child = subprocess.Popen(sys.argv[3:], stdout=theirs, stdin=subprocess.DEVNULL)
os.close(theirs)
try:
    while data := os.read(ours, 65536):
        sys.stdout.buffer.write(data.replace(b"\r\n", b"\n"))
except OSError:  # the other end is closed
    pass
sys.exit(child.wait())
