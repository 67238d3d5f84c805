// What every front end needs: elements, the theme of the page, controls with names, a picture whose marks can
// be pressed and dragged. Nothing here computes a number that is shown.

const SVG_NS = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// light or dark: what JupyterLab, VS Code or the book says, else what the reader prefers.
function themeOf(page, prefersDark) {
  const lab = page.body.dataset.jpThemeLight;
  if (lab) return lab === "true" ? "light" : "dark";
  if (/vscode-(dark|high-contrast)(?!-light)/.test(page.body.className)) return "dark";
  const book = page.documentElement.dataset.theme;
  if (book === "light" || book === "dark") return book;
  return prefersDark ? "dark" : "light";
}

// JupyterLab's shortcuts take keys from what has the focus, unless that very element says no.
function shield(root) {
  for (const target of root.querySelectorAll("input,button,select,[tabindex]"))
    target.setAttribute("data-lm-suppress-shortcuts", "true");
}

// A root that follows the theme of the page and keeps its keys.
function prepare(root, label) {
  root.className = "lc-root";
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", label);
  const filled = new MutationObserver(() => shield(root));
  filled.observe(root, {childList: true, subtree: true});
  const asked = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => { root.dataset.theme = themeOf(document, asked.matches); };
  const observer = new MutationObserver(follow);
  observer.observe(document.body, {attributes: true});
  observer.observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});
  asked.addEventListener("change", follow);
  follow();
  return () => { filled.disconnect(); observer.disconnect(); asked.removeEventListener("change", follow); };
}

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// 1 float, 2 floats
function withUnit(value, unit = "") {
  return `${value} ${value === 1 ? unit.replace(/s$/, "") : unit}`.trim();
}

function nearest(values, value) {
  return values.reduce((best, v, n) => Math.abs(v - value) < Math.abs(values[best] - value) ? n : best, 0);
}

// The value of a point control: on its steps, inside its ranges.
function onSteps(value, [low, high, step]) {
  const bounded = Math.min(Math.max(value, low), high);
  return Math.min(low + Math.round((bounded - low) / step) * step, high);
}

function pointAt(control, x, y) {
  const [left, top, width, height] = control.box;
  const along = (x - left) / width, up = (top + height - y) / height;
  return [onSteps(control.xs[0] + along * (control.xs[1] - control.xs[0]), control.xs),
          onSteps(control.ys[0] + up * (control.ys[1] - control.ys[0]), control.ys)];
}

const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};

function pointMoved(control, [x, y], key) {
  const [dx, dy] = ARROWS[key];
  return [onSteps(x + dx * control.xs[2], control.xs), onSteps(y + dy * control.ys[2], control.ys)];
}

// --- controls: each returns {node, show(value, values)}; `values` are those that it offers in this state ---

// Each widget has a module of its own; the names and ids of their inputs share one page.
const freshId = () => `lc-${globalThis.lcLastId = (globalThis.lcLastId ?? 0) + 1}`;

function slider(control, change) {
  const id = freshId();
  let values = control.values;
  const said = element("output", {for: id});
  const input = element("input", {type: "range", id, min: 0, max: values.length - 1, step: 1,
    name: control.name, oninput: () => change(values[input.valueAsNumber])});
  const label = element("label", {for: id}, control.label);
  const node = element("span", {class: "lc-control"}, label, input, said);
  if (control.play) node.append(player(() => {
    const next = input.valueAsNumber + 1;
    if (next < values.length) change(values[next]);
    return next < values.length - 1;
  }, () => { if (input.valueAsNumber === values.length - 1) change(values[0]); }));
  return {node, show(value, offered = values) {
    const text = withUnit(value, control.unit);
    values = offered;
    input.max = values.length - 1;
    for (const part of node.querySelectorAll("input,button")) part.hidden = values.length < 2;
    input.value = nearest(values, value);
    input.setAttribute("aria-valuetext", text);
    said.value = text;
  }};
}

// A button that calls step() until it says false. Where the reader asks for less motion, it takes one step.
function player(step, begin = () => {}, milliseconds = 700) {
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "▶";
    button.ariaLabel = "play";
  };
  const button = element("button", {type: "button", "aria-label": "play", onclick: () => {
    if (timer) return stop();
    begin();
    if (still()) { step(); return undefined; }
    button.textContent = "||";
    button.ariaLabel = "pause";
    timer = setInterval(() => { if (!button.isConnected || !step()) stop(); }, milliseconds);
    return undefined;
  }}, "▶");
  return button;
}

