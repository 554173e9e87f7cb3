"""Checks the structure of a picture of make_trace.py's trace: trace_svg.py PICTURE.svg [PAGE.html]"""
import re
import sys
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def parts(root, tag, css):
    return [e for e in root.iter(SVG + tag) if e.get("class") == css]


def check(root):
    assert root.tag == SVG + "svg"
    assert not list(root.iter(SVG + "script")) and not list(root.iter(SVG + "image"))
    width, height = (float(root.get(k)) for k in ("width", "height"))
    legend = ["".join(e.itertext()).strip() for e in parts(root, "g", "entry")]
    assert legend == ["recent (int8)", "anchor (int8)", "stale1 (k4v3)", "no page", "promotion"], legend
    for rect in root.iter(SVG + "rect"):
        x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
        assert 0 <= x and 0 <= y and w > 0 and h > 0 and x + w <= width + 0.02 and y + h <= height + 0.02
    panels = parts(root, "g", "panel")
    titles = ["".join(parts(p, "text", "head")[0].itertext()).split(":")[0] for p in panels]
    assert titles == ["session 1", "session 2", "session 2, window 512"], titles
    cells = [[r.get("class") for r in parts(p, "g", "cells")[0]] for p in panels]
    # A rectangle for each stretch of a row in one tier. Session 1: page 0 an anchor at the end of the step that sealed
    # it, pages 30 and 31 recent; of each four pages sealed in a step the last two are recent for one step, but for the
    # last four; pages 2 and 3 recent, stale, anchor.
    assert cells[0].count("anchor") == 3 and cells[0].count("recent") == 16 and cells[0].count("stale1") == 29, cells[0]
    assert cells[1] == ["anchor", "stale1", "anchor", "anchor"] + ["stale1"] * 4 + ["recent"], cells[1]
    assert cells[2] == ["recent"] * 8, cells[2]
    marks = ["".join(m.itertext()) for p in panels for m in parts(p, "path", "promotion")]
    assert len(marks) == 2 and "step 110" in marks[0] and "(score, restore), 781.2 KiB, 900.25 us" in marks[0], marks
    area = parts(root, "g", "bytes")[0]
    assert [p.get("class") for p in area.iter(SVG + "path")] == ["stale1", "anchor", "recent", "axis"]
    labels = ["".join(t.itertext()) for t in root.iter(SVG + "text")]
    assert "token position" in labels and "step" in labels and "207" in labels and "4096" in labels


svg = open(sys.argv[1], encoding="utf-8").read()
check(ElementTree.fromstring(svg))
assert "prefers-color-scheme" in svg and "<script" not in svg and not re.search(r"(href|src|url)\s*[=(]", svg)
if len(sys.argv) > 2:
    page = open(sys.argv[2], encoding="utf-8").read()
    assert page.startswith("<!DOCTYPE html>") and svg in page, "the page does not hold the picture"
    assert "<script" not in page and not re.search(r"(href|src|url)\s*[=(]", page)
    assert page.count("<table>") == page.count("</table>") == 3 and "lossy" in page
    assert "color-scheme:light dark" in page and page.count("prefers-color-scheme") == 2
print("ok")
