// Canvas (laptop_cuda/pictures/svg.py) and Python's formats, for pictures that a page of the book draws itself.
// The same calls give the same text as in Python: tests/tools/test_explore_page.py compares them.

// f"{x:z.{digits}f}": an exact half is rounded to the even digit, where toFixed rounds it up.
function fixed(x, digits) {
  const half = Math.abs(x * 2 ** (digits + 1)) % 2 === 1 && /[13579]$/.test(x.toFixed(digits));
  const text = (half ? x - Math.sign(x) * 2 ** -40 : x).toFixed(digits);
  return Number(text) ? text : text.replace("-", "");
}

const round = (x, digits) => Number(fixed(x, digits));
const percent = x => `${fixed(100 * x, 0)}%`;
const comma = count => count.toLocaleString("en-US");
const signed = (x, text = String) => (x < 0 ? "-" : "+") + text(Math.abs(x));
const amount = (count, things) => `${comma(count)} ${count === 1 ? things.replace(/s$/, "") : things}`;
const n2 = x => fixed(x, 2).replace(/\.?0+$/, "");
const quoted = text => text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll("'", "\\'")}'`;
const escaped = text => String(text).replace(/[&<>"']/g, c => `&${{"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "#x27"}[c]};`);
const json = pairs => `{${Object.entries(pairs).map(([k, v]) => `"${k}": ${JSON.stringify(v)}`).join(", ")}}`;

class Canvas {
  constructor(width, height) { Object.assign(this, {width, height, marks: []}); }
  look({fill = null, stroke = "", thick = 1, shade = null}) {
    const names = [fill === null ? "" : `lc-f-${fill}`, stroke ? `lc-s-${stroke}` : ""].join(" ").trim();
    return ` class="${names}"${fill === null ? ' fill="none"' : ""}` +
      (stroke && thick !== 1 ? ` stroke-width="${n2(thick)}"` : "") + (shade === null ? "" : ` fill-opacity="${n2(shade)}"`);
  }
  mark(tag, {about = "", set = null, hover = false, drag = ""}) {
    const label = ` tabindex="0"${set ? ' role="button"' : ""} aria-label="${escaped(about)}"${hover ? ' data-hover=""' : ""}`;
    const control = drag ? ` data-drag="${drag}"${label}` : set ? ` data-set="${escaped(json(set))}"${label}` : "";
    this.marks.push(`<${tag}${control}` + (about ? `><title>${escaped(about)}</title></${tag.split(" ")[0]}>` : "/>"));
  }
  rect(x, y, width, height, {fill = "empty", stroke = "line", text = "", size = 11, ...more} = {}) {
    const place = `x="${n2(x)}" y="${n2(y)}" width="${n2(width)}" height="${n2(height)}"`;
    this.mark(`rect ${place}${this.look({fill, stroke, ...more})}`, more);
    if (text !== "") this.text(x + width / 2, y + height / 2 + 0.35 * size, text, {size, anchor: "middle"});
  }
  frames(places, width, height) {
    const path = places.map(([x, y]) => `M${n2(x)} ${n2(y)}h${n2(width)}v${n2(height)}h${n2(-width)}z`).join("");
    this.marks.push(`<path d="${path}"${this.look({stroke: "line"})}/>`);
  }
  circle(x, y, radius, {fill = "empty", stroke = "ink", ...more}) {
    this.mark(`circle cx="${n2(x)}" cy="${n2(y)}" r="${n2(radius)}"${this.look({fill, stroke, ...more})}`, more);
  }
  text(x, y, text, {size = 12, anchor = "start", fill = "ink", bold = false}) {
    const look = (anchor === "start" ? "" : ` text-anchor="${anchor}"`) + (bold ? ' font-weight="600"' : "");
    this.marks.push(`<text x="${n2(x)}" y="${n2(y)}" font-size="${n2(size)}" class="lc-f-${fill}"${look} ` +
      `pointer-events="none">${escaped(text)}</text>`);
  }
  line(x0, y0, x1, y1, look) { this.curve([[x0, y0], [x1, y1]], {thick: 1, ...look}); }
  curve(points, {thick = 1.5, ...look}) {
    const path = `M${points.map(([x, y]) => `${n2(x)} ${n2(y)}`).join("L")}${look.fill ? "Z" : ""}`;
    this.marks.push(`<path d="${path}"${this.look({thick, ...look})}/>`);
  }
  arrow(x0, y0, x1, y1, {stroke, thick, head}) {
    const length = Math.hypot(x1 - x0, y1 - y0) || 1, ux = (x1 - x0) / length, uy = (y1 - y0) / length;
    const bx = x1 - head * ux, by = y1 - head * uy, half = head / 2.4;
    this.line(x0, y0, bx, by, {stroke, thick});
    this.curve([[x1, y1], [bx - half * uy, by + half * ux], [bx + half * uy, by - half * ux]], {stroke, thick: 0.5, fill: stroke});
  }
  svg(words) {
    const role = this.marks.some(mark => mark.includes("tabindex")) ? "group" : "img";
    return `<svg xmlns="http://www.w3.org/2000/svg" class="lc" viewBox="0 0 ${n2(this.width)} ${n2(this.height)}" ` +
      `width="${n2(this.width)}" role="${role}" aria-label="${escaped(words)}">${this.marks.join("")}</svg>`;
  }
}

// What mount() shows for a state: a picture with its words, or the sentence of what cannot be drawn.
function answerOf(draw, state, data) {
  try {
    const [canvas, words] = draw(state, data);
    return {svg: canvas.svg(words), words, ranges: {}};
  } catch (problem) { return {problem: problem.said ?? `This page could not compute the picture: ${problem.message}`}; }
}

const refused = said => Object.assign(new Error(said), {said});
