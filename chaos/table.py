"""The command ``python -m chaos.table 1.json 2.json``: reports side by side, as in docs/reliability.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SECTIONS = (
    ("injected", "faults injected"),
    ("requests_hit", "requests that an outside system failed"),
    ("exits", "processes that ended by themselves, and were started again"),
    ("people", "what people and systems outside did"),
    ("cases", "runs started, by workflow"),
    ("figures", "what Counterseal did"),
)


def table(reports: list[dict[str, Any]]) -> str:
    """One column per report, one section per kind of count."""
    heads = [f"seed {report['seed']}, {report['queue']}" for report in reports]
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    for section, title in SECTIONS:
        names = sorted({name for report in reports for name in report[section]})
        if names:
            lines.append(f"| **{title}** |" + " |" * len(heads))
        for name in names:
            counts = " | ".join(str(report[section].get(name, 0)) for report in reports)
            lines.append(f"| {name} | {counts} |")
    settled = " | ".join(f"{report['settled_after']} s" for report in reports)
    broken = " | ".join(str(len(report["violations"])) for report in reports)
    lines += ["| **verdict** |" + " |" * len(heads), f"| settled after the last fault | {settled} |"]
    lines.append(f"| promises broken | {broken} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([json.loads(Path(name).read_text()) for name in sys.argv[1:]]))
