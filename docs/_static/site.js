"use strict";
// what scrolls can be reached and scrolled by keyboard
addEventListener("load", () => {
  for (const each of document.querySelectorAll("pre, .table-wrapper, .text_html, .cell_output .output, p:has(> img)")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
  }
});
