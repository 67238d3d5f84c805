// The first use of a glossary term on a page shows its definition, by pointer or keyboard.
document.addEventListener("DOMContentLoaded", () => {
  const terms = window.courseTerms || {};
  const article = document.querySelector("article.bd-article");
  if (!article || /notation\.html$/.test(location.pathname)) return;
  const names = Object.keys(terms).sort((a, b) => b.length - a.length);
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const open = new Set(names);
  const skipped = "a, code, pre, h1, h2, h3, h4, summary, .term, mjx-container, .math, script, table";
  for (const paragraph of article.querySelectorAll("p, li")) {
    if (!open.size || paragraph.closest("pre, details, .cell_output")) continue;
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
        note.textContent = `${name}: ${terms[name]}`;
        span.append(note);
        rest.replaceWith(span);
        open.delete(name);
        break;
      }
    }
  }
});
