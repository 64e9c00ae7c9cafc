"""Image sets of a few images in every form, and a server that misbehaves on request."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import pickle
import tarfile
import threading
import time

import numpy as np
from PIL import Image

from flatlab.data.sets import SETS, Archive, PublishedFile

BATCH, TRAIN, TEST = 20, 40, 20  # images of a CIFAR batch; of the tiny Fashion-MNIST
_DRAW = np.random.default_rng(0)
BATCHES = {
    name: (
        (np.arange(BATCH) % 10).astype(np.uint8),
        _DRAW.integers(0, 256, (BATCH, 3 * 32 * 32), dtype=np.uint8),
    )
    for name in [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
}


def idx(array):
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


CIFAR10 = {
    f"{name}.bin": np.column_stack([labels, pixels]).tobytes()
    for name, (labels, pixels) in BATCHES.items()
}
FASHION = {
    "train-images-idx3-ubyte": idx(_DRAW.integers(0, 256, (TRAIN, 28, 28), dtype=np.uint8)),
    "train-labels-idx1-ubyte": idx((np.arange(TRAIN) % 10).astype(np.uint8)),
    "t10k-images-idx3-ubyte": idx(_DRAW.integers(0, 256, (TEST, 28, 28), dtype=np.uint8)),
    "t10k-labels-idx1-ubyte": idx((np.arange(TEST) % 10).astype(np.uint8)),
}
CONTENT = {"cifar10": CIFAR10, "fashion_mnist": FASHION}


def tar_of(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in {"readme.html": b"hello", **files}.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


ARCHIVES = {
    "cifar10": {"cifar-10-binary.tar.gz": tar_of(CIFAR10)},
    "fashion_mnist": {f"{name}.gz": gzip.compress(data, mtime=0) for name, data in FASHION.items()},
}


def tiny_sets(monkeypatch):
    """Let the catalogue hold the tiny sets in place of the published ones."""
    for name, files in CONTENT.items():
        published = [
            PublishedFile(file, len(data), hashlib.sha256(data).hexdigest())
            for file, data in files.items()
        ]
        archives = [
            Archive(file, len(data), hashlib.md5(data).hexdigest(), real.holds)
            for (file, data), real in zip(ARCHIVES[name].items(), SETS[name].archives, strict=True)
        ]
        counts = (5 * BATCH, BATCH) if name == "cifar10" else (TRAIN, TEST)
        made = dataclasses.replace(
            SETS[name],
            files=tuple(published),
            archives=tuple(archives),
            train=counts[0],
            test=counts[1],
            url="http://127.0.0.1:9/",
        )
        monkeypatch.setitem(SETS, name, made)


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def python2_pickle(labels, pixels):
    """Return a batch as Python 2 pickled it: strings of bytes, and numpy's old names."""

    def text(data):
        return b"T" + len(data).to_bytes(4, "little") + data

    shape = b"(K" + bytes([len(pixels)]) + b"M" + (3072).to_bytes(2, "little") + b"t"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tU\x01btR(K\x01" + shape
        + b"cnumpy\ndtype\n(U\x02u1K\0K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
        b"\x89" + text(pixels.tobytes()) + b"tb"
    )  # fmt: skip
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    named = text(b"data") + array + text(b"labels") + listed
    return b"\x80\x02}(" + text(b"batch_label") + text(b"batch") + named + b"u."


def pickled(labels, pixels, protocol=2):
    return pickle.dumps({b"data": pixels, b"labels": labels.tolist()}, protocol)


def binary(folder):
    return write(folder / "cifar-10-batches-bin", CIFAR10)


def pickles(folder, make=pickled):
    made = {name: make(labels, pixels) for name, (labels, pixels) in BATCHES.items()}
    return write(folder / "cifar-10-batches-py", made)


def png(pixels):
    made = io.BytesIO()
    Image.fromarray(pixels.reshape(-1, 3, 1024).transpose(0, 2, 1)).save(made, "PNG")
    return made.getvalue()


