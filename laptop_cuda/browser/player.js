// The player of a recorded launch: time, lanes, source and memory of one step, and the ways to another one.
// The data comes once, and everything that is shown is read from it (trace.js).

// --- what draws ---

const KIND = {load: "0", store: "1", atomic: "3"};
const quoted = text => String(text).replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);

function box(x, y, width, height, fill, text = "", about = "", more = "") {
  const label = text === "" ? "" :
    `<text x="${x + width / 2}" y="${y + height / 2 + 4}" font-size="10" text-anchor="middle" ` +
    `class="lc-f-ink" pointer-events="none">${quoted(text)}</text>`;
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" ` +
    `class="lc-f-${fill} lc-s-line" ${more}><title>${quoted(about)}</title></rect>${label}`;
}

const note = (x, y, text, more = "") =>
  `<text x="${x}" y="${y}" font-size="11" class="lc-f-faint" ${more}>${quoted(text)}</text>`;

const paper = (height, body, label) =>
  `<svg class="lc" viewBox="0 0 700 ${height}" width="700" role="img" ` +
  `aria-label="${quoted(label)}">${body}</svg>`;

// Intervals as boxes as wide as their steps are many, conflicts as red ticks, the step as a line.
function timeLine(trace) {
  const width = 660 / Math.max(trace.steps.length, 1), at = n => 20 + n * width;
  let body = note(20, 9, "time: a box per interval between barriers; red: bank conflicts");
  for (const interval of trace.intervals) {
    const {block, first_step, n_steps} = interval;
    const end = interval.ends === "barrier" ? `the barrier of line ${interval.line}` : interval.ends;
    const about = `block ${block}, interval ${interval.number}: ${n_steps} steps, then ${end}`;
    body += box(at(first_step), 16, n_steps * width, 18, block % 2 ? "soft" : "empty", "", about,
                `data-set='{"step":${first_step}}'`);
  }
  const ticks = new Set(trace.steps.flatMap((step, n) => step.excess ? [Math.round(at(n))] : []));
  body += `<path d="${[...ticks].map(x => `M${x} 27v7`).join("")}" class="lc-s-warn"/>`;
  const here = number => `<path d="M${at(number + 0.5)} 11v28" class="lc-s-focus" stroke-width="2.5"/>`;
  return number => paper(42, body + here(number), "time line");
}

function drawWarps(trace, number, chosen) {
  const now = trace.steps[number], rows = warpsAt(trace, number);
  const accused = (trace.error?.accesses ?? []).map(({step, lane}) =>
    ({...trace.steps[step], lane})).filter(access => access.block === now.block);
  const needed = row => row.warp === now.warp || accused.some(access => access.warp === row.warp);
  const kept = rows.filter(row => rows.length <= 8 || needed(row) || row.warp < 6);
  const boxes = kept.map((row, n) => warpRow(trace.lanes, row, 4 + 24 * n, now, chosen,
    accused.filter(access => access.warp === row.warp).map(access => access.lane)));
  const hidden = rows.length - kept.length;
  const text = "a row per warp, a box per lane with the line where it is; filled: active now" +
    (hidden ? `; ${hidden} warps not shown` : "");
  return paper(24 * kept.length + 22, boxes.join("") + note(44, 24 * kept.length + 16, text), "lanes");
}

function warpRow(lanes, row, y, now, chosen, accused) {
  const present = row.warp === now.warp, weight = present ? ' font-weight="700"' : "";
  let body = note(38, y + 14, `w${row.warp}`, `text-anchor="end"${weight}`);
  for (const lane of lanes) {
    const on = present && active(row.mask, lane), wrong = accused.includes(lane);
    const doing = present ? on ? "active" : "masked" : "waits";
    const about = `warp ${row.warp}, lane ${lane}: line ${row.lines[lane] || "not begun"}, ${doing}` +
      (wrong ? "; the error speaks of it" : "");
    const edge = wrong ? "stroke:var(--lc-warn);stroke-width:3"
      : present && lane === chosen ? "stroke:var(--lc-focus);stroke-width:2" : "";
    body += box(44 + 20 * lane, y, 19, 20, on ? KIND[now.kind] ?? "4" : "empty", row.lines[lane] || "", about,
                `data-lane="${lane}" style="${edge}"`);
  }
  return body;
}

