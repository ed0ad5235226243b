"""Hooks of mkdocs: pages that lie outside docs/, and the links to them.

README.md, CONTRIBUTING.md and the other documents at the root of the repository are read where they lie, on the site
too. Their links, and the links to them, are those of the repository; this file turns them into those of the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
#: Documents at the root of the repository, and the pages of the site that show them.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the documents of the root to the pages."""
    for document, page in PAGES.items():
        if (ROOT / document).is_file():
            text = (ROOT / document).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point the links of a page at the pages of the site."""
    return LINK.sub(lambda link: link[1] + site_link(link[2], page.file.src_uri) + link[3], markdown)


def site_link(link: str, page: str) -> str:
    """A link of the repository as one of the site.

    >>> site_link("docs/tables.md", "index.md"), site_link("../CONTRIBUTING.md#rooms", "glossary.md")
    ('tables.md', 'contributing.md#rooms')
    >>> site_link("../../README.md", "howto/prior.md"), site_link("../tables.md", "howto/prior.md")
    ('../index.md', '../tables.md')
    """
    target, hash_, anchor = link.partition("#")
    if page in PAGES.values():
        return PAGES.get(target, target.removeprefix("docs/")) + hash_ + anchor
    root = "../" * (page.count("/") + 1)
    if target.startswith(root) and target.removeprefix(root) in PAGES:
        return root.removeprefix("../") + PAGES[target.removeprefix(root)] + hash_ + anchor
    return link
