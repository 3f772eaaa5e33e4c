"""The model card of an imported model: where it came from, and what was checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from regard.version import __version__

if TYPE_CHECKING:
    from regard.interop.importing import Imported


def write_card(imported: Imported, storage: str, difference: float | None) -> str:
    """Return the text of README.md; `difference` is the largest one that a comparison with transformers found."""
    info = imported.info["imported"]
    files = "\n".join(f"| {name} | {entry['size']:,} | {entry['sha256']} |" for name, entry in info["files"].items())
    settings = "\n".join(f"| {name} | {value} |" for name, value in imported.config.to_dict().items())
    count = sum(math.prod(shape) for shape in imported.table.ours.values())
    parts = [
        f"# {info['source']}",
        f"An imported model of the family {imported.family}, {count:,} parameters, stored as {storage}. "
        f"regard {__version__} imported it; the weights were trained by others.",
        f"## Source\n\n| file | bytes | sha256 |\n|---|---|---|\n{files}",
    ]
    if imported.notes:
        parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in imported.notes))
    if difference is not None:
        parts.append(
            "## Comparison\n\nThe largest difference of an output from transformers in float32, before the weights "
            f"were stored as {storage}: {difference:.1e}."
        )
    parts.append(f"## Settings\n\n| setting | value |\n|---|---|\n{settings}")
    if licence := imported.folder.license_text():
        parts.append(f"## License\n\n```\n{licence.replace('```', '')}\n```")
    return "\n\n".join(parts) + "\n"
