"""Phrases of translated prose, British spelling, and private words: none in code, messages, help or docs."""

import functools
import re
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent.parent
PLACES = "src docs examples benchmarks scripts README.md README.zh-CN.md Makefile pyproject.toml"
PERCENT = r"(?<=[0-9}]) %(?!\d)(?! ?[(\d{}])"
INSTEAD = {
    # Patterns of translated prose.
    r"\b(is|are|was|were|be|been|being) told\b|\b(tells?|told) of\b": "is reported; is notified",
    r"\b(go(es|ing)?|went) on\b(?! a )": "continue, resume",
    r"(?<!there )\bis no (?!longer|more|less|faster|slower|older|newer|better|one\b)[a-z]": "is not a …",
    r"(?<!not )\bso (often|long|many)\b(?!( [\w'-]+){0,5} that\b)(?! as\b)": "N times, this many",
    r"\ban? ([\w-]+ ){1,3}of (its|their|our|your) own\b(?! [a-z])": "its own …, a separate …",
    r"\bh[eo]ld(s|ing)? against\b": "compare with",
    r"\b(lies|stands) in\b(?! for| between| the way| front)": "is in, is stored in",
    r"\b(is|are) not there\b": "does not exist, is missing",
    r"\bcounts? for nothing\b": "is ignored",
    r"\bin turn with\b": "in order with",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\bcomes? that way\b|\bgoes away\b": "is received; leaves",
    r"\bwhole numbers?\b": "integer",
    r"\bonly meet\b|\branks in step\b": "barrier-only ranks synchronize",
    r"\buncoupled (ranks|ones)\b": "independent ranks",
    PERCENT: "87%",
    # American spelling.
    r"(colou|favou|flavou|behaviou|neighbou|honou)r|\blicence|labelled(?!by)|\b(grey|centre|towards)\b|"
    r"\b(initial|final|normal|synchron|summar|optim|organ|recogn|regular|serial)is(e|ing|ation)": "-or, -ize",
    # Words with another meaning, or none.
    r"\bcomes? along\b": "is bundled",
    r"\bwhere we stand\b": "if run inside one",
    r"\bAway with it\b": "Clean up",
    r"\ban own\b": "its own",
    r"\b(stewards?|wardens?|keepers?|pure rooms?|floors|crowded|at odds|manners?|parting|departures?|"
    r"wished|twins?)\b|"
    r"\b(put up with|what a GPU is|opens? the registry|plays? them all)\b": "the field's word",
    r"\btorchrun's words?\b": "torchrun-compatible",
    r"\blanes?\b": "stream; events",
    "how close to linear it scales|it says why not|can be shared out|leave or come\\b": "see the README",
    "explained host by host|reduced where it lies": "reported per host; reduced in place",
    "离线性": "距离理想线性扩展还差多少",
    "带着故障训练": "故障不中断训练",
    "悄悄退回": "静默退化为单节点运行",
    "与众不同": "异常主机",
    "安静的(机器|主机)": "空闲且无干扰的机器",
    "成对(交换|良好|消息)|：成对": "点对点",
    "您": "你",
}
EXCEPT = {
    r"\blanes?\b": ("src/ringleader/fabric/", "docs/reference/checks.md"),  # PCI links have lanes
    PERCENT: ("src/ringleader/report/templates/",),  # Jinja
}
"""Where a phrase is right."""


@functools.cache
def lines() -> list[tuple[str, int, str]]:
    """Return (path, number, text) of all lines that people read, and of the code between them."""
    found = []
    for place in PLACES.split():
        path = TOP / place
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    return [
        (str(path.relative_to(TOP)), number, line.strip())
        for path in found
        if path.suffix in (".py", ".md", ".toml", ".sh", "") and path.is_file()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
    ]


@pytest.mark.parametrize("pattern", INSTEAD)
def test_phrases_are_not_used(pattern: str) -> None:
    search = re.compile(pattern, re.IGNORECASE).search
    is_right = EXCEPT.get(pattern, ("nowhere",))
    wrong = [
        f"{path}:{number}: {line[:100]}"
        for path, number, line in lines()
        if search(line) and not path.startswith(is_right) and not (pattern == PERCENT and "zh-CN" in path)
    ]
    assert not wrong, f"write: {INSTEAD[pattern]}\n" + "\n".join(wrong)
