// A button below each launch that runs on the page: the chapter's module in a worker, its counts and findings drawn.
// This file, play.js and, where a page has a compiler, edit.js and work.js are one function (running.py).
const SECONDS = 20;              // then a launch is ended
const chapters = {};             // by page: what loads {head, data, module} once
const live = {};                 // of edit.js and work.js: an editor for a launch, a cell for an exercise

const said = n => Number(n).toLocaleString("en-US");

// The same promise for everybody; after a failure the next call tries again.
function once(load) {
  let made = null;
  return () => made ??= load().catch(error => { made = null; throw error; });
}

// What a script of the book leaves behind.
const script = (src, left, missing) => new Promise((done, failed) => document.head.append(element("script", { src,
  onload: () => left() ? done(left()) : failed(new Error(missing)), onerror: () => failed(new Error(missing)) })));

const lacking = () => [["WebAssembly", window.WebAssembly], ["workers", window.Worker],
  ["unpacking (DecompressionStream)", window.DecompressionStream]].filter(([, has]) => !has).map(([name]) => name).join(", no ");

const chapter = page => (chapters[page] ??= once(async () => {
  const packed = await script(`../_static/page/${page}.js`, () => window.courseRuns?.[page], "The kernels of this chapter could " +
    `not be loaded whole. Is the connection closed, or was the page copied without _static/page/${page}.js?`);
  const [head, data, module] = await Promise.all(packed.map(unpacked));
  return { ...JSON.parse(new TextDecoder().decode(head)), data: new Uint8Array(data), module: await WebAssembly.compile(module) };
}))();

