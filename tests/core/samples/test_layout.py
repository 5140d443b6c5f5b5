"""The layout, read back by the safetensors library."""

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.samples.layout import (
    TYPE_BYTES,
    Tensor,
    in_order,
    parts_of,
    render_header,
)
from tests.support.samples import whole_of

NUMPY = {"I64": "<i8", "F64": "<f8", "I32": "<i4", "U8": "u1"}


def tensor_of(name: str, kind: str, dimensions: tuple[int, ...]) -> Tensor:
    count = int(np.prod(dimensions))
    data = (np.arange(count) % 251).astype(NUMPY[kind]).tobytes()
    return Tensor(name=name, type=kind, dimensions=dimensions, parts=(data,))


@given(
    st.dictionaries(
        st.text("abc_.é0", min_size=1, max_size=5),
        st.tuples(
            st.sampled_from(sorted(TYPE_BYTES)), st.lists(st.integers(0, 4), max_size=3).map(tuple)
        ),
        max_size=6,
    )
)
@settings(derandomize=True, deadline=None)
def test_the_library_reads_what_was_laid_out(wanted: dict[str, tuple[str, tuple[int, ...]]]):
    tensors = [tensor_of(name, kind, shape) for name, (kind, shape) in wanted.items()]
    found = safetensors.numpy.load(whole_of(parts_of(in_order(tensors))))
    assert {n: (a.dtype, a.shape) for n, a in found.items()} == {
        n: (np.dtype(NUMPY[kind]), shape) for n, (kind, shape) in wanted.items()
    }
    for tensor in tensors:
        assert found[tensor.name].tobytes() == whole_of(tensor.parts)


@pytest.mark.parametrize("order", [("U8", "I32", "I64"), ("I32", "F64", "U8"), ("U8", "U8", "I64")])
def test_every_tensor_is_aligned(order: tuple[str, ...]):
    tensors = in_order([tensor_of(str(at), kind, (3,)) for at, kind in enumerate(order)])
    at = len(render_header(tensors))
    for tensor in tensors:
        assert at % TYPE_BYTES[tensor.type] == 0
        at += tensor.size_bytes


def test_a_tensor_of_any_size_has_its_place_in_the_header():
    header = render_header([Tensor(name="x", type="I32", dimensions=(1 << 40,), parts=())])
    assert b'"data_offsets":[0,4398046511104]' in header
    assert len(header) % 8 == 0
