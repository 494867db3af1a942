"""Checks reports and pages of the site with axe-core in headless Chromium, light and dark.

Exits with 1 if axe-core finds a violation of WCAG or of good practice, or did not run.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_RESULT = re.compile(r'<pre id="axe-result">(.*?)</pre>', re.DOTALL)
# Details are opened: axe-core does not see what is collapsed.
_CHECK = """
addEventListener("load", async () => {
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  const found = await axe.run();
  const shown = document.createElement("pre");
  shown.id = "axe-result";
  shown.textContent = JSON.stringify({
    passes: found.passes.length,
    violations: found.violations.map((each) => ({
      id: each.id, help: each.help, nodes: each.nodes.map((node) => node.target.join(" ")),
    })),
  });
  document.body.append(shown);
});
"""
_SCHEMES = {"dark": 0, "light": 1}


def main() -> int:
    """Check each report in both color schemes; print the violations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("axe", type=Path, help="axe.min.js of the npm package axe-core")
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--chromium", default="chromium")
    given = parser.parse_args()
    failed = False
    for report in given.reports:
        for scheme in _SCHEMES:
            found = _checked(report, given.axe, given.chromium, scheme)
            failed |= not found["passes"] or bool(found["violations"])
            print(f"{report}, {scheme}: {found['passes']} rules passed", end="")
            print(f", {len(found['violations'])} violated")
            for violation in found["violations"]:
                print(f"  {violation['id']}: {violation['help']}")
                print(*(f"    {node}" for node in violation["nodes"]), sep="\n")
    return 1 if failed else 0


def _checked(report: Path, axe: Path, chromium: str, scheme: str) -> dict:
    # The report's policy allows no scripts, ours included.
    html = _POLICY.sub("", report.read_text(encoding="utf-8"))
    # A page of the documentation has its styles beside it.
    base = f'<base href="{report.resolve().parent.as_uri()}/">'
    html = html.replace("<head>", f"<head>{base}", 1)
    library = axe.read_text(encoding="utf-8").replace("</script>", "<\\/script>")
    html += f"<script>{library}</script><script>{_CHECK}</script>"
    with tempfile.TemporaryDirectory(prefix="axe-") as folder:
        page = Path(folder) / "report.html"
        page.write_text(html, encoding="utf-8")
        command = [
            *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *("--window-size=1400,1000", "--virtual-time-budget=30000"),
            f"--blink-settings=preferredColorScheme={_SCHEMES[scheme]}",
            f"--user-data-dir={folder}/profile",
            page.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = _RESULT.search(done.stdout)
    if found is None:
        sys.exit(f"{report}: axe-core did not run: {done.stderr[-2000:]}")
    return json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


if __name__ == "__main__":
    sys.exit(main())