const bytesOf = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const unpacked = text => new Response(new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();

// Questions to one worker, one after another; Stop, an error or a clock ends it. `hear` gets a message, and the ways to end.
function talker(start, what) {
  let worker = null, free = Promise.resolve(), clock;
  const asked = (question, stop, hear) => new Promise((done, failed) => {
    const ended = (words, more) => { worker?.terminate(), worker = null, failed(Object.assign(new Error(words), more)); };
    const within = (seconds, ...told) => { clock = setTimeout(ended, 1000 * seconds, ...told); };
    worker ??= start();
    stop.onclick = () => ended("Stopped.");
    worker.onerror = event => ended(`${what}: ${event.message ?? "a file of it is missing, or workers are not allowed here"}.`);
    const ways = { done, failed, ended, within };
    worker.onmessage = ({ data }) => hear(data, ways);
    hear({ state: "asked" }, ways);
    worker.postMessage(question);
  }).finally(() => { clearTimeout(clock), worker && (worker.onmessage = null); });      // what it still loads is no news
  return (...question) => free = free.catch(() => {}).then(() => asked(...question));
}

const askLauncher = talker(() => {
  // what is thrown, once per thread, costs Chromium five times as much while it still delivers the event
  const text = `${window.courseLaunch}\nonmessage = async ({ data: { module, launch, data } }) => {
    await null;
    try { postMessage({ answer: laptopLaunch(module, launch, data) }); }
    catch (error) { postMessage({ crash: String(error.message ?? error) }); } };
    onmessageerror = () => postMessage({ crash: "no memory" });`;       // it cannot hold the module
  try { return new Worker(URL.createObjectURL(new Blob([text], { type: "text/javascript" }))); }
  catch (error) { throw new Error(`This browser starts no worker here (${error.message}). In JupyterLab kernels run.`); }
}, "The browser ended the launch");

const inWorker = (module, launch, data, stop) => askLauncher({ module, launch, data }, stop, ({ answer, crash }, ways) => answer
  ? ways.done(answer) : crash ? ways.ended(crashed(crash)) : ways.within(SECONDS, `The launch was stopped after ${SECONDS} seconds. ` +
    "Usual cause: a loop that does not end, or a size that is large for a page.", { late: true }));

const crashed = words => "The launch crashed: " + (/memory|allocation/i.test(words) && !/out of bounds/.test(words)
  ? "there is not enough memory for it on this page" : /call stack/.test(words) ? "a thread used up its stack"
  : words === "unreachable" ? "a thread used up its stack, or the kernel has a trap" : words) +
  ". The page goes on, and so does the next launch.";

// What the reader has changed: sizes, values, and what the input arrays hold. The form lets nothing else through.
function changed(launch, { elements }) {
  const sizes = ({ value }) => [...value.split(/[ ,x]+/).filter(Boolean).map(Number), 1, 1].slice(0, 3), inputs = elements.inputs.value;
  const args = launch.args.map(a => {
    const field = elements[`value-${a.name}`];
    return field ? { ...a, value: [...new Uint8Array(new TYPED[a.dtype]([field.value]).buffer)] } : a;
  });
  const same = inputs === "given" && [...elements].every(field => field.value === (field.defaultValue ?? field.value));
  return { ...launch, args, grid: sizes(elements.grid), block: sizes(elements.block), inputs, laptop: same ? launch.laptop : null };
}

// Numbers as they are said; a 0 is left out.
function table(head, rows) {
  const line = (tag, row) => element("tr", {}, ...row.map((cell, n) => element(cell === "" ? "td" : tag, { class: n ? "number" : false },
    typeof cell === "number" ? cell ? said(cell) : "" : cell)));
  return element("div", { class: "run-table", tabindex: 0 }, element("table", {}, element("thead", {}, line("th", head)),
    element("tbody", {}, ...rows.map(row => line("td", row)))));
}

// The sites' counts, summed per operation and per line.
function drawn({ sites, unique }, source) {
  const sum = (some, count, ...of) => some.reduce((all, s) => all + (of.includes(s.operation) ? s[count] : 0), 0), at = {};
  const rows = ENGINE.rows.map((name, o) => [name, sum(sites, "requests", o), o < 9 ? sum(sites, "lanes", o) : 0, sum(sites, "bytes", o),
    32 * sum(sites, "sectors", o), 32 * unique[o], sum(sites, "wavefronts", o), sum(sites, "excess", o)]).filter(row => row[1]);
  for (const s of sites) (at[s.file << 24 | s.line] ??= []).push(s);
  const lines = Object.values(at).map(here => [here[0].line ? String(here[0].line) : "?", sum(here, "bytes", 0, 1),
    32 * sum(here, "sectors", 0, 1), sum(here, "wavefronts", 2, 3), sum(here, "excess", 2, 3), sum(here, "requests", 4, 5),
    element("code", {}, (source.lines[here[0].file]?.[here[0].line - 1] ?? "").trim())]);
  const passes = ["shared passes", "of conflicts"], code = element("span", {}, "source");
  return [table(["", "requests", "lanes", "asked (bytes)", "moved (bytes)", "unique (bytes)", ...passes], rows),
    table(["line", "asked", "moved", ...passes, "atomics", code], lines)];
}

const results = answer => answer.arrays.filter(a => !a.const).map(a => {
  const all = numbers(a), shown = all.slice(0, 8).map(shortened(a.dtype)).join(", ") + (all.length > 8 ? ", ..." : "");
  return element("p", { class: "run-array" }, element("code", {}, `${a.name} (${a.shape.join(" x ")}) = [${shown}]`));
});

// The laptop's message of the same launch; else its words for such a finding, and the parts of it.
function told(e, { kernel, grid, block, laptop, shared_limit: limit }, source) {
  if (laptop) return laptop.message;
  const item = e.itemsize || 1, place = e.offset % item ? ` at byte ${e.offset}` : `[${e.offset / item}]`;
  const at = (index, size) => size[2] > 1 || size[1] > 1 ? `(${index.slice(0, size[2] > 1 ? 3 : 2).join(", ")})` : index[0];
  const verb = party => ENGINE.verbs[party?.action ?? 5], { [e.kind]: texts = {}, "": packs } = ENGINE.words;
  const side = party => `  ${party.line ? `line ${party.line}, ` : ""}block ${at(party.block, grid)}, thread ${at(party.thread, block)}: ` +
    verb(party) + (party.line ? `\n${String(party.line).padStart(6)} | ${source.lines[party.file]?.[party.line - 1] ?? ""}` : "");
  const gaps = { kernel, detail: e.detail, offset: said(e.offset), verb: verb(e.who), what: e.array ? e.array + place : "memory",
    size: `grid (${grid.join(", ")}), block (${block.join(", ")})`, threads: block.reduce((a, b) => a * b), axis: "xyz"[e.offset],
    limit: said(limit), lanes: "" };
  const words = (texts[e.reason] ?? packs[e.reason] ?? texts[""])?.replace(/{(\w+)[^}]*}/g, (gap, name) => gaps[name] ?? gap);
  const what = words && !words.includes("{") ? words
    : e.array ? `${kernel} ${gaps.verb} ${gaps.what}, of ${said(e.array_bytes / item)} elements`
    : `in ${kernel}, ${[e.reason, e.detail].filter(Boolean).join(": ")}`;
  return [`${e.kind}: ${what}`, ...[e.who, e.other].filter(Boolean).map(side)].join("\n");
}