const MOST_BUTTONS = 6;

// One of a few words by buttons, one of many from a list; a single word is said.
function choice(control, change) {
  if (control.values.length > MOST_BUTTONS) return list(control, change);
  const name = freshId();
  const inputs = control.values.map(value =>
    element("input", {type: "radio", name, value, onchange: () => change(value)}));
  const node = element("span", {class: "lc-control", role: "radiogroup", "aria-label": control.label},
    element("span", {}, control.label),
    ...inputs.map((input, n) => element("label", {}, input, ` ${control.values[n]}`)));
  if (inputs.length === 1) inputs[0].hidden = true;
  return {node, show(value) { for (const input of inputs) input.checked = input.value === String(value); }};
}

function list(control, change) {
  const id = freshId();
  const select = element("select", {id, name: control.name, onchange: () => change(control.values[select.selectedIndex])},
    ...control.values.map(value => element("option", {}, String(value))));
  const node = element("span", {class: "lc-control"}, element("label", {for: id}, control.label), select);
  return {node, show(value) { select.selectedIndex = control.values.indexOf(value); }};
}

function line(control, change) {
  const id = freshId();
  const input = element("input", {type: "text", id, maxlength: control.most, name: control.name, size: 40,
    oninput: () => change(input.value)});
  const node = element("span", {class: "lc-control"}, element("label", {for: id}, control.label), input);
  return {node, show(value) { if (input !== document.activeElement) input.value = value; }};
}

const CONTROLS = {slider, choice, text: line};

// --- the picture ---

// `host` shows an SVG text; marks with data-set change the state, marks with data-drag move a point.
function sheet(host, controls, state, change) {
  const points = Object.fromEntries(controls.filter(c => c.kind === "point").map(c => [c.name, c]));
  const marked = (event, name) => event.target.closest?.(`[data-${name}]`);
  const press = mark => {
    for (const [name, value] of Object.entries(JSON.parse(mark.dataset.set))) change(name, value);
  };
  let dragged = null;
  const follow = event => {
    const svg = host.querySelector("svg");
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    change(dragged, pointAt(points[dragged], at.x, at.y));
  };
  host.addEventListener("pointerdown", event => {
    const placed = marked(event, "place");
    const mark = placed ? host.querySelector(`[data-drag="${placed.dataset.place}"]`) : marked(event, "drag");
    if (!mark) return;
    dragged = mark.dataset.drag;
    mark.focus();
    host.setPointerCapture(event.pointerId);
    event.preventDefault();
    if (placed) follow(event);
  });
  host.addEventListener("pointermove", event => { if (dragged) follow(event); });
  for (const name of ["pointerup", "pointercancel"]) host.addEventListener(name, () => { dragged = null; });
  for (const [event_, name] of [["click", "set"], ["pointerover", "hover"]])
    host.addEventListener(event_, event => { const mark = marked(event, name); if (mark) press(mark); });
  host.addEventListener("keydown", event => {
    const handle = marked(event, "drag"), button = marked(event, "set");
    if (handle && event.key in ARROWS) {
      const name = handle.dataset.drag;
      change(name, pointMoved(points[name], state()[name], event.key));
    } else if (button && (event.key === "Enter" || event.key === " ")) press(button);
    else return;
    event.preventDefault();
  });
  return svg => keepFocus(host, () => {
    host.innerHTML = svg;
    for (const mark of host.querySelectorAll("[data-drag],[data-place]"))     // a point that this page does not offer
      if (!((mark.dataset.drag ?? mark.dataset.place) in points))
        for (const name of ["data-drag", "data-place", "tabindex", "aria-label"]) mark.removeAttribute(name);
  });
}

// A mark that had the focus has it again after the picture was drawn anew.
function keepFocus(host, draw) {
  const marks = () => [...host.querySelectorAll("[data-drag],[data-set]")];
  const had = marks().indexOf(document.activeElement);
  draw();
  if (had >= 0) marks()[had]?.focus();
}