const ROWS = 10;

// An array as words in rows of banks, or as sectors; of a large one the rows around what is touched now.
function drawArray(trace, number, index, before) {
  const step = trace.steps[number], array = trace.arrays[index], shared = array.space === "shared";
  const {banks, bank_bytes, sector_bytes} = trace.machine;
  const perRow = shared ? banks : 64, width = 640 / perRow, unitBytes = shared ? bank_bytes : sector_bytes;
  const base = shared ? array.offset : array.start;
  const begin = Math.floor(base / unitBytes), end = Math.ceil((base + array.bytes) / unitBytes);
  const events = step.array === index ? trace.eventsOf(step) : [];
  const now = shared ? wordsWanted(bankParts(events, array, trace.machine, step.kind))
    : sectorsOf(events, array, trace.machine);
  const units = step.array === index ? unitsOf(trace, step) : [...before.keys()].slice(-1);
  const [firstRow, lastRow] = rowsShown(begin, end, perRow, units);
  let body = "", untouched = "";
  for (let unit = Math.max(begin, firstRow * perRow); unit < Math.min(end, lastRow * perRow); unit++) {
    const x = 44 + width * (unit % perRow), y = 18 + 10 * (Math.floor(unit / perRow) - firstRow);
    const here = now.has(unit);
    if (!here && !before.has(unit)) { untouched += `M${x} ${y}h${width - 2}v8h${2 - width}z`; continue; }
    const fill = !here ? "soft" : step.excess && now.get(unit) ? "warn" : KIND[step.kind];
    const bytes = now.get(unit)?.size;
    const done = here ? `${step.kind} now` : `${before.get(unit)} before`;
    const about = shared ? `word ${unit - begin}, bank ${unit % banks}: ${done}`
      : `sector ${unit}: ${done}${here ? `, ${bytes} of its ${sector_bytes} bytes asked for` : ""}`;
    body += `<rect x="${x}" y="${y}" width="${width - 2}" height="8" class="lc-f-${fill} lc-s-line"><title>` +
      `${quoted(about)}</title></rect>` + (here && !shared ? `<rect x="${x}" y="${y + 5}" ` +
      `width="${(width - 2) * bytes / sector_bytes}" height="3" class="lc-f-ink"/>` : "");
  }
  const size = `${array.name}: ${array.bytes.toLocaleString("en")} bytes of ${array.space} memory`;
  const key = shared ? "; a column per bank, red: words that wait for their bank"
    : "; a box per sector, its bar the bytes asked for";
  const part = lastRow * perRow < end || firstRow * perRow > begin ? `; from ${shared ? "word" : "sector"} ` +
    `${Math.max(firstRow * perRow - begin, 0)} on` : "";
  return paper(20 + 10 * (lastRow - firstRow), note(44, 11, size + key + part) +
    `<path d="${untouched}" fill="none" class="lc-s-line"/>${body}`, size);
}

// At most ROWS rows, among them the first that is touched.
function rowsShown(begin, end, perRow, units) {
  const low = Math.floor(begin / perRow), high = Math.ceil(end / perRow);
  const wanted = units.length ? Math.floor(Math.min(...units) / perRow) : low;
  const first = high - low <= ROWS ? low : Math.min(Math.max(wanted - 1, low), high - ROWS);
  return [first, Math.min(first + ROWS, high)];
}

// The file of the step, its line coloured, and lighter the lines where other lanes of the block are.
function drawSource(trace, number, list) {
  const step = trace.steps[number];
  if (list.dataset.file !== step.file) {
    list.dataset.file = step.file;
    list.setAttribute("aria-label", `source: ${step.file}`);
    list.replaceChildren(...trace.texts[step.file].map(line => element("li", {}, line || " ")));
  }
  const waiting = new Set(warpsAt(trace, number).flatMap(row => row.lines));
  [...list.children].forEach((item, n) => {
    item.className = n + 1 === step.line ? "lc-now" : waiting.has(n + 1) ? "lc-waits" : "";
  });
  const item = list.children[step.line - 1];
  if (item) list.scrollTop = item.offsetTop - list.offsetTop - list.clientHeight / 2;
}

