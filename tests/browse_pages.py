"""Open pages in headless Chromium: no console message, no sideways scrolling at 390 pixels, the index within a second.

    python tests/browse_pages.py [FOLDER [SHOTS]]     (nox -s pages)

FOLDER holds the pages (default: reports/html); screenshots go to SHOTS where it is given.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROBE = """<!doctype html><meta charset="utf-8"><title>probe</title><body style="margin:0">
<iframe id="page" src="{url}" width="{width}" height="{height}" style="border:0"></iframe>
<script>
const said = [];
const frame = document.getElementById("page");
frame.addEventListener("load", () => {{
  const page = frame.contentDocument;
  const entry = frame.contentWindow.performance.getEntriesByType("navigation")[0];
  const wide = page.documentElement.scrollWidth - page.documentElement.clientWidth;
  const stops = page.querySelectorAll("a[href], button, summary, [tabindex='0']").length;
  const Key = frame.contentWindow.KeyboardEvent;
  const press = (target, key) => target.dispatchEvent(new Key("keydown", {{key, bubbles: true}}));
  let mute = 0;
  let fixed = 0;
  for (const figure of page.querySelectorAll("figure")) {{
    const target = figure.querySelector(".plot, .scroll[tabindex]");
    const before = target.getAttribute("width");
    press(target, "ArrowRight");
    if (!figure.querySelector(".readout").textContent) mute += 1;
    press(target, "+");
    if (before && !(Number(target.getAttribute("width")) > Number(before))) fixed += 1;
    press(target, "0");
  }}
  document.title = JSON.stringify({{ms: Math.round(entry.loadEventStart), wide, stops, mute, fixed}});
}});
</script>"""

DEAF = {"mute": "read nothing out when an arrow key is pressed", "fixed": "do not grow when + is pressed"}


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        sys.exit("no Chromium on the path; install it: apt-get install chromium")
    with tempfile.TemporaryDirectory() as profile:
        usual = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
        usual += (
            "--no-first-run",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
        )
        return subprocess.run([program, *usual, *arguments], capture_output=True, text=True, timeout=120, check=False)


def look(page: Path, width: int, height: int, dark: bool, shot: Path | None) -> tuple[dict[str, int], list[str]]:
    """What the page measures, and what its console said."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.html"
        probe.write_text(PROBE.format(url=page.resolve().as_uri(), width=width, height=height))
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        where = (f"--window-size={max(width, 600)},{height}", scheme, "--virtual-time-budget=4000")
        found = chromium(*where, "--dump-dom", probe.as_uri())
        if shot:
            chromium(*where, f"--screenshot={shot}", probe.as_uri())
    title = re.search(r"<title>(\{.*?\})</title>", found.stdout)
    if title is None:
        return {}, [f"the page did not load: {found.stderr[-400:]}"]
    facts = dict(re.findall(r'"(\w+)":(-?\d+)', title[1]))
    said = [line for line in found.stderr.splitlines() if "CONSOLE" in line]
    return {name: int(value) for name, value in facts.items()}, said


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "reports" / "html"
    shots = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    pages = sorted(folder.glob("*.html"))
    if not pages:
        sys.exit(f"{folder} holds no page; write them: harness report")
    wrong = []
    size = sum(page.stat().st_size for page in pages)
    if size > 10_000_000:
        wrong.append(f"{folder} holds {size:,} bytes, which is more than 10 MB")
    kinds = [page for page in pages if page.name == "index.html" or "moe." in page.name or "canvas" in page.name]
    kinds += [page for page in pages if page.name.startswith("trajectories")]
    for page in kinds if shots else pages:
        for width in (1280, 390):
            for dark in (False, True) if shots else (False,):
                name = f"{page.stem[:60]}-{width}-{'dark' if dark else 'light'}"
                shot = shots / f"{name}.png" if shots else None
                facts, said = look(page, width, 2600, dark, shot)
                wrong += [f"{name}: {line}" for line in said]
                if facts.get("wide", 1) > 0:
                    wrong.append(f"{name}: scrolls sideways by {facts.get('wide')} pixels")
                if page.name == "index.html" and facts.get("ms", 9999) > 1000:
                    wrong.append(f"{name}: took {facts.get('ms')} ms to load")
                wrong += [f"{name}: {facts[key]} plots {words}" for key, words in DEAF.items() if facts.get(key)]
                print(name, facts)
    print(f"{len(pages)} pages, {size:,} bytes")
    print("\n".join(wrong) or "nothing is wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
