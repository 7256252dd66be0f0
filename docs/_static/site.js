"use strict";
const COLUMNS = 96; // of printed tables, as in conf.py: longer lines are sentences
addEventListener("load", () => {
  for (const each of document.querySelectorAll(".cell_output pre")) {
    if (each.textContent.split("\n").some((line) => line.length > COLUMNS)) each.classList.add("sentences");
  }
  // what scrolls can be reached and scrolled by keyboard
  for (const each of document.querySelectorAll("pre, .table-wrapper, .text_html, .cell_output:has(> img), p:has(> img)")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
  }
});
