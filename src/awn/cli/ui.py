"""`awn ui`: a local page that lists runs, opens their reports and compares some of them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from awn.cli.output import out
from awn.errors import ArgumentError


def ui(
    folder: Annotated[Path, typer.Argument(help="Folder that holds runs, at any depth.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port on this machine; 0 takes any free one.", min=0, max=65535)] = 8017,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """List the runs in a folder on a local page, with their reports. Ctrl-C ends it.

    Example:  awn ui runs --port 8017
    """
    import webbrowser

    from awn.report.server import RunServer

    try:
        server = RunServer(folder, port)
    except OSError as error:
        raise ArgumentError(f"--port {port} cannot be used: {error.strerror}. Choose another one, or 0.") from None
    with server:
        out.print(f"Runs in {folder}: {server.url} (Ctrl-C ends)", highlight=False, markup=False, soft_wrap=True)
        if open_browser:
            webbrowser.open(server.url)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