// The first step of a page of the timeline, and how wide a step is.
function pageOf({each, last, wide}, step) {
  return [Math.max(Math.min(step - step % each, last + 1 - each), 0), wide / Math.min(each, last + 1)];
}

// The timeline of the step's block where its warp is: a page of steps, its last row marked, and the same in words.
function drawTimeline(trace, number) {
  const now = trace.steps[number], lanes = trace.timelines?.[now.block];
  if (!lanes) return ["", ""];
  const [, step, last, top, said] = lanes.at.findLast(([n]) => n <= number && trace.steps[n].warp === now.warp)
    ?? [0, 0, 0, -99, "nothing yet"];
  const [first, unit] = pageOf(lanes, step), page = lanes.pages[Math.floor(step / lanes.each)];
  const x = lanes.left + unit * (step - first), wide = Math.min(unit * (last + 1 - step), lanes.left + lanes.wide - x);
  const bottom = Math.max(20, ...lanes.at.map(row => row[3])) + lanes.high;
  const mark = `<path d="M${x + unit / 2} 16V${bottom}" class="lc-s-focus" stroke-dasharray="2 3"/><rect x="${x}" y="${top}" ` +
    `width="${wide}" height="${lanes.high}" fill="none" class="lc-s-focus" stroke-width="2.5"/>`;
  return [page.replace("</svg>", `${mark}</svg>`), `Timeline: warp ${now.warp}, ${said}.`];
}

// Where a pointer meets a lane: the step of the row there, or of the one before it.
function pointedAt(trace, number, svg, {clientX, clientY}) {
  const lanes = trace.timelines[trace.steps[number].block], label = svg.textContent.match(/steps (\d+) to/);
  const at = new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
  const step = Number(label[1]) + (at.x - lanes.left) / pageOf(lanes, 0)[1];
  return lanes.at.findLast(([, when, , top]) => when <= step && top <= at.y && at.y < top + lanes.high)?.[0] ?? number;
}

// What a lane loaded and stored last, newest first.
function laneInWords(trace, number, lane) {
  const now = trace.steps[number], said = [];
  for (let n = number; n >= 0 && said.length < 5 && trace.steps[n].block === now.block; n--) {
    const step = trace.steps[n];
    if (step.warp !== now.warp || !step.n_events) continue;
    const event = trace.eventsOf(step).find(e => e[0] === lane);
    if (!event) continue;
    const array = trace.arrayOf(step), place = Math.floor(event[1] / (array.itemsize || 1));
    const value = event[3] === null ? "a value that is not known" : [event[3]].flat().join(", ");
    said.push(`line ${step.line} ${step.kind} ${array.name}[${place}]: ${value}`);
  }
  return `Lane ${lane} of warp ${now.warp}, newest first: ${said.join("; ") || "no access yet"}.`;
}

// --- what a person meets ---

const KEYS = {ArrowRight: "next", ArrowLeft: "back", " ": "play", a: "access", c: "conflict", b: "barrier",
              l: "line", Home: "first", End: "last"};
const BUTTONS = {back: "◀ step", next: "step ▶", access: "next access", conflict: "next conflict",
                 barrier: "next barrier", line: "next line"};
const HELP = "Keys: arrows step, space plays, a next access, c next conflict, b next barrier, l next line.";

