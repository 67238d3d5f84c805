// A button below each launch that runs on the page: the chapter's module in a worker, its counts and findings drawn.
// This file, play.js and, where a page has a compiler, edit.js and work.js are one function (running.py).
const SECONDS = 20;              // then a launch is ended
const ROWS = ["global loads", "global stores", "shared loads", "shared stores", "global atomics", "shared atomics",
  "barriers", "", "", "copies in", "copies out", "tensor cores"];
const VERBS = ["reads", "writes", "atomically updates", "waits at", "frees", "touches"];
const chapters = {};             // by page: what loads {head, data, module} once
const live = {};                 // of edit.js and work.js: an editor for a launch, a cell for an exercise

const make = (tag, properties = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...inside);
  return made;
};
const button = (act, words, properties = {}) => {
  const made = make("button", { type: "button", ...properties }, ...[words].flat());
  made.dataset.act = act;
  return made;
};
const said = n => Number(n).toLocaleString("en-US");

// The same promise for everybody; after a failure the next call tries again.
function once(load) {
  let made = null;
  return () => made ??= load().catch(error => { made = null; throw error; });
}

// What a script of the book leaves behind.
const script = (src, left, incomplete, missing) => new Promise((done, failed) => document.head.append(make("script", { src,
  onload: () => left() ? done(left()) : failed(new Error(incomplete)), onerror: () => failed(new Error(missing)) })));

function lacking() {
  const names = [["WebAssembly", window.WebAssembly], ["workers", window.Worker],
    ["unpacking (DecompressionStream)", window.DecompressionStream]].filter(([, has]) => !has).map(([name]) => name);
  return names.length ? `This browser has no ${names.join(", no ")}, or it is switched off, so kernels do not run here. ` +
    "In JupyterLab they do: make lab." : "";
}

const chapter = page => (chapters[page] ??= once(async () => unpacked(window.courseRuns?.[page] ?? await script(
  `../_static/page/${page}.js`, () => window.courseRuns?.[page], "The kernels of this chapter came incomplete. Try again.",
  "The kernels of this chapter could not be loaded. Is the connection closed, or was the page copied without " +
  `_static/page/${page}.js?`))))();

async function unpacked(text) {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const part = at => {
    const size = new DataView(bytes.buffer).getUint32(at, true);
    return bytes.subarray(at + 16, at + 16 + size);
  };
  const head = part(0), data = part(16 + head.length);
  const module = await WebAssembly.compile(bytes.subarray(32 + head.length + data.length));
  return { ...JSON.parse(new TextDecoder().decode(head)), data, module };
}

// Questions to one worker, one after another; Stop, an error or a clock ends it. `listener` is given the ways to end its
// question, and gives what hears the messages.
function talker(start, broken) {
  let worker = null, free = Promise.resolve();
  const asked = (question, stop, listener) => new Promise(resolve => {
    let clock;
    const done = answer => { clearTimeout(clock); resolve(answer); };
    const ended = (words, more) => {
      worker?.terminate(), worker = null;
      done(Promise.reject(Object.assign(new Error(words), more)));
    };
    worker ??= start();
    const hear = listener({ done, ended, within: (seconds, ...told) => { clock = setTimeout(ended, 1000 * seconds, ...told); } });
    stop.onclick = () => ended("Stopped.");
    worker.onerror = event => ended(broken(event));
    worker.onmessage = ({ data }) => hear(data);
    worker.postMessage(question);
  });
  return (...question) => free = free.catch(() => {}).then(() => asked(...question));
}

