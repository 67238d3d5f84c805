// The player of a recorded launch. `data` is what laptop_cuda/player.py packs: it comes once, and everything that is
// shown is read from it. The counts are the engine's; a test holds the words to those of player.py.

const LANES = [...Array(32).keys()];

// --- what computes ---

function unpack(data) {
  const steps = data.steps.rows.map(row => Object.fromEntries(data.steps.columns.map((name, n) => [name, row[n]])));
  return {...data, steps, arrayOf: step => step.array === null ? null : data.arrays[step.array],
          eventsOf: step => data.events.slice(step.first_event, step.first_event + step.n_events)};
}

const active = (mask, lane) => (mask >>> lane & 1) === 1;

function lanesInWords(mask) {
  const found = LANES.filter(lane => active(mask, lane));
  if (!found.length) return "No lane";
  if (found.length === 1) return `Lane ${found[0]}`;
  return found.at(-1) - found[0] + 1 === found.length ? `Lanes ${found[0]} to ${found.at(-1)}`
    : `${found.length} of 32 lanes`;
}

const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;

function where(trace, step) {
  const array = trace.arrayOf(step), item = array.itemsize || 1;
  const places = trace.eventsOf(step).map(([, offset]) => Math.floor(offset / item));
  const [first, last] = [places[0] ?? 0, places.at(-1) ?? 0].map(place => `${array.name}[${place}]`);
  return new Set(places).size < 2 ? first : `${first} to ${last}`;
}

function cost(trace, step) {
  const asked = trace.eventsOf(step).reduce((sum, event) => sum + event[2], 0);
  if (trace.arrayOf(step).space === "shared")
    return `${asked} bytes in ${counted(step.wavefronts, "pass", "passes")}, ${step.excess} lost to conflicts`;
  return `${asked} bytes in ${counted(step.sectors, "sector", "sectors")}, ${32 * step.sectors} bytes moved`;
}

function what(trace, step) {
  const who = lanesInWords(step.lanes);
  if (step.kind === "barrier") return `${who} at a barrier.`;
  if (step.kind === "exchange") return `${who} in a shuffle, a vote or a warp synchronisation.`;
  return step.array === null ? `${who} active.` : `${who}: ${step.kind} ${where(trace, step)}, ${cost(trace, step)}.`;
}

function wordsOf(trace, number) {
  if (!trace.steps.length) return "The launch has no recorded step.";
  const step = trace.steps[number];
  const file = step.file === trace.source.name ? "" : ` of ${step.file}`;
  const line = step.line ? `line ${step.line}${file}` : "a line that is not known";
  return `Step ${number + 1} of ${trace.steps.length}: block ${step.block}, interval ${step.interval}, ` +
    `warp ${step.warp}, ${line}. ${what(trace, step)}`;
}

// {bank: the words that lanes want of it}, {sector: its bytes that lanes asked for}
function banksOf(events, array) {
  const found = new Map();
  for (const [, offset, size] of events)
    for (let word = Math.floor((array.offset + offset) / 4); 4 * word < array.offset + offset + size; word++)
      found.set(word % 32, (found.get(word % 32) ?? new Set()).add(word));
  return found;
}

function sectorsOf(events, array) {
  const found = new Map();
  for (const [, offset, size] of events)
    for (let byte = array.start + offset; byte < array.start + offset + size; byte++) {
      const sector = Math.floor(byte / 32);
      found.set(sector, (found.get(sector) ?? new Set()).add(byte));
    }
  return found;
}

// The warps of the step's block as they are at that step: for each lane its line, and whether it is active.
function warpsAt(trace, number) {
  const now = trace.steps[number], rows = new Map();
  for (let n = number; n >= 0 && trace.steps[n].block === now.block; n--) {
    const step = trace.steps[n];
    if (!rows.has(step.warp)) rows.set(step.warp, {warp: step.warp, mask: step.lanes, lines: Array(32).fill(0)});
    const row = rows.get(step.warp);
    for (const lane of LANES) if (active(step.lanes, lane) && !row.lines[lane]) row.lines[lane] = step.line;
  }
  return [...rows.values()].sort((a, b) => a.warp - b.warp);
}

// What lanes touched in an array up to a step, in its block where the array is shared: {unit: last kind}.
function touchedUntil(trace, number, index) {
  const now = trace.steps[number], shared = trace.arrays[index].space === "shared", found = new Map();
  for (let n = 0; n <= number; n++) {
    const step = trace.steps[n];
    if (step.array !== index || (shared && step.block !== now.block)) continue;
    const units = shared ? [...banksOf(trace.eventsOf(step), trace.arrays[index]).values()].flatMap(s => [...s])
      : [...sectorsOf(trace.eventsOf(step), trace.arrays[index]).keys()];
    for (const unit of units) found.set(unit, step.kind);
  }
  return found;
}

