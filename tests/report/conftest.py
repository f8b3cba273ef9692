"""What matplotlib draws, for tests that look at the values and texts of a picture."""

from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.image import AxesImage


@pytest.fixture
def figure_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Figure]:
    """Call a function that returns a picture, and return the figure of the last image that it drew."""
    drawn: list[AxesImage] = []
    draw = AxesImage.draw

    def recorded(image: AxesImage, *arguments: Any, **settings: Any) -> None:
        drawn.append(image)
        draw(image, *arguments, **settings)

    def figure_of(picture: Callable[..., bytes], *arguments: Any, **settings: Any) -> Figure:
        assert picture(*arguments, **settings)
        figure = drawn[-1].figure
        assert isinstance(figure, Figure)
        return figure

    monkeypatch.setattr(AxesImage, "draw", recorded)
    return figure_of
