"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", help="Print only results and errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object.")]