const GOALS = {
  barrier: (step, from) => step.kind === "barrier" || step.interval !== from.interval || step.block !== from.block,
  conflict: step => step.excess > 0,
  line: (step, from) => step.line !== from.line || step.warp !== from.warp,
  access: step => step.n_events > 0,
};

// The next step that a goal names, or the present one where there is none.
function jump(trace, number, goal) {
  const from = trace.steps[number];
  for (let n = number + 1; n < trace.steps.length; n++) if (GOALS[goal](trace.steps[n], from)) return n;
  return number;
}

// What lies between the two accesses of an error, in words.
function betweenInWords(trace) {
  const accesses = trace.error?.accesses ?? [];
  if (accesses.length < 2) return "";
  const [first, last] = accesses.map(a => a.step).sort((a, b) => a - b);
  const between = trace.steps.slice(first + 1, last);
  const barriers = between.filter(step => step.kind === "barrier").length;
  const ordered = trace.steps[first].warp === trace.steps[last].warp ? "" :
    " No order between two warps is given but by barriers, so either access can be the first.";
  return `Between the two accesses: ${counted(between.length, "step", "steps")} and ` +
    `${counted(barriers, "barrier", "barriers")}.${ordered}`;
}

// --- what draws ---

const KIND = {load: "0", store: "1", atomic: "3"};
const quoted = text => String(text).replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);

function box(x, y, width, height, fill, text = "", about = "", more = "") {
  const label = text === "" ? "" :
    `<text x="${x + width / 2}" y="${y + height / 2 + 4}" font-size="10" text-anchor="middle" class="lc-f-ink"` +
    ` pointer-events="none">${quoted(text)}</text>`;
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" class="lc-f-${fill} lc-s-line" ${more}>` +
    `<title>${quoted(about)}</title></rect>${label}`;
}

const note = (x, y, text, more = "") =>
  `<text x="${x}" y="${y}" font-size="11" class="lc-f-faint" ${more}>${quoted(text)}</text>`;

const paper = (height, body, label) =>
  `<svg class="lc" viewBox="0 0 700 ${height}" width="700" role="img" aria-label="${quoted(label)}">${body}</svg>`;

// Intervals as boxes as wide as their steps are many, conflicts as red ticks, the step as a line.
function drawTime(trace, number) {
  const width = 660 / Math.max(trace.steps.length, 1), at = n => 20 + n * width;
  let body = "";
  for (const interval of trace.intervals) {
    const title = `block ${interval.block}, interval ${interval.number}: ${interval.n_steps} steps, ends with ` +
      (interval.ends === "barrier" ? `the barrier of line ${interval.line}` : interval.ends);
    body += box(at(interval.first_step), 16, interval.n_steps * width, 18, interval.block % 2 ? "soft" : "empty", "", title,
                `data-set='{"step":${interval.first_step}}' style="cursor:pointer"`);
  }
  const ticks = new Set(trace.steps.flatMap((step, n) => step.excess ? [Math.round(at(n))] : []));
  body += `<path d="${[...ticks].map(x => `M${x} 27v7`).join("")}" class="lc-s-warn"/>`;
  body += `<path d="M${at(number + 0.5)} 11v28" class="lc-s-focus" stroke-width="2.5"/>`;
  return paper(42, note(20, 9, "time: a box per interval between barriers; red: bank conflicts") + body, "time line");
}

function drawWarps(trace, number, chosen) {
  const now = trace.steps[number], rows = warpsAt(trace, number), marked = trace.error?.accesses ?? [];
  const accused = marked.map(a => `${trace.steps[a.step].block}/${trace.steps[a.step].warp}/${a.lane}`);
  const kept = rows.filter(row => rows.length <= 8 || row.warp === now.warp
    || accused.some(a => a.startsWith(`${now.block}/${row.warp}/`)) || row.warp < 6).slice(0, 10);
  let body = "";
  kept.forEach((row, n) => {
    const y = 4 + 24 * n, present = row.warp === now.warp;
    body += note(38, y + 14, `w${row.warp}`, `text-anchor="end"${present ? ' font-weight="700"' : ""}`);
    for (const lane of LANES) {
      const on = present && active(row.mask, lane), wrong = accused.includes(`${now.block}/${row.warp}/${lane}`);
      const about = `warp ${row.warp}, lane ${lane}: line ${row.lines[lane] || "not begun"}, ` +
        `${present ? on ? "active" : "masked" : "waits"}${wrong ? "; the error speaks of it" : ""}`;
      body += box(44 + 20 * lane, y, 19, 20, on ? KIND[now.kind] ?? "4" : "empty", row.lines[lane] || "", about,
                  `data-lane="${lane}"` + (wrong ? ' style="stroke:var(--lc-warn);stroke-width:3"'
                    : lane === chosen && present ? ' style="stroke:var(--lc-focus);stroke-width:2"' : ""));
    }
  });
  const hidden = rows.length - kept.length;
  const text = `a row per warp, a box per lane with the line where it is; filled: active now` +
    (hidden ? `; ${hidden} warps not shown` : "");
  return paper(24 * kept.length + 22, body + note(44, 24 * kept.length + 16, text), "lanes");
}

