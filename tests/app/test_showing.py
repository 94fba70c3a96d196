"""A report is opened by the real webbrowser module, in a browser that is a script, where there is a display."""

import sys

import pytest

from propersbi.app.showing import has_display, open_report


@pytest.mark.skipif(sys.platform != "linux", reason="displays of Linux")
def test_the_browser_is_called_where_there_is_a_display(tmp_path, monkeypatch):
    seen, browser, page = tmp_path / "seen", tmp_path / "browser", tmp_path / "report.html"
    browser.write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    browser.chmod(0o755)
    page.write_text("<p>")
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_display()
    assert not open_report(page)
    assert not seen.exists()
    monkeypatch.setenv("DISPLAY", ":7")
    assert open_report(page)
    assert seen.read_text().strip() == page.as_uri()
