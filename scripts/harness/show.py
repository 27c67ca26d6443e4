"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows; the first column reads from the left, the others are figures."""
    made = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    console = Console()
    if not console.is_terminal:
        # A pipe or a log has no width of its own: nothing is cut there.
        console.width = max(console.width, console.measure(made).maximum, 200)
    console.print(made)
