"""Curves of a figure against a growing size, drawn as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Curve:
    """One picture. ``panels`` maps the label of a vertical axis to its lines, each with a value per point of ``x``.

    ``logarithmic`` is about the horizontal axis. Points that are texts are drawn at equal distances.
    """

    name: str
    title: str
    x_label: str
    x: tuple[float | str, ...]
    panels: Mapping[str, Mapping[str, Sequence[float]]]
    logarithmic: bool = False


def draw(curve: Curve, folder: Path) -> Path:
    """Write the picture; the same curve gives the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": curve.name, "svg.fonttype": "none", "font.family": "sans-serif"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(curve.panels), figsize=(4.2 * len(curve.panels), 3.2), squeeze=False)
    for axis, (label, lines) in zip(axes[0], curve.panels.items(), strict=True):
        for name, values in lines.items():
            axis.plot(list(curve.x), list(values), marker="o", label=name)
        axis.set_ylim(0, 1.15 * max(max(values) for values in lines.values()) or 1)
        axis.set_xlabel(curve.x_label)
        axis.set_ylabel(label)
        axis.grid(visible=True, alpha=0.3)
        if curve.logarithmic:
            axis.set_xscale("log")
        if len(lines) > 1:
            axis.legend()
    figure.suptitle(curve.title)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{curve.name}.svg"
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "Counterseal"})
    pyplot.close(figure)
    return path
