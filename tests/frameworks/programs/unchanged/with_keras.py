"""Keras' fit with the backend of KERAS_BACKEND, on a rank's own data. Nothing here knows of Ringleader."""

import sys
import time

import keras
import numpy as np


class Input(keras.utils.PyDataset):
    """Batches that take a while to read."""

    def __len__(self) -> int:
        """Return the number of batches."""
        return int(sys.argv[1])

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return one of them."""
        time.sleep(0.02)
        generator = np.random.default_rng(index)
        return generator.random((16, 64), dtype="float32"), generator.integers(10, size=(16,))


model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, "relu"), keras.layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(Input(), epochs=2, verbose=0)