def strips(folder):
    train = [int(x) for name, (y, _) in BATCHES.items() if name != "test_batch" for x in y]
    test = BATCHES["test_batch"][0].tolist()
    labels = {"train_lables.json": train, "test_lables.json": test}
    made = {f"{name}.png": png(pixels) for name, (_, pixels) in BATCHES.items()}
    return write(folder, made | {k: json.dumps(v).encode() for k, v in labels.items()})


def plain_idx(folder):
    return write(folder / "FashionMNIST" / "raw", FASHION)


def zipped_idx(folder):
    return write(folder, ARCHIVES["fashion_mnist"])


def subset(folder, name, train=20, test=10):
    """Write the first images of each split as the `.npz` of a subset."""
    if name == "cifar10":
        rows = np.frombuffer(CIFAR10["data_batch_1.bin"], np.uint8).reshape(BATCH, -1)[:train]
        test_rows = np.frombuffer(CIFAR10["test_batch.bin"], np.uint8).reshape(BATCH, -1)[:test]
        parts = [
            part
            for r in (rows, test_rows)
            for part in (r[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), r[:, 0])
        ]
    else:
        flat = [np.frombuffer(data, np.uint8) for data in FASHION.values()]
        parts = [flat[0][16:].reshape(-1, 28, 28)[:train], flat[1][8:][:train]]
        parts += [flat[2][16:].reshape(-1, 28, 28)[:test], flat[3][8:][:test]]
    keys = ("x_train", "y_train", "x_test", "y_test")
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}_subset.npz", **dict(zip(keys, parts, strict=True)))
    return folder


class Server:
    """Serves files from memory on 127.0.0.1; `faults` are taken one a request, then it behaves.

    A fault is a function of the handler and the content that answers in its own way; `asked` lists
    the path and the range of every request.
    """

    def __init__(self, files):
        self.files, self.faults, self.asked = dict(files), [], []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name, range_ = self.path.rpartition("/")[2], self.headers.get("Range")
                server.asked.append((name, range_))
                with contextlib.suppress(ConnectionError):
                    if server.faults:
                        return server.faults.pop(0)(self, server.files[name])
                    if name not in server.files:
                        return self.send_error(404)
                    serve(self, server.files[name])

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/sets"

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def serve(handler, data, honest=True, ranges=True, least=0):
    """Answer with the content, or with the range that is asked for."""
    asked = handler.headers.get("Range") if ranges else None
    first = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
    if asked and first >= len(data):
        return handler.send_error(416)
    handler.send_response(206 if asked else 200)
    handler.send_header("Content-Type", "application/gzip")
    if asked:
        handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
    handler.send_header("Content-Length", str(len(data) - first if honest else least))
    handler.end_headers()
    handler.wfile.write(data[first:])


def drop_after(count):
    """Promise everything, send some bytes and hang up."""

    def answer(handler, data):
        asked = handler.headers.get("Range")
        first = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - first))
        handler.end_headers()
        handler.wfile.write(data[first : first + count])

    return answer


def status(code, **headers):
    def answer(handler, _):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def ignores_ranges(handler, data):
    serve(handler, data, ranges=False)


def says_length(length):
    """Send everything under a wrong Content-Length."""
    return lambda handler, data: serve(handler, data, honest=False, least=length)


def other_file(content, kind="application/gzip"):
    def answer(handler, _):
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def other_range(handler, data):
    """Answer with the bytes from 0 on, whatever range is asked for."""
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes 0-{len(data) - 1}/{len(data)}")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def trickles(seconds, pieces=4):
    """Send everything in pieces with pauses between them."""

    def answer(handler, data):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        step = -(-len(data) // pieces)
        for first in range(0, len(data), step):
            handler.wfile.write(data[first : first + step])
            handler.wfile.flush()
            time.sleep(seconds)

    return answer
