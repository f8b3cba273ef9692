"""What matplotlib draws, for tests that look at the values and texts of a picture."""

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def figure_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Figure]:
    """Call a function that returns a picture, and return the figure that it saved."""
    saved: list[Figure] = []
    save = Figure.savefig

    def recorded(figure: Figure, *arguments: Any, **settings: Any) -> None:
        saved.append(figure)
        save(figure, *arguments, **settings)

    def figure_of(picture: Callable[..., bytes], *arguments: Any, **settings: Any) -> Figure:
        assert picture(*arguments, **settings)
        return saved[-1]

    monkeypatch.setattr(Figure, "savefig", recorded)
    return figure_of