// over the guide: one page, its parts and what they do to it
function play(root, data) {
  const trace = unpack(data), last = Math.max(trace.steps.length - 1, 0);
  const leave = prepare(root, `${trace.kernel}, replayed`);
  const [time, warps, lanes] = [1, 2, 3].map(() => element("div"));
  const arrays = trace.arrays.map(() => element("div", {class: "lc-array"}));
  const words = element("p", {class: "lc-words", "aria-live": "polite"});
  const [history, registers, reached] = [1, 2, 3].map(() => element("p", {class: "lc-words"}));
  const source = element("ol", {class: "lc-source", tabindex: 0});
  const values = trace.steps.map((_, n) => n + 1);
  const place = slider({name: "step", label: "step", values}, n => show(n - 1));
  const drawTime = timeLine(trace), touched = touching(trace);
  let number = trace.first, drawn = null, lane = trace.error?.accesses[0]?.lane ?? 0;

  function show(to, said = "") {
    if (!trace.steps.length) return;
    number = Math.min(Math.max(to, 0), last);
    place.show(number + 1);
    time.innerHTML = drawTime(number);
    warps.innerHTML = drawWarps(trace, number, lane);
    const before = touched(number), changed = changedBetween(trace, drawn, number);
    for (const n of changed) arrays[n].innerHTML = drawArray(trace, number, n, before[n]);
    drawn = number;
    drawSource(trace, number, source);
    [lanes.innerHTML, reached.textContent] = drawTimeline(trace, number);
    words.textContent = said + wordsOf(trace, number);
    history.textContent = laneInWords(trace, number, lane);
    registers.textContent = `Its variables: ${variablesInWords(trace, number, lane)}`;
  }
  const runs = player(() => { show(number + 1); return number < last; },
    () => { if (number === last) show(0); }, 250);
  const moves = {next: () => show(number + 1), back: () => show(number - 1), first: () => show(0),
                 last: () => show(last), play: () => runs.click()};
  for (const goal of Object.keys(GOALS)) moves[goal] = () => {
    const to = jump(trace, number, goal);
    show(to, to === number ? `No ${goal} follows. ` : "");
  };
  root.addEventListener("keydown", event => {
    const pressed = event.target.matches("button") && [" ", "Enter"].includes(event.key);
    if (!(event.key in KEYS) || pressed || event.ctrlKey || event.metaKey || event.altKey) return;
    moves[KEYS[event.key]]();
    event.preventDefault();
    event.stopPropagation();
  });
  lanes.addEventListener("click", event => {
    const svg = event.target.closest("svg");
    if (svg) show(pointedAt(trace, number, svg, event));
  });
  root.addEventListener("click", event => {
    const mark = event.target.closest?.("[data-lane],[data-set]");
    if (mark?.dataset.lane) { lane = Number(mark.dataset.lane); show(number); }
    if (mark?.dataset.set) show(JSON.parse(mark.dataset.set).step);
  });
  const help = HELP + (trace.cut ? ` Recorded: ${trace.cut}.` : "");
  const key = name => Object.keys(KEYS).find(k => KEYS[k] === name);
  const buttons = Object.entries(BUTTONS).map(([name, text]) =>
    element("button", {type: "button", title: `key: ${key(name)}`, onclick: moves[name]}, text));
  const controls = element("div", {class: "lc-controls"}, ...buttons, runs, place.node);
  root.replaceChildren(title(trace), ...racing(trace, show), time, controls, words, source, lanes,
    reached, warps, ...arrays, history, registers, element("p", {class: "lc-caption"}, help));
  root.tabIndex = 0;
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  show(number);
  // the list of lines has no height, and cannot scroll, until the page is laid out
  if (trace.steps.length) globalThis.requestAnimationFrame?.(() => drawSource(trace, number, source));
  return leave;
}

function title(trace) {
  const size = sizes => sizes.slice(0, sizes[2] > 1 ? 3 : sizes[1] > 1 ? 2 : 1).join(" x ");
  const text = `${trace.kernel}, grid ${size(trace.grid)}, block ${size(trace.block)}`;
  return element("p", {class: "lc-title"}, text);
}

// The message of an error, and a button for each access that it speaks of.
function racing(trace, show) {
  if (!trace.error) return [];
  const label = ({step, lane}, n) =>
    `access ${n + 1}: warp ${trace.steps[step].warp}, lane ${lane}, line ${trace.steps[step].line}`;
  const buttons = trace.error.accesses.map((access, n) =>
    element("button", {type: "button", onclick: () => show(access.step)}, label(access, n)));
  return [element("p", {class: "lc-problem"}, trace.error.message),
          element("div", {class: "lc-controls"}, ...buttons),
          element("p", {class: "lc-words"}, betweenInWords(trace))];
}

function render({model, el}) {
  const root = element("div");
  el.append(root);
  return play(root, model.get("data"));
}

export default {render};
