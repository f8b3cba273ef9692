"""Options from a file: usdenoise.toml, or the table [tool.usdenoise] of a pyproject.toml."""

import difflib
import os
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from usdenoise.errors import OptionError

FILE_NAME, PROJECT_NAME, TABLE = "usdenoise.toml", "pyproject.toml", "[tool.usdenoise]"


def find_config(folder: Path) -> Path | None:
    """Return the usdenoise.toml of a folder, else its pyproject.toml if that has [tool.usdenoise], else None.

    Parameters
    ----------
    folder : Path
        Folder to look in; its parents are not searched.

    Raises
    ------
    OptionError
        If the pyproject.toml cannot be read.
    """
    own, project = folder / FILE_NAME, folder / PROJECT_NAME
    if os.path.isfile(own):
        return own
    return project if os.path.isfile(project) and _table(_parse(project)) is not None else None


def read_config(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Read the options of a configuration file.

    They are in the table [tool.usdenoise], or at the top level of a file without that table. Names are those of
    the command line without the leading dashes; dashes and underscores mean the same.

    Parameters
    ----------
    path : Path
        TOML file.
    known : collection of str
        Allowed names, with dashes.

    Returns
    -------
    dict from str to value
        Names, with dashes, and their values: strings, numbers, booleans, or lists of those.

    Raises
    ------
    OptionError
        If the file cannot be read, is not TOML, or has an unknown name or a value of a wrong type.
    """
    content = _parse(path)
    table = _table(content)
    options: dict[str, Any] = {}
    for key, value in (content if table is None else table).items():
        name = key.replace("_", "-")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0) or sorted(known)[:1]
            raise OptionError(f"{path} has the unknown option '{key}'; did you mean '{near[0]}'?")
        if name in options:
            raise OptionError(f"{path} has the option '{name}' twice, with - and with _; keep one of them")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str | int | float) for item in values):
            raise OptionError(
                f"{path} has a value for '{key}' that is neither text nor a number; write it as on the command line"
            )
        options[name] = value
    return options


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise OptionError(f"{path} cannot be read ({error.strerror}); check the path of --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} is not a TOML file ({error}); correct its syntax") from error


def _table(content: dict[str, Any]) -> dict[str, Any] | None:
    tool = content.get("tool")
    table = tool.get("usdenoise") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None
