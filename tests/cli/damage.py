#!/usr/bin/env python3
"""damage.py KIND IN.gguf OUT.gguf: a copy of a model file with one thing wrong.

GGUF: magic, u32 version, u64 tensor count, u64 metadata count, metadata, tensor infos (name, u32 dims, u64 each dim,
u32 type, u64 offset), data. All little endian; strings are u64 length and bytes.
"""
import random
import shutil
import struct
import sys

HEADER_BYTES = 1 << 22  # more than header, metadata and tensor infos of the files used here
TENSOR = b"output_norm.weight"


def put(at, layout, *values):
    def edit(head):
        struct.pack_into(layout, head, at, *values)
    return edit


def tensor_field(field, change):
    """Rewrites the first dim ("dim") or the type ("type") of one tensor."""
    def edit(head):
        at = head.index(struct.pack("<Q", len(TENSOR)) + TENSOR) + 8 + len(TENSOR)
        dims = struct.unpack_from("<I", head, at)[0]
        layout, where = {"dim": ("<Q", at + 4), "type": ("<I", at + 4 + 8 * dims)}[field]
        struct.pack_into(layout, head, where, change(struct.unpack_from(layout, head, where)[0]))
    return edit


def architecture(head):
    at = head.index(b"general.architecture") + len(b"general.architecture") + 4 + 8
    head[at:at + 5] = b"mamba"


def metadata_bits(head):
    generator = random.Random(7)
    for _ in range(64):
        head[generator.randrange(24, 4096)] ^= 1 << generator.randrange(8)


KINDS = {
    "magic": put(0, "<4s", b"GGUX"),
    "version": put(4, "<I", 99),
    "tensor_count": put(8, "<Q", 1 << 60),
    "metadata_count": put(16, "<Q", 1 << 60),
    "architecture": architecture,
    "metadata_bits": metadata_bits,
    "tensor_type": tensor_field("type", lambda _: 1),
    "tensor_type_unknown": tensor_field("type", lambda _: 250),
    "tensor_shape": tensor_field("dim", lambda n: n - 64),
    "tensor_oversize": tensor_field("dim", lambda _: 1 << 44),
}

kind, source, destination = sys.argv[1:]
shutil.copyfile(source, destination)
if kind == "data_bit":  # the last byte of the last tensor: only a hash can see it
    with open(destination, "r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))
    sys.exit(0)
with open(destination, "r+b") as file:
    head = bytearray(file.read(HEADER_BYTES))
    KINDS[kind](head)
    file.seek(0)
    file.write(head)
