"""Rows of token ids in numpy's file format, written without numpy."""

import array
import pathlib
import struct
import sys


def write_npy(path, rows):
    """`rows`, all of one length, as int32 [rows, length]."""
    ids = array.array("i", (token for row in rows for token in row))
    if ids.itemsize != 4 or sys.byteorder != "little":
        raise RuntimeError("this machine's integers are not those of '<i4'")
    shape = (len(rows), len(rows[0]))
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) +
                                   header.encode("ascii") + ids.tobytes())
    return path
