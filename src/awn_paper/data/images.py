"""Images: MNIST, its permuted version read as sequences, CIFAR-10 and CIFAR-100. Pixels stay bytes."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import torch
from torch import Tensor

from awn.errors import DataError
from awn.training.data import Data
from awn_paper.data.dataset import Dataset, stratified
from awn_paper.data.source import Source

_MNIST_HOME = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_CIFAR_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"


def _mnist_file(name: str, sha256: str) -> Source:
    return Source(f"mnist/{name}.gz", _MNIST_HOME, sha256, f"{_MNIST_HOME}{name}.gz")


def _cifar_file(archive: str, member: str, md5: str) -> Source:
    return Source(member, _CIFAR_HOME, url=f"https://www.cs.toronto.edu/~kriz/{archive}", member=member, md5=md5)


_cifar10 = functools.partial(_cifar_file, "cifar-10-binary.tar.gz", md5="c32a1d4ab5d03f1284b67883e8d87530")
_cifar100 = functools.partial(_cifar_file, "cifar-100-binary.tar.gz", md5="03b5dce01913d631647c71ecec9e9cb8")

MNIST = {
    "train images": _mnist_file(
        "train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "train labels": _mnist_file(
        "train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
    ),
    "test images": _mnist_file(
        "t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "test labels": _mnist_file(
        "t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
}
CIFAR10_TRAIN = [_cifar10(f"cifar-10-batches-bin/data_batch_{part}.bin") for part in range(1, 6)]
CIFAR10_TEST = [_cifar10("cifar-10-batches-bin/test_batch.bin")]
CIFAR100_TRAIN = [_cifar100("cifar-100-binary/train.bin")]
CIFAR100_TEST = [_cifar100("cifar-100-binary/test.bin")]

_VALIDATION = 1 / 6  # of what is not for testing, as in the paper


def load_mnist() -> Dataset:
    """MNIST, with its own test part."""
    train = Data(_idx(MNIST["train images"])[:, None], _idx(MNIST["train labels"]).long())
    test = Data(_idx(MNIST["test images"])[:, None], _idx(MNIST["test labels"]).long())
    return _dataset("MNIST", train, test, classes=10)


def load_mnist_pixels() -> Dataset:
    """MNIST as a table of 784 columns between 0 and 1, for perceptrons."""
    plain = load_mnist()
    assert plain.test is not None
    train, validation, test = (
        Data(part.x.flatten(1).float() / 255, part.y) for part in (plain.train, plain.validation, plain.test)
    )
    return Dataset("MNIST pixels", train, validation, test, inputs=784, outputs=10)


def load_pmnist() -> Dataset:
    """MNIST with its 784 pixels in one random order, the same for all, read as 28 steps of 28."""
    plain = load_mnist()
    order = torch.randperm(784, generator=torch.Generator().manual_seed(0))
    assert plain.test is not None
    train, validation, test = (
        Data(part.x.flatten(1)[:, order].unflatten(1, (28, 28)), part.y)
        for part in (plain.train, plain.validation, plain.test)
    )
    return Dataset("PMNIST", train, validation, test, inputs=28, outputs=10)


def load_pmnist_part() -> Dataset:
    """The same with a sixth of the images for training and validation, 10,000 in all, and the whole test part."""
    return _part(load_pmnist(), 1 / 6, "PMNIST (10,000 images)")


def load_cifar10() -> Dataset:
    """CIFAR-10 in its binary layout: a byte for the class, then the red, green and blue planes."""
    return _dataset("CIFAR10", _cifar(CIFAR10_TRAIN, 1), _cifar(CIFAR10_TEST, 1), classes=10)


def load_cifar10_part() -> Dataset:
    """The same with a fifth of the images for training and validation, 10,000 in all, and the whole test part."""
    return _part(load_cifar10(), 1 / 5, "CIFAR10 (10,000 images)")


def load_cifar100() -> Dataset:
    """CIFAR-100 in its binary layout: two bytes for the classes, of which the second, finer one counts."""
    return _dataset("CIFAR100", _cifar(CIFAR100_TRAIN, 2), _cifar(CIFAR100_TEST, 2), classes=100)


def _dataset(name: str, known: Data, test: Data, classes: int) -> Dataset:
    train, validation = (known.rows(rows) for rows in stratified(known.y, (1 - _VALIDATION, _VALIDATION), seed=0))
    return Dataset(name, train, validation, test, inputs=known.x.shape[1], outputs=classes)


def _part(whole: Dataset, share: float, name: str) -> Dataset:
    train, validation = (
        part.rows(stratified(part.y, (share, 1 - share), seed=0)[0]) for part in (whole.train, whole.validation)
    )
    return dataclasses.replace(whole, name=name, train=train, validation=validation)


def _idx(source: Source) -> Tensor:
    """A file of bytes in the idx format: two zeros, the type (8: bytes), the dimensions' number and sizes, the data."""
    content = source.read()
    dimensions = content[3]
    if content[:3] != b"\x00\x00\x08":
        raise DataError(f"{source.path} is not an idx file of bytes.")
    sizes = np.frombuffer(content, ">u4", count=dimensions, offset=4).astype(int)
    pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
    return torch.from_numpy(pixels.copy()).reshape(sizes.tolist())


def _cifar(sources: list[Source], labels: int) -> Data:
    record = labels + 3 * 32 * 32
    contents = [source.read() for source in sources]
    for source, content in zip(sources, contents, strict=True):
        if not content or len(content) % record:
            raise DataError(f"{source.path} has {len(content)} bytes, which are no images of {record} bytes each.")
    rows = torch.from_numpy(np.frombuffer(b"".join(contents), np.uint8).copy()).reshape(-1, record)
    return Data(rows[:, labels:].reshape(-1, 3, 32, 32), rows[:, labels - 1].long())
