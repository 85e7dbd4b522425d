"""Write the tables of the results pages from benchmarks/results/*.json.

    python benchmarks/results_page.py            # rewrite the tables in README.md and docs/
    python benchmarks/results_page.py --check    # name the tables that differ; exit code 1

A page has a marker where a table belongs, `<!-- table: NAME -->`, and `<!-- end of table -->`
behind it. What is between them is replaced; all else is the page's own text. A new table is a
function in benchmarks/pages with `@named("NAME")`.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?P<head><!-- table: (?P<name>[^\n]+?) -->\n)(?P<body>.*?)(?P<end><!-- end of table -->)",
    re.DOTALL,
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, say what differs")
    options = parser.parse_args()
    stale = []
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = filled(old)
        if new != old:
            stale.append(page.relative_to(ROOT).as_posix())
            if not options.check:
                page.write_text(new, encoding="utf-8")
    if options.check and stale:
        sys.exit(f"tables differ from benchmarks/results in {', '.join(stale)}: run this program")


def pages() -> list[Path]:
    """Return the pages that may have markers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    """Return a page's text with every table made anew."""

    def made(found: re.Match[str]) -> str:
        return f"{found['head']}\n{table_named(found['name'])}\n{found['end']}"

    return BLOCK.sub(made, text)


def table_named(name: str) -> str:
    for path in sorted((ROOT / "benchmarks" / "pages").glob("*.py")):
        importlib.import_module(f"pages.{path.stem}")
    from pages.common import TABLES

    if name not in TABLES:
        sys.exit(f"no table {name!r} (there are: {', '.join(sorted(TABLES))})")
    return TABLES[name]()


if __name__ == "__main__":
    main()