const MOST_UNITS = 512;

// A window of at most 512 sectors, or 32 rows of banks, around what is touched now.
function drawArray(trace, number, index) {
  const step = trace.steps[number], array = trace.arrays[index], shared = array.space === "shared";
  const now = step.array === index ? (shared ? banksOf(trace.eventsOf(step), array)
    : sectorsOf(trace.eventsOf(step), array)) : new Map();
  const units = shared ? [...now.values()].flatMap(words => [...words]) : [...now.keys()];
  const before = touchedUntil(trace, number, index);
  const perRow = 32, begin = shared ? Math.floor(array.offset / 4) : 0;
  const end = Math.ceil(((shared ? array.offset : array.start) + array.bytes) / (shared ? 4 : 32));
  const most = units.length ? Math.min(...units) : Math.min(...before.keys(), end) % end;
  const wide = end - Math.floor(begin / perRow) * perRow <= MOST_UNITS;
  const first = Math.floor((wide ? begin : most) / perRow) * perRow, last = Math.min(end, first + MOST_UNITS);
  let body = "", untouched = "";
  for (let unit = first; unit < last; unit++) {
    if (unit < begin) continue;
    const x = 44 + 20 * (unit % perRow), y = 20 + 12 * Math.floor((unit - first) / perRow);
    const kind = before.get(unit), words = shared ? now.get(unit % 32) : undefined;
    const here = shared ? words?.has(unit) : now.has(unit);
    if (!kind) { untouched += `M${x} ${y}h18v10h-18z`; continue; }
    const bytes = shared ? 0 : now.get(unit)?.size ?? 0;
    const fill = !here ? "soft" : words?.size > 1 ? "warn" : KIND[step.kind];
    const about = shared ? `word ${unit - begin}, bank ${unit % 32}: ${here ? step.kind + " now" : kind + " before"}`
      : `sector ${unit}: ${here ? `${bytes} of 32 bytes asked for now` : kind + " before"}`;
    body += `<rect x="${x}" y="${y}" width="18" height="10" class="lc-f-${fill} lc-s-line"><title>${quoted(about)}` +
      "</title></rect>" + (here && !shared ? `<rect x="${x}" y="${y + 8}" width="${18 * bytes / 32}" height="2" ` +
      `class="lc-f-ink"/>` : "");
  }
  const rows = Math.ceil((last - first) / perRow);
  const size = `${array.name}: ${array.bytes.toLocaleString("en")} bytes of ${array.space} memory`;
  const key = shared ? "; a column per bank, red: words that wait for their bank" : "; a box per sector, its bar what was asked for";
  const part = wide ? "" : `; ${shared ? "words" : "sectors"} ${first - begin} to ${last - begin - 1} shown`;
  return paper(24 + 12 * rows, note(44, 12, size + key + part) +
    `<path d="${untouched}" fill="none" class="lc-s-line"/>` + body, size);
}

function drawSource(trace, number, list) {
  const step = trace.steps[number], here = step.file === trace.source.name ? step.line : 0;
  const waiting = new Map();
  for (const row of warpsAt(trace, number)) for (const line of row.lines) waiting.set(line, (waiting.get(line) ?? 0) + 1);
  [...list.children].forEach((item, n) => {
    item.className = n + 1 === here ? "lc-now" : waiting.has(n + 1) ? "lc-waits" : "";
    item.toggleAttribute("aria-current", n + 1 === here);
  });
  const item = list.children[here - 1];
  if (item) list.scrollTop = item.offsetTop - list.offsetTop - list.clientHeight / 2;
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
    const value = event[3] === null ? "a value that is not known" : [event[3]].flat().map(shortNumber).join(", ");
    said.push(`line ${step.line} ${step.kind} ${array.name}[${place}]: ${value}`);
  }
  return `Lane ${lane} of warp ${now.warp}, newest first: ${said.join("; ") || "no access yet"}.`;
}

