"""Small charts as text: SVG that follows the page's colours and needs no script.

A chart is 440 units wide, so that its 12-unit letters stay readable on a phone and do not shout on a desk.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTH, HEIGHT = 440, 280
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 12, 44

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    lower: float
    upper: float
    label: str = ""
    log: bool = False
    shown: bool = True

    @classmethod
    def around(cls, values: Sequence[float], label: str = "", *, log: bool = False, margin: float = 0.06) -> Axis:
        """Room for all values; a single value gets room of its own."""
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = (min(finite), max(finite)) if finite else (1.0, 10.0) if log else (0.0, 1.0)
        if log:
            return cls(10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high) + 1e-9), label, True)
        room = margin * (high - low) or max(abs(high), 1.0) * margin
        return cls(low - room, high + room, label)

    def at(self, value: float) -> float:
        """Position between 0 and 1."""
        if self.log:
            value = max(value, self.lower)
            return math.log(value / self.lower) / math.log(self.upper / self.lower)
        return (value - self.lower) / (self.upper - self.lower)

    def ticks(self, most: int = 6) -> list[float]:
        if self.log:
            first, last = round(math.log10(self.lower)), round(math.log10(self.upper))
            stride = max(1, math.ceil((last - first) / most))
            return [10.0**e for e in range(first, last + 1, stride)]
        raw = (self.upper - self.lower) / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
        start, end = math.ceil(self.lower / step - 1e-9), math.floor(self.upper / step + 1e-9)
        return [i * step for i in range(start, end + 1)]


def figure(value: float, digits: int = 6) -> str:
    """A number for people."""
    if value == 0:
        return "0"
    text = f"{value:,.{digits}g}"
    if "e" in text and abs(value) >= 1 and abs(value) < 1e9:
        text = f"{value:,.0f}"
    return text.replace("-", "−")


@dataclass
class Chart:
    """A frame with axes to draw in; positions are in the units of the axes."""

    x: Axis
    y: Axis
    title: str  # read aloud, not shown
    width: int = WIDTH
    height: int = HEIGHT
    parts: list[str] = field(default_factory=list)

    def place(self, x: float, y: float) -> Point:
        right, bottom = self.width - RIGHT, self.height - BOTTOM
        return LEFT + self.x.at(x) * (right - LEFT), bottom - self.y.at(y) * (bottom - TOP)

    def line(self, points: Sequence[Point], style: str, *, step: bool = False) -> None:
        corners = stairs(points) if step else list(points)
        self.parts.append(f'<polyline points="{self._joined(corners)}" fill="none" {style}/>')

    def polygon(self, points: Sequence[Point], style: str, title: str = "") -> None:
        self.parts.append(f'<polygon points="{self._joined(points)}" {style}>{_title(title)}</polygon>')

    def dot(self, x: float, y: float, radius: float, style: str, title: str = "", text: str = "") -> None:
        px, py = self.place(x, y)
        self.parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{radius:.1f}" {style}>{_title(title)}</circle>')
        if text:
            beside = 0.75 * radius + 2
            self.parts.append(
                f'<text x="{px + beside:.1f}" y="{py - beside + 4:.1f}" class="mark">{html.escape(text)}</text>'
            )

    def rule(self, y: float, text: str, style: str) -> None:
        (x1, py), (x2, _) = self.place(self.x.lower, y), self.place(self.x.upper, y)
        self.parts.append(f'<line x1="{x1:.1f}" y1="{py:.1f}" x2="{x2:.1f}" y2="{py:.1f}" {style}/>')
        self.parts.append(f'<text x="{x1 + 4:.1f}" y="{py - 5:.1f}" class="note">{html.escape(text)}</text>')

    def svg(self) -> str:
        body = "".join([*self._grid(), *self.parts])
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{html.escape(self.title)}">'
            f"{body}</svg>"
        )

    def _joined(self, points: Sequence[Point]) -> str:
        return " ".join(f"{px:.1f},{py:.1f}" for px, py in (self.place(x, y) for x, y in points))

    def _grid(self) -> list[str]:
        drawn = []
        right, bottom = self.width - RIGHT, self.height - BOTTOM
        for tick in self.x.ticks(5) if self.x.shown else []:
            px, _ = self.place(tick, self.y.lower)
            drawn.append(f'<line x1="{px:.1f}" y1="{TOP}" x2="{px:.1f}" y2="{bottom}" class="grid"/>')
            drawn.append(f'<text x="{px:.1f}" y="{bottom + 16}" class="tick middle">{self._label(self.x, tick)}</text>')
        for tick in self.y.ticks(5) if self.y.shown else []:
            _, py = self.place(self.x.lower, tick)
            drawn.append(f'<line x1="{LEFT}" y1="{py:.1f}" x2="{right}" y2="{py:.1f}" class="grid"/>')
            drawn.append(f'<text x="{LEFT - 6}" y="{py + 4:.1f}" class="tick end">{self._label(self.y, tick)}</text>')
        middle = (LEFT + right) / 2
        label = html.escape(self.x.label)
        drawn.append(f'<text x="{middle:.0f}" y="{self.height - 8}" class="axis middle">{label}</text>')
        if self.y.label:
            middle = (TOP + bottom) / 2
            drawn.append(
                f'<text x="13" y="{middle:.0f}" class="axis middle" transform="rotate(-90 13 {middle:.0f})">'
                f"{html.escape(self.y.label)}</text>"
            )
        return drawn

    @staticmethod
    def _label(axis: Axis, tick: float) -> str:
        if axis.log:
            exponent = round(math.log10(tick))
            return f"{tick:g}" if -4 <= exponent <= 3 else f'10<tspan dy="-5" class="power">{exponent}</tspan>'
        return figure(tick, 5 if abs(tick) < 1e5 else 4)


def stairs(points: Sequence[Point]) -> list[Point]:
    """What is known holds until the next step."""
    corners: list[Point] = []
    for x, y in points:
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return corners


def zonotope(centre: Point, generators: Sequence[Point]) -> list[Point]:
    """The shadow of a box: { centre + Σ s_i g_i : |s_i| ≤ 1 }, its corners in order."""
    upward = [(-gx, -gy) if (gy, gx) < (0.0, 0.0) else (gx, gy) for gx, gy in generators]
    upward = sorted((g for g in upward if g != (0.0, 0.0)), key=lambda g: math.atan2(g[1], g[0]))
    x, y = centre[0] - sum(g[0] for g in upward), centre[1] - sum(g[1] for g in upward)
    corners = [(x, y)]
    for sign in (1, -1):
        for gx, gy in upward:
            x, y = x + 2 * sign * gx, y + 2 * sign * gy
            corners.append((x, y))
    return corners[:-1] if len(corners) > 1 else corners


def _title(text: str) -> str:
    return f"<title>{html.escape(text)}</title>" if text else ""
