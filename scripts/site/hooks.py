"""What the site needs besides mkdocs' own: pages from outside of docs/, and links that lead there.

Documents are written to be read in the repository as well. A link to a file that the site has, wherever it is
stored, leads to its page; one to any other file of the repository stays as its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
OUTER = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "README.md": "introduction.md",
    "README.zh-CN.md": "introduction.zh-CN.md",
}
"""Documents outside of docs/, and the pages that they become."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
PICTURE = re.compile(r'(<img src="|!\[[^\]]*\]\()docs/')


def on_files(files: Files, config: Any) -> Files:
    """Add the documents from outside of docs/."""
    for source, page in OUTER.items():
        if (ROOT / source).exists():
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    source = next((one for one, made in OUTER.items() if made == uri), f"docs/{uri}")
    here = posixpath.dirname(uri)

    def linked(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = OUTER.get(path, path.removeprefix("docs/"))
        if path in ("docs", "docs/README.md"):
            place = "README.md"
        if path == "docs/decisions":
            place = "decisions/README.md"
        if files.get_file_from_path(place) is None:
            return text  # a file of the repository that is not a page: what is said of it stays
        return f"[{text}]({posixpath.relpath(place, here or '.')}{anchor})"

    page.meta["translation"] = _translation(uri, files)
    markdown = PICTURE.sub(lambda match: match[1], markdown) if uri in OUTER.values() else markdown
    return LINK.sub(linked, markdown)


def _translation(uri: str, files: Files) -> Any:
    """Return the page in the other language, None where there is none."""
    chinese = uri.endswith(".zh-CN.md")
    other = uri.replace(".zh-CN.md", ".md") if chinese else uri.replace(".md", ".zh-CN.md")
    found = files.get_file_from_path(other)
    return None if found is None else {"url": found.url, "name": "English" if chinese else "中文"}
