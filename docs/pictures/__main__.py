"""Pictures of recorded runs: `python -m docs.pictures` writes docs/NAME-light.svg and NAME-dark.svg."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {
        "bg": "#ffffff",
        "ink": "#1b1f24",
        "dim": "#57606a",
        "grid": "#dde1e7",
        "a": "#9cc4e8",
        "b": "#f0b48a",
        "g": "#c25b2b",
        "gi": "#ffffff",
        "k": "#c25b2b",
    },
    "dark": {
        "bg": "#131416",
        "ink": "#e6e9ed",
        "dim": "#9aa4b0",
        "grid": "#2d343d",
        "a": "#23527f",
        "b": "#7a4526",
        "g": "#e58a5c",
        "gi": "#131416",
        "k": "#e58a5c",
    },
}
WIDTH, LANE, LEFT, TOP = 720, 26, 46, 34
FONT = 'font-family="system-ui,sans-serif" font-size="12"'


class Gang:
    """The picture of an eight-node job that collects its nodes, from a recorded run on ten nodes."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        recorded = run["bars"]
        rows = zip(*(recorded[key] for key in ("lane", "user", "job", "start", "end")), strict=True)
        names = [
            (recorded["lanes"][lane], recorded["users"][user], recorded["jobs"][job][1], start, end)
            for lane, user, job, start, end in rows
        ]
        first = min(start for *_, start, _ in names)
        self.bars = [(lane, user, job, start - first, (end or 0) - first) for lane, user, job, start, end in names]
        gang = [bar for bar in self.bars if bar[2] == "wide"]
        self.starts = min(bar[3] for bar in gang)
        self.last = max(max(bar[4] for bar in gang) + 3, 48)
        self.joins = next(at for at, _, text in run["seen"] if "first in line" in (text or ""))

        def order(lane: str) -> Any:
            return min(bar[3] if bar[2] == "wide" else 0 for bar in self.bars if bar[0] == lane) or lane

        self.lanes = sorted({bar[0] for bar in self.bars}, key=order)
        self.height = TOP + LANE * len(self.lanes) + 46

    def at(self, seconds: float) -> float:
        """Return where a time is drawn."""
        return float(LEFT + seconds * (WIDTH - LEFT - 8) / self.last)

    def draw(self, color: Mapping[str, str]) -> str:
        """Return the picture in one theme."""
        floor = TOP + LANE * len(self.lanes)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" role="img" aria-labelledby="t d" {FONT}>'
            f'<title id="t">A gang of eight nodes collects its nodes</title><desc id="d">Ten nodes over '
            f"{self.last:.0f} seconds. The job named wide waits for eight nodes until {self.starts:.0f} s. As tasks "
            f"end, nodes are kept for it, hatched, and quick tasks run on kept nodes.</desc>",
            '<defs><pattern id="h" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="2" height="6" fill="{color["k"]}"/></pattern></defs>'
            f'<rect width="{WIDTH}" height="{self.height}" fill="{color["bg"]}"/>',
        ]
        for second in range(0, int(self.last) + 1, 10):
            x = self.at(second)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{floor}" stroke="{color["grid"]}"/>')
            parts.append(
                f'<text x="{x:.1f}" y="{TOP - 12}" fill="{color["dim"]}" text-anchor="middle">{second} s</text>'
            )
        for number, lane in enumerate(self.lanes):
            parts += self.lane(lane, TOP + number * LANE, color)
        x, y = LEFT, floor + 22
        shown = [("a", "team A"), ("b", "team B"), ("g", "the eight-node job of team B"), ("", "kept for it")]
        for key, text in shown:
            fill = color[key] if key else "url(#h)"
            parts.append(f'<rect x="{x}" y="{y - 10}" width="14" height="12" rx="2" fill="{fill}"/>')
            parts.append(f'<text x="{x + 19}" y="{y}" fill="{color["ink"]}">{text}</text>')
            x += 40 + 7 * len(text)
        x = self.at(self.joins)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{floor}" stroke="{color["k"]}" '
            'stroke-dasharray="3 3"/>'
        )
        parts.append(
            f'<text x="{x + 4:.1f}" y="{self.height - 6}" fill="{color["dim"]}">'
            "dashed: the job joins the line</text></svg>"
        )
        return "\n".join(parts) + "\n"

    def lane(self, lane: str, y: int, color: Mapping[str, str]) -> list[str]:
        """Return what is drawn of one node."""
        parts = [f'<text x="4" y="{y + 17}" fill="{color["dim"]}">{escape(lane)}</text>']
        bars = sorted((bar for bar in self.bars if bar[0] == lane), key=lambda bar: bar[3])
        box = f'y="{y + 3}" height="{LANE - 6}"'
        if any(bar[2] == "wide" for bar in bars):
            free = max(self.joins, 0)
            for *_, start, end in bars:
                if end and end <= free:
                    continue
                if start - free > 0.4 and free < self.starts:
                    width = self.at(min(start, self.starts)) - self.at(free)
                    parts.append(
                        f'<rect x="{self.at(free):.1f}" {box} width="{width:.1f}" fill="url(#h)" opacity=".75"/>'
                    )
                free = max(free, end)
        for _, user, job, start, end in bars:
            width, is_gang = self.at(min(end, self.last)) - self.at(start), job == "wide"
            fill = color["g"] if is_gang else color["a"] if user == "ann" else color["b"]
            parts.append(
                f'<rect x="{self.at(start):.1f}" {box} width="{max(width, 1.5):.1f}" rx="3" fill="{fill}" '
                f'stroke="{color["bg"]}"/>'
            )
            if width > 7 * len(job):
                ink = color["gi"] if is_gang else color["ink"]
                parts.append(f'<text x="{self.at(start) + 5:.1f}" y="{y + 17}" fill="{ink}">{escape(job)}</text>')
        return parts


def pictures() -> dict[str, str]:
    """Return each file's text."""
    gang = Gang(json.loads((HERE / "gang.json").read_text()))
    return {f"gang-{name}.svg": gang.draw(color) for name, color in THEMES.items()}


if __name__ == "__main__":
    for file, text in pictures().items():
        (HERE.parent / file).write_text(text)
