// Keys that move. No key approves, rejects, cancels or resumes; all are dead while a field has focus.
(() => {
  "use strict";
  const pages = { i: "inbox", r: "runs", e: "evidence", p: "policies", w: "workflows", h: "health" };
  let going = false;
  const rows = () => [...document.querySelectorAll("main .item h3 a, main .list tbody th a")];
  const step = (by) => {
    const all = rows();
    if (all.length === 0) return;
    const at = all.indexOf(document.activeElement);
    all[Math.min(all.length - 1, Math.max(0, at + by))].focus();
  };
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest && event.target.closest("input, textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey || field) return;
    if (going && pages[event.key]) {
      const link = document.querySelector(`nav.nav a[href$="/${pages[event.key]}"]`);
      if (link) link.click();
      going = false;
      return;
    }
    going = event.key === "g";
    const search = document.querySelector("input[type=search]");
    const decide = document.getElementById("decide");
    if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "/" && search) { event.preventDefault(); search.focus(); }
    else if (event.key === "d" && decide) { decide.setAttribute("tabindex", "-1"); decide.focus(); }
    else if (event.key === "Escape" && document.activeElement) document.activeElement.blur();
  });
})();
