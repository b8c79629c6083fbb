"""Weights inside an ONNX file, read from its protobuf bytes: the serving environment has no ``onnx`` package.

Field numbers are those of onnx.proto3: ModelProto.graph 7; GraphProto.node 1, .initializer 5; NodeProto.attribute 5;
AttributeProto.t 5; TensorProto.data_type 2, .float_data 4, .name 8, .raw_data 9, .double_data 10, .data_location 14.
"""

from collections.abc import Iterator

import numpy as np

_FLOAT_TYPES = {1: "<f4", 10: "<f2", 11: "<f8"}
_Field = tuple[int, int | memoryview]


def float_weights(model: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, flat values) of every floating-point initializer and constant of the main graph.

    Raises ValueError where the bytes are no protobuf message or weights lie in another file.
    """
    for graph in _messages(memoryview(model), 7):
        for tensor in _messages(graph, 5):
            yield from _floats(tensor)
        for node in _messages(graph, 1):
            for attribute in _messages(node, 5):
                for tensor in _messages(attribute, 5):
                    yield from _floats(tensor)


def _floats(tensor: memoryview) -> Iterator[tuple[str, np.ndarray]]:
    fields = dict(_fields(tensor))
    name = bytes(_buffer(fields.get(8, memoryview(b"")))).decode("utf-8", "replace")
    if fields.get(14):
        raise ValueError(f"tensor {name!r} keeps its data in another file")
    kind = fields.get(2)
    if not isinstance(kind, int) or kind not in _FLOAT_TYPES:
        return
    if 9 in fields:
        yield name, np.frombuffer(_buffer(fields[9]), _FLOAT_TYPES[kind])
    elif 4 in fields:
        yield name, np.frombuffer(_buffer(fields[4]), "<f4")
    elif 10 in fields:
        yield name, np.frombuffer(_buffer(fields[10]), "<f8")


def _buffer(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value


def _messages(message: memoryview, number: int) -> Iterator[memoryview]:
    return (value for found, value in _fields(message) if found == number and not isinstance(value, int))


def _fields(message: memoryview) -> Iterator[_Field]:
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        wire = tag & 7
        if wire == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        if wire == 2:
            length, position = _varint(message, position)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {position}")
        if position + length > len(message):
            raise ValueError(f"a field ends at byte {position + length} of {len(message)}")
        yield tag >> 3, message[position : position + length]
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message):
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number runs past the end")
