// The first use of a glossary term in a chapter that means it shows its definition, by pointer or keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const terms = window.courseTerms || {};
  const article = document.querySelector("article.bd-article");
  const chapter = /chapters\/(\d\d)_/.exec(location.pathname);
  // What scrolls sideways on this screen is reached by Tab; pictures that move are there when all is loaded.
  addEventListener("load", () => {
    for (const part of document.querySelectorAll("pre, table, .text_html, .lc-sheet, mjx-container[display]"))
      if (part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
  });
  if (!article || !chapter) return;
  const names = Object.keys(terms).filter((name) => terms[name][1].includes(Number(chapter[1])))
    .sort((a, b) => b.length - a.length);
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const open = new Set(names);
  const skipped = "a, code, pre, h1, h2, h3, h4, summary, .term, mjx-container, .math, script, table";
  for (const paragraph of article.querySelectorAll("p, li")) {
    if (!open.size || paragraph.closest("pre, details, .cell_output") || paragraph.innerText.startsWith("Sources.")) continue;
    const walker = document.createTreeWalker(paragraph, NodeFilter.SHOW_TEXT);
    const nodes = [];
    while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(skipped)) nodes.push(walker.currentNode);
    for (let node of nodes) {
      for (const name of [...open]) {
        const found = new RegExp(`(^|[^\\w-])(${escaped(name)}s?)(?![\\w-])`, "i").exec(node.data);
        if (!found) continue;
        const start = found.index + found[1].length;
        const rest = node.splitText(start);
        rest.splitText(found[2].length);
        const span = document.createElement("span");
        span.className = "term";
        span.tabIndex = 0;
        span.textContent = found[2];
        const note = document.createElement("span");
        note.className = "definition";
        note.setAttribute("role", "note");
        note.textContent = `${name}: ${terms[name][0]}`;
        span.append(note);
        rest.replaceWith(span);
        open.delete(name);
        break;
      }
    }
  }
});
