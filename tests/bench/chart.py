"""A chart of seconds as an SVG file: one bar a row, in pairs that belong together, on one linear scale."""

import html

WIDTH, LABELS, VALUES, BAR, GAP, PAIR = 760, 230, 110, 18, 4, 14
COLOURS = ("#2f6fdb", "#9aa0a6")  # readable on white and on black


def write(path, title, pairs, note):
    """pairs: [(what, [(who, seconds)])]; `who` has the colour of its place."""
    longest = max(seconds for _, bars in pairs for _, seconds in bars)
    scale = (WIDTH - LABELS - VALUES) / longest
    parts, y = [text(0, 16, title, "font-weight='600'")], 36
    for what, bars in pairs:
        parts.append(text(LABELS - 10, y + BAR * len(bars) / 2 + 4, what, "text-anchor='end'"))
        for colour, (who, seconds) in zip(COLOURS, bars):
            length = max(seconds * scale, 1.5)
            parts.append(f"<rect x='{LABELS}' y='{y}' width='{length:.1f}' height='{BAR}' fill='{colour}'/>")
            parts.append(text(LABELS + length + 6, y + BAR - 5, f"{who}: {seconds:.2g} s"))
            y += BAR + GAP
        y += PAIR
    parts.append(text(0, y + 6, note, "font-size='11'"))
    path.write_text(f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{y + 16}' viewBox='0 0 {WIDTH} {y + 16}' "
                    "font-family='system-ui, sans-serif' font-size='13' fill='#808489'>\n" + "\n".join(parts) + "\n</svg>\n",
                    encoding="utf-8")


def text(x, y, words, attributes=""):
    return f"<text x='{x:.0f}' y='{y:.0f}' {attributes}>{html.escape(words)}</text>"
