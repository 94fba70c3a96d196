"""Opening a report in the browser, where there is somebody to see it."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

__all__ = ["has_display", "open_report"]


def has_display() -> bool:
    """Whether a window can be opened: on Linux an X or Wayland display; elsewhere, unless it is a remote shell."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_report(path: Path) -> bool:
    """Open the page in the user's browser; whether that was possible. It never fails."""
    try:
        return has_display() and webbrowser.open(path.resolve().as_uri())
    except (OSError, webbrowser.Error):
        return False
