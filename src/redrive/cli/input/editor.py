# SPDX-License-Identifier: Apache-2.0
"""A text in somebody's own editor: a file for its owner alone, gone again when the editor has ended."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from redrive.errors import ConfigurationError


def edited(text: str, editor: str) -> str:
    """Return what somebody has made of a text; refuse an editor that cannot be started, or says that it failed."""
    # mkdtemp and not only mkstemp: what the editor puts beside the file (swap files, backups) is nobody else's either.
    with tempfile.TemporaryDirectory(prefix="redrive-") as folder:
        path = Path(folder) / "value.json"
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
        try:
            command = [*shlex.split(editor), str(path)]
            subprocess.run(command, check=True)  # noqa: S603 - whoever types the command chooses their editor.
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise ConfigurationError(
                field="--editor",
                value=editor,
                rule="did not edit the value",
                fix=f"{error}; nothing was changed.",
            ) from error