// What is told below a cell's form, which Python has made, and which runs `act`.
function panel(cell, act) {
  cell.replaceChildren(cell.querySelector("template").content);
  const form = cell.querySelector("form"), result = cell.querySelector(".run-result"), words = result.firstChild;
  const { elements: { submit, stop } } = form, say = (state, text, ...inside) => {
    result.dataset.state = state;
    words.textContent = text;                    // all that a screen reader is told
    result.replaceChildren(words, ...inside);
  };
  form.onsubmit = async event => {
    event.preventDefault();
    submit.disabled = true, stop.hidden = false;
    try {
      if (lacking()) throw new Error(`This browser has no ${lacking()}, or it is switched off, so kernels do not run here. ` +
        "In JupyterLab they do: make lab.");
      await act();
    } catch (error) {
      say("error", error.message, ...(error.shown ? [element("pre", { class: "run-finding" }, error.shown)] : []));
    }
    submit.disabled = false, stop.hidden = true;
    if (document.activeElement === document.body) submit.focus({ preventScroll: true });
  };
  return { form, result, say, stop };
}

async function run(cell, { form, result, say, stop }) {
  const began = performance.now();
  say("loading", "Loading the kernels of this chapter ...");
  const { launches, sources, data, module: built } = await chapter(cell.dataset.page);
  const given = launches[cell.dataset.kernel], text = sources[given.source];
  const { module, launch, source } = await cell.edited?.(given, text) ?? { module: built, launch: given, source: text };
  const made = changed(launch, form);
  say("running", "Running ...");
  const answer = await inWorker(module, made, data, stop);
  const took = `in ${Math.round(performance.now() - began)} ms in this browser, by the course's engine`;
  const printed = answer.printed ? [element("pre", {}, answer.printed)] : [], e = answer.error, message = e ? told(e, made, source) : "";
  const notes = answer.notes.map(note => element("pre", { class: "run-note" }, told(note, { ...made, laptop: null }, source)));
  const parts = e ? [element("pre", { class: "run-finding" }, message)] : [...results(answer), ...drawn(answer, source), ...notes];
  result.dataset.answer = JSON.stringify(e ?? answer.sites);
  say(e ? "finding" : "done", `${e ? `Found ${took}: ${e.kind}` : `Counted and checked ${took}`}.`, ...printed, ...parts,
    stepper(made, e, again => inWorker(module, again, data, stop), source, message));
}

addEventListener("DOMContentLoaded", () => document.querySelectorAll("course-cell").forEach(cell => {
  if (cell.dataset.exercise) return live.exercise?.(cell);
  const shown = panel(cell, () => run(cell, shown));
  live.editor?.(cell, shown);
}));
