"""The program that checks one file in a process of its own: `python -m regard.exercises.child FILE RESULT LIMIT`.

It writes the verdict as JSON to RESULT. After LIMIT seconds it writes the traceback of the moment and ends.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path


def main(file: str, result: str, limit: str) -> None:
    """Check the file and write the verdict; the clock starts once PyTorch is there."""
    import torch

    from regard.exercises.checking import check_file

    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(file).parent))
    with open(f"{result}.stuck", "w", encoding="utf-8", newline="\n") as stuck:
        faulthandler.dump_traceback_later(float(limit), exit=True, file=stuck)
        try:
            verdict = check_file(Path(file))
        finally:  # also when the student's code ends the process
            faulthandler.cancel_dump_traceback_later()
    Path(result).write_text(json.dumps(verdict.to_dict()), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
