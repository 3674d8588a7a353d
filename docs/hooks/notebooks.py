"""Notebooks as pages: every docs/notebooks/*.ipynb becomes Markdown with the outputs that are stored in it.

The tests run the notebooks and compare what they print with what is stored, so a page cannot go stale.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    for path in sorted(Path(config.docs_dir, "notebooks").glob("*.ipynb")):
        text, pictures = as_markdown(path)
        for name, data in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=data))
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
    return files


def as_markdown(path: Path) -> tuple[str, dict[str, bytes]]:
    """The page, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![what the cell above draws]({name})")
            else:
                printed = output.get("text") or data.get("text/plain", "")
                parts.append(f'<div class="output" markdown>\n```text\n{printed.rstrip()}\n```\n</div>')
    parts.append(f"*This page is the notebook `docs/notebooks/{path.name}`.*")
    return "\n\n".join(parts) + "\n", pictures
