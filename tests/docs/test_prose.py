"""Words that the field does not use, or not for this: they do not return, in code, messages or docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent.parent
PLACES = (
    "src",
    "docs",
    "examples",
    "benchmarks",
    "scripts",
    "README.md",
    "README.zh-CN.md",
    "Makefile",
    "pyproject.toml",
)
INSTEAD = {
    r"(?<!there )\bis no (file|directory|size|number|program|word)\b": "is not a …",
    r"\bcomes? along\b": "is bundled",
    r"\bwhere we stand\b": "if run inside one",
    r"\bAway with it\b": "Clean up",
    r"\ban own\b": "its own",
    r"\btorchrun's words?\b": "torchrun-compatible",
    r"\bput up with\b": "tolerate",
    r"\bwhat a GPU is\b": "GPU resource name",
    r"\bopens? the registry\b": "pull secret",
    r"\bplays? them all\b": "all hosts share one machine",
    r"\bstewards?\b": "progress thread",
    r"\bwardens?\b": "rank_agent_loop",
    r"\bkeepers?\b": "mpirun supervisor",
    r"\bpure rooms?\b": "pure module",
    r"\bfloors\b": "layers",
    r"\bcrowded\b": "oversubscribed",
    r"\bat odds\b": "conflicts",
    r"\bmanners?\b": "way; configuration",
    r"\bparting\b": "shutdown",
    r"\bdepartures?\b": "end; liveness",
    r"\blanes?\b": "stream; events",
    r"\bwished\b": "requested",
    r"\btwins?\b": "duplicate",
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
EXCEPT = {r"\blanes?\b": ("src/ringleader/fabric/", "docs/reference/checks.md")}
"""Where a word is the field's: PCI links have lanes."""


def files() -> list[Path]:
    found = []
    for place in PLACES:
        path = TOP / place
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    return [path for path in found if path.suffix in (".py", ".md", ".toml", ".sh", "") and path.is_file()]


@pytest.mark.parametrize("pattern", INSTEAD)
def test_private_words_do_not_come_back(pattern: str) -> None:
    wrong = []
    for path in files():
        if str(path.relative_to(TOP)).startswith(EXCEPT.get(pattern, "nowhere")):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if re.search(pattern, line, re.IGNORECASE):
                wrong.append(f"{path.relative_to(TOP)}:{number}: {line.strip()[:100]}")
    assert not wrong, f"write: {INSTEAD[pattern]}\n" + "\n".join(wrong)
