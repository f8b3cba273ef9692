"""Arrays of Dask, which are made chunk by chunk when they are needed."""

import sys
from typing import Any, TypeGuard


def is_dask_array(value: Any) -> TypeGuard[Any]:
    """Return whether a value is a Dask array. Nothing is imported: who has one has imported Dask."""
    arrays = sys.modules.get("dask.array")
    return arrays is not None and isinstance(value, arrays.Array)
