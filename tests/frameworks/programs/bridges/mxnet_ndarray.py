"""MXNet's first kind of arrays."""

import mxnet as mx

import ringleader.mxnet as hvd
from bridges.bridge import Bridge as Base


class Bridge(Base):
    hvd = hvd
    dtypes = ("bool", "uint8", "int8", "float16", "int32", "float32", "int64", "float64")
    operations = Base.operations | {"allreduce_", "broadcast_", "grouped_allreduce_"}

    def tensor(self, array):
        with mx.util.np_shape():  # else MXNet makes no arrays without elements
            return mx.nd.array(array, dtype=array.dtype)

    def array(self, tensor):
        assert type(tensor) is mx.nd.NDArray
        return tensor.asnumpy()

    def in_place(self, operation, array, **words):
        tensor = self.tensor(array)
        assert getattr(hvd, operation)(tensor, **words) is tensor
        return self.array(tensor)