const shortNumber = value => typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(6) : value;

// --- what a person meets ---

const KEYS = {ArrowRight: "next", ArrowLeft: "back", " ": "play", b: "barrier", c: "conflict", l: "line", a: "access",
              Home: "first", End: "last"};

function play(root, data) {
  const trace = unpack(data), last = Math.max(trace.steps.length - 1, 0);
  const leave = prepare(root, `${trace.kernel}, replayed`);
  let number = trace.first, lane = trace.error?.accesses[0]?.lane ?? 0;
  const hosts = Object.fromEntries(["time", "warps", "memory"].map(name => [name, element("div")]));
  const words = element("p", {class: "lc-words", "aria-live": "polite"}), chosen = element("p", {class: "lc-words"});
  const source = element("ol", {class: "lc-source", tabindex: 0, "aria-label": "source"},
    ...trace.source.lines.map(line => element("li", {}, line || " ")));
  const place = slider({name: "step", label: "step", values: trace.steps.map((_, n) => n)}, show);
  const runs = player(() => { show(Math.min(number + 1, last)); return number < last; },
    () => { if (number === last) show(0); }, 250);
  const moves = {next: () => number + 1, back: () => number - 1, first: () => 0, last: () => last};
  for (const goal of Object.keys(GOALS)) moves[goal] = () => jump(trace, number, goal);
  const go = name => name === "play" ? runs.click() : show(moves[name]());
  function show(to) {
    if (!trace.steps.length) return;
    number = Math.min(Math.max(to, 0), last);
    place.show(number);
    hosts.time.innerHTML = drawTime(trace, number);
    hosts.warps.innerHTML = drawWarps(trace, number, lane);
    hosts.memory.innerHTML = trace.arrays.map((_, n) => drawArray(trace, number, n)).join("");
    drawSource(trace, number, source);
    words.textContent = wordsOf(trace, number);
    chosen.textContent = laneInWords(trace, number, lane);
  }
  const key = name => Object.keys(KEYS).find(k => KEYS[k] === name).replace(" ", "Space");
  const button = (name, text) => element("button", {type: "button", title: `key: ${key(name)}`, onclick: () => go(name)}, text);
  root.addEventListener("keydown", event => {
    const typed = event.target.matches("button") && [" ", "Enter"].includes(event.key);
    if (!(event.key in KEYS) || typed || event.ctrlKey || event.metaKey || event.altKey) return;
    go(KEYS[event.key]);
    event.preventDefault();
    event.stopPropagation();
  });
  root.addEventListener("click", event => {
    const box_ = event.target.closest?.("[data-lane],[data-set]");
    if (box_?.dataset.lane) { lane = Number(box_.dataset.lane); show(number); }
    if (box_?.dataset.set) show(JSON.parse(box_.dataset.set).step);
  });
  const buttons = [button("back", "◀ step"), button("next", "step ▶"), runs, button("access", "next access"),
    button("conflict", "next conflict"), button("barrier", "next barrier"), button("line", "next line")];
  const size = sizes => sizes.slice(0, sizes[2] > 1 ? 3 : sizes[1] > 1 ? 2 : 1).join(" x ");
  root.replaceChildren(element("p", {class: "lc-title"},
    `${trace.kernel}, grid ${size(trace.grid)}, block ${size(trace.block)}`), ...racing(trace, show), hosts.time,
    element("div", {class: "lc-controls"}, ...buttons, place.node), words, source, hosts.warps, hosts.memory, chosen,
    element("p", {class: "lc-caption"}, "Keys: arrows step, space plays, a next access, c next conflict, b next barrier, " +
      `l next line.${trace.cut ? ` Recorded: ${trace.cut}.` : ""}`));
  root.tabIndex = 0;
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  show(number);
  return leave;
}

// The message of an error, and a button for each access that it speaks of.
function racing(trace, show) {
  if (!trace.error) return [];
  const buttons = trace.error.accesses.map(({step, lane}, n) => element("button", {type: "button", onclick: () => show(step)},
    `access ${n + 1}: warp ${trace.steps[step].warp}, lane ${lane}, line ${trace.steps[step].line}`));
  return [element("p", {class: "lc-problem"}, `${trace.error.kind}: ${trace.error.message}`),
          element("div", {class: "lc-controls"}, ...buttons), element("p", {class: "lc-words"}, betweenInWords(trace))];
}

function render({model, el}) {
  const root = element("div");
  el.append(root);
  return play(root, model.get("data"));
}

export default {render};