const askLauncher = talker(() => {
  const text = `${window.courseLaunch}\nonmessage = ({ data: { module, launch, data } }) => {
    try { postMessage({ answer: laptopLaunch(module, launch, data) }); }
    catch (error) { postMessage({ crash: String(error.message ?? error) }); } };
    onmessageerror = () => postMessage({ crash: "no memory" });`;       // it cannot hold the module
  try { return new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" }))); }
  catch (error) { throw new Error(`This browser starts no worker here (${error.message}). In JupyterLab kernels run.`); }
}, event => `The browser ended the launch: ${event.message}`);

const inWorker = (module, launch, data, stop) => askLauncher({ module, launch, data }, stop, ({ done, ended, within }) => {
  within(SECONDS, `The launch was stopped after ${SECONDS} seconds. Usual cause: a loop that does not end, or a size that is large ` +
    "for a page.", { late: true });
  return ({ answer, crash }) => answer ? done(answer) : ended(crashed(crash));
});

function crashed(words) {
  const why = /memory|allocation/i.test(words) && !/out of bounds/.test(words)
    ? "there is not enough memory for it on this page" : /call stack/.test(words) ? "a thread used up its stack"
    : words === "unreachable" ? "a thread used up its stack, or the kernel has a trap" : words;
  return `The launch crashed: ${why}. The page goes on, and so does the next launch.`;
}

// What the reader has changed: sizes, values, and what the input arrays hold.
function changed(launch, form) {
  const sizes = text => [...text.split(/[ ,x]+/).filter(Boolean).map(Number), 1, 1].slice(0, 3);
  const made = { ...launch, grid: sizes(form.grid.value), block: sizes(form.block.value), inputs: form.inputs.value };
  for (const name of ["grid", "block"])
    if (made[name].some(n => !Number.isInteger(n) || n < 0 || n > 2 ** 31 - 1))
      throw new Error(`${name}: one to three whole numbers, as in 4 or 4, 2; got ${form[name].value}`);
  made.args = launch.args.map(a => {
    const field = form[`value-${a.name}`];
    if (!field) return a;
    const n = Number(field.value);
    if (!field.value.trim() || !Number.isFinite(n) || a.dtype !== "float32" && !Number.isInteger(n))
      throw new Error(`${a.name}: a ${a.dtype === "float32" ? "" : "whole "}number, got ${field.value || "nothing"}`);
    return { ...a, value: [...new Uint8Array(new TYPED[a.dtype]([n]).buffer)] };
  });
  return made;
}

function table(head, rows) {
  const line = (tag, row) => make("tr", {}, ...row.map((text, n) =>
    make(text ? tag : "td", { className: n && typeof text === "string" ? "number" : "" }, text)));
  return make("div", { className: "run-table", tabIndex: 0 }, make("table", {}, make("thead", {}, line("th", head)),
    make("tbody", {}, ...rows.map(row => line("td", row)))));
}

function drawn(answer, source) {
  const rows = answer.table.map(({ operation: o, requests, bytes, sectors, unique, wavefronts, excess, lanes }) => {
    const global = [0, 1, 9, 10].includes(o), shared = o === 2 || o === 3;
    return [ROWS[o], said(requests), global || shared ? said(bytes) : o === 6 ? "" : said(lanes),
      global ? said(32 * sectors) : shared ? `${said(wavefronts)} pass${wavefronts === 1 ? "" : "es"}` : "",
      global ? said(32 * unique) : shared && excess ? `${said(excess)} from conflicts` : ""];
  });
  const lines = answer.lines.map(l => [String(l.line || "?"), l.bytes ? said(l.bytes) : "", l.sectors ? said(32 * l.sectors) : "",
    l.wavefronts ? said(l.wavefronts) + (l.excess ? ` (${said(l.excess)} from conflicts)` : "") : "",
    l.atomics ? said(l.atomics) : "", make("code", {}, l.line ? (source.lines[l.file]?.[l.line - 1] ?? "").trim() : "")]);
  return [table(["", "requests", "asked (bytes)", "moved (bytes)", "unique (bytes)"], rows),
    table(["line", "asked", "moved", "shared passes", "atomics", make("span", {}, "source")], lines)];
}

const results = answer => answer.arrays.filter(a => !a.const).map(a => {
  const all = numbers(a), shown = all.slice(0, 8).map(shortened(a.dtype)).join(", ") + (all.length > 8 ? ", ..." : "");
  return make("p", { className: "run-array" }, make("code", {}, `${a.name} (${a.shape.join(" x ")}) = [${shown}]`));
});

// The laptop's own words where they are about the same finding; else what the engine found, part by part.
function told(e, { kernel, grid, block, laptop }, source) {
  const item = e.itemsize || 1, place = e.offset % item ? ` at byte ${e.offset}` : `[${e.offset / item}]`;
  const at = (index, size) => size[2] > 1 || size[1] > 1 ? `(${index.slice(0, size[2] > 1 ? 3 : 2).join(", ")})` : index[0];
  const same = laptop?.kind === e.kind && laptop.line === (e.who?.line ?? 0) && String(laptop.thread) === String(e.who?.thread ?? null) &&
    String(laptop.block) === String(e.who?.block ?? null) && (!e.array || laptop.message.includes(e.array + place));
  if (same) return laptop.message;
  const verb = party => VERBS[party?.action ?? 5];
  const side = party => `  ${party.line ? `line ${party.line}, ` : ""}block ${at(party.block, grid)}, thread ${at(party.thread, block)}: ` +
    verb(party) + (party.line ? `\n${String(party.line).padStart(6)} | ${source.lines[party.file]?.[party.line - 1] ?? ""}` : "");
  const what = e.array ? `${kernel} ${verb(e.who)} ${e.array}${place}, of ${said(e.array_bytes / item)} elements`
    : `${kernel}, grid ${grid.join(" x ")}, block ${block.join(" x ")}: ` + (e.reason === "steps"
      ? `a thread took more than ${said(e.offset)} steps` : [e.reason, e.detail].filter(Boolean).join(": "));
  return [`${e.kind}: ${what}`, ...[e.who, e.other].filter(Boolean).map(side)].join("\n");
}

// What is told below a cell's form, whose button runs `act`.
function panel(form, submit, stop, act) {
  const words = make("p", { className: "run-told", ariaLive: "polite" }), result = make("div", { className: "run-result" }, words);
  const say = (state, text, ...inside) => {
    result.dataset.state = state;
    words.textContent = text;                    // all that a screen reader is told
    result.replaceChildren(words, ...inside);
  };
  result.dataset.result = "", result.dataset.state = "idle";
  form.onsubmit = async event => {
    event.preventDefault();
    if (submit.disabled) return;
    submit.disabled = true, stop.hidden = false;
    try {
      const without = lacking();
      if (without) throw new Error(without);
      await act();
    } catch (error) {
      say("error", error.message, ...(error.shown ? [make("pre", { className: "run-finding" }, error.shown)] : []));
    }
    submit.disabled = false, stop.hidden = true;
    if (document.activeElement === document.body) submit.focus({ preventScroll: true });
  };
  return { result, say, stop };
}

async function run(cell, form, { result, say, stop }) {
  delete result.dataset.counts;
  const began = performance.now();
  say("loading", "Loading the kernels of this chapter ...");
  const { launches, sources, data, module: built } = await chapter(cell.dataset.page);
  const given = launches[cell.dataset.kernel], text = sources[given.source];
  const own = await cell.edited?.(given, text, { say, stop });
  const { module, launch, source } = own ?? { module: built, launch: given, source: text };
  const made = changed(launch, form);
  say("running", "Running ...");
  const answer = await inWorker(module, made, data, stop);
  const took = `in ${Math.round(performance.now() - began)} ms in this browser, by the course's engine`;
  const printed = answer.printed ? [make("pre", {}, answer.printed)] : [];
  const message = answer.error ? told(answer.error, made, source) : "";
  const steps = stepper(made, answer.error, again => inWorker(module, again, data, stop), source, message);
  const notes = answer.notes.map(e => make("pre", { className: "run-note" }, told(e, { ...made, laptop: null }, source)));
  if (answer.error) {
    result.dataset.finding = JSON.stringify(answer.error);
    return say("finding", `Found ${took}: ${answer.error.kind}.`, ...printed, make("pre", { className: "run-finding" },
      message), steps);
  }
  result.dataset.counts = JSON.stringify(answer.counts);
  say("done", `Counted and checked ${took}.`, ...printed, ...results(answer), ...drawn(answer, source), ...notes, steps);
}

const field = (label, value, size = 6, name = label) =>
  make("label", {}, `${label} `, make("input", { name, value, size, autocomplete: "off", spellcheck: false }));

function number([, dtype, bytes]) {
  return String(+new TYPED[dtype](Uint8Array.from(bytes).buffer)[0].toPrecision(7));
}

function mount(cell) {
  if (cell.dataset.exercise) return live.exercise?.(cell);
  const { kernel, grid, block, values } = JSON.parse(cell.dataset.launch);
  const sizes = given => given.slice(0, given[2] > 1 ? 3 : given[1] > 1 ? 2 : 1).join(", ");
  const submit = button("run", ["Run ", make("code", {}, kernel)], { type: "submit" }), stop = button("stop", "Stop", { hidden: true });
  const inputs = make("select", { name: "inputs" }, make("option", { value: "given" }, "of the chapter"),
    make("option", { value: "counted" }, "0, 1, 2, ..."), make("option", { value: "random" }, "random"));
  const form = make("form", { className: "run-bar" }, submit, stop, field("grid", sizes(grid), 9), field("block", sizes(block), 9),
    ...values.map(v => field(v[0], number(v), 6, `value-${v[0]}`)), make("label", {}, "inputs ", inputs));
  const shown = panel(form, submit, stop, () => run(cell, form, shown));
  cell.replaceChildren(form, shown.result);
  live.editor?.(cell, form, shown, kernel);
}

addEventListener("DOMContentLoaded", () => document.querySelectorAll("course-cell").forEach(mount));
