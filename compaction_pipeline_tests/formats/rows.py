"""Rows of a few types, and their schema."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("s", pa.string()),
        ("d", pa.decimal128(30, 2)),
        ("l", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.float64())),
    ]
)
_ELEMENT = st.fixed_dictionaries({"x": st.one_of(st.none(), st.integers(0, 1)), "y": st.text("a", max_size=2)})
ROW = st.fixed_dictionaries(
    {
        "n": st.one_of(st.none(), st.integers(-3, 3)),
        "s": st.one_of(st.none(), st.text("ab\0é", max_size=20)),
        "d": st.one_of(st.none(), st.decimals(-2, 2, places=2)),
        "l": st.one_of(
            st.none(),
            st.lists(
                st.one_of(st.none(), _ELEMENT),
                max_size=3,
            ),
        ),
        "m": st.one_of(st.none(), st.lists(st.tuples(st.text("k", max_size=2), st.one_of(st.none(), st.floats(0, 1))), max_size=2)),
    }
)
