#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes digits-images.idx3-ubyte and digits-labels.idx1-ubyte in this folder (or the one given).

Needs scikit-learn, whose copy of the UCI digits is the source. The files are committed: nobody
needs to run this to build, train or test. `make.py --check` compares instead of writing.
"""
import hashlib
import pathlib
import struct
import sys

import numpy as np
from sklearn.datasets import load_digits

IDX_UBYTE = 0x08


def idx(array):
    """An IDX file: 0, 0, type, rank; each dimension as a big-endian u32; the bytes."""
    head = struct.pack(">BBBB", 0, 0, IDX_UBYTE, array.ndim)
    dims = struct.pack(">%dI" % array.ndim, *array.shape)
    return head + dims + np.ascontiguousarray(array, dtype=np.uint8).tobytes()


def main(argv):
    check = "--check" in argv
    rest = [a for a in argv if a != "--check"]
    folder = pathlib.Path(rest[0]) if rest else pathlib.Path(__file__).resolve().parent
    digits = load_digits()
    images, labels = digits.images, digits.target
    assert images.shape == (1797, 8, 8) and labels.shape == (1797,)
    assert (images == images.astype(np.uint8)).all() and images.min() == 0 and images.max() == 16
    files = {
        "digits-images.idx3-ubyte": idx(images.astype(np.uint8)),
        "digits-labels.idx1-ubyte": idx(labels.astype(np.uint8)),
    }
    bad = 0
    for name, data in files.items():
        path = folder / name
        if not check:
            path.write_bytes(data)
        elif not path.is_file() or path.read_bytes() != data:
            bad = 1
            print(f"{path}: differs from scikit-learn's digits")
            continue
        print(f"{hashlib.sha256(data).hexdigest()}  {name}")
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
