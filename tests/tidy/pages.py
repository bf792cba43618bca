# SPDX-License-Identifier: Apache-2.0
"""What is read from Markdown pages: fenced blocks, links, headings, and the commands they name."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
_OTHER_NAMES = {"py", "python3", "pycon", "Python", "python-repl"}
_LAYERS = "errors|core|redaction|rules|config|store|sinks|engine|ops|client|testing|cli|web"
_MODULE = re.compile(rf"^(redrive\.)?(?P<path>({_LAYERS})(\.(?!py$)[A-Za-z_]\w*)+)$")
_FILE = re.compile(rf"^((src|tests|tools|docs|{_LAYERS})/[\w./-]+|[\w/]+/[\w/]+\.(py|sql))$")
_REASON = re.compile(r"^python no-run: \S.{8,}$")


@dataclass(frozen=True)
class Block:
    """One fenced block: where its text starts, what its fence says, and the text."""

    line: int
    info: str
    text: str


def blocks_in(text: str) -> list[Block]:
    """Return the fenced blocks, indented ones too."""
    found: list[Block] = []
    start, mark, indent, info = 0, "", "", ""
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if not mark and fence:
            start, mark, indent, info = number + 1, fence["mark"], fence["indent"], fence["info"].strip()
            body = []
        elif mark and fence and fence["mark"].startswith(mark) and not fence["info"].strip():
            found.append(Block(start, info, "\n".join(body) + "\n"))
            mark = ""
        elif mark:
            body.append(line.removeprefix(indent))
    return found


def prose_of(text: str) -> str:
    """Return the page without fenced blocks, inline code and comments."""
    kept = [line for line, is_code in _marked(text) if not is_code]
    return re.sub(r"<!--.*?-->|`[^`\n]*`", "", "\n".join(kept), flags=re.DOTALL)


def links_in(text: str) -> list[str]:
    return [found["target"] for found in _LINK.finditer(prose_of(text))]


def anchors_in(text: str) -> set[str]:
    """Return what can stand after `#` in a link to this page: headings as GitHub makes them, and explicit ids."""
    ids = set(re.findall(r'<a id="([^"]+)">', text))
    outside = "\n".join(line for line, is_code in _marked(text) if not is_code)
    for heading in re.findall(r"^#{1,6} +(.+?) *$", outside, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        ids.add(slug if slug not in ids else f"{slug}-1")
    return ids


def _marked(text: str) -> Iterator[tuple[str, bool]]:
    mark = ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if fence and not mark:
            mark = fence["mark"]
            yield line, True
        elif fence and fence["mark"].startswith(mark):
            mark = ""
            yield line, True
        else:
            yield line, bool(mark)


def broken_links(page: Path, text: str, root: Path) -> list[str]:
    """Complain about links to files, or headings, that are not there; links to other hosts are not followed."""
    found: list[str] = []
    for target in links_in(text):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page.resolve()
        if not other.exists() or not other.is_relative_to(root.resolve()):
            found.append(f"{target}: there is no such file")
        elif anchor and other.suffix == ".md" and anchor not in anchors_in(other.read_text(encoding="utf-8")):
            found.append(f"{target}: there is no such heading")
    return found


def odd_fences(text: str) -> list[str]:
    """Complain about Python that would not be run, or that says so without a reason."""
    found: list[str] = []
    for block in blocks_in(text):
        first = block.info.split(" ")[0]
        if first in _OTHER_NAMES:
            found.append(f"line {block.line}: call the block `python`, so that it is run")
        elif first == "python" and block.info != "python" and not _REASON.match(block.info):
            found.append(f"line {block.line}: write `python`, or `python no-run: why it cannot run`")
    return found


def unknown_modules(text: str, root: Path) -> list[str]:
    """Complain about modules and files of the package, named in inline code, that are not there (any more)."""
    found: list[str] = []
    for name in dict.fromkeys(re.findall(r"`([\w./]+)`", text)):
        if _FILE.match(name):
            places = (root / name, root / "src/redrive" / name)
            found += [] if any(place.exists() for place in places) else [f"{name}: there is no such file"]
        elif module := _MODULE.match(name):
            try:
                pkgutil.resolve_name(f"redrive.{module['path']}")
            except (ImportError, AttributeError):
                found.append(f"{name}: there is no such module or name")
    return found


def targets_in(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))


def unknown_commands(text: str, targets: set[str]) -> list[str]:
    """Complain about `make X`, in inline code or in a block of commands, where X is no target."""
    inline = re.findall(r"`make ([a-z][a-z0-9-]*)[^`]*`", text)
    shells = [block.text for block in blocks_in(text) if block.info in {"", "sh", "bash", "console", "shell"}]
    typed = [
        name
        for shell in shells
        for name in re.findall(r"^(?:\$ )?make ([a-z][a-z0-9-]*)", shell, re.MULTILINE)
    ]
    return [
        f"make {name}: there is no such target"
        for name in dict.fromkeys([*inline, *typed])
        if name not in targets
    ]
