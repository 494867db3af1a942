// What the theme leaves out: names for its search and for the buttons of each block of code, and the
// keyboard's way into what scrolls.
function complete() {
  for (const dialog of document.querySelectorAll('[role="dialog"]:not([aria-label])')) {
    dialog.setAttribute("aria-label", "Search");
  }
  document.querySelectorAll(".md-code__nav").forEach((buttons, place) => {
    const label = `Code block ${place + 1}`;
    if (buttons.getAttribute("aria-label") !== label) buttons.setAttribute("aria-label", label);
  });
  for (const part of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (part.scrollWidth > part.clientWidth && !part.hasAttribute("tabindex")) part.tabIndex = 0;
  }
}

complete();
addEventListener("load", complete);
addEventListener("resize", complete);
new MutationObserver(complete).observe(document.body, {childList: true, subtree: true});
