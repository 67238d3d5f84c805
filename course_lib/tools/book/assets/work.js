// A kernel exercise on the page: the reader's text is compiled and launched on the stored cases here, and the course's own
// judge, in the page's Python, gives the verdict. Marks stay in this browser; as a file they are what a notebook keeps.
(() => {
const KEY = "course-marks", ROOM = "course_lib.exercises.on_page";
const AT = new URL("compiler/", document.currentScript.src);

function marks() {
  try { return JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { return {}; }
}

// A pass is not lost by a later try.
function keep(found) {
  const all = marks();
  for (const [id, { status, hints = 0, revealed = false }] of Object.entries(found)) {
    const mark = all[id] ??= { status: "not attempted", hints: 0, revealed: false };
    if (mark.status !== "passed" && ["passed", "wrong"].includes(status)) mark.status = status;
    mark.hints = Math.max(mark.hints, hints), mark.revealed ||= revealed;
  }
  try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { /* it is shown all the same */ }
  dispatchEvent(new Event(KEY));
}

function download(make) {
  const link = make("a", { download: "marks.json", href: URL.createObjectURL(new Blob([JSON.stringify(marks(), null, 1)])) });
  link.click();
  URL.revokeObjectURL(link.href);
}

// The cases one by one, up to the first loop that does not end; their answers, and the arrays one behind the other.
async function ran(built, cases, bytes, { inWorker, say, stop }) {
  const answers = [], parts = [];
  for (const [n, launch] of cases.entries()) {
    say("running", `Case ${n + 1} of ${cases.length} ...`);
    try {
      const { error, table, arrays } = await inWorker(built.module, { ...launch, entry: built.entry }, bytes, stop);
      answers.push({ error, table });
      if (!error) for (const a of arrays) parts.push(a.after, ...(a.written ? [a.written] : []));
      if (error?.kind === "timeout") break;
    } catch (error) {
      if (!error.late) throw error;
      answers.push(null);
      break;
    }
  }
  return [{ answers, parameters: built.parameters }, new Uint8Array(await new Blob(parts).arrayBuffer())];
}

window.courseExercise = (cell, { make, inWorker, lacking }) => {
  const id = cell.dataset.exercise, { title, kernel, stub } = JSON.parse(cell.dataset.work);
  const button = (act, words, hidden = false) => {
    const made = make("button", { type: "button", hidden }, words);
    made.dataset.act = act;
    return made;
  };
  const check = button("check", `Check exercise ${id}`, true), edit = button("edit", `Work on ${id} here`);
  const stop = button("stop", "Stop", true), reset = button("reset", "As it was", true);
  const save = button("marks", "Save marks"), load = button("load", "Load marks"), mark = make("span", { className: "run-mark" });
  const file = make("input", { type: "file", accept: ".json", hidden: true });
  save.title = `All marks of this browser, for the notebooks: progress(marks_of="marks.json")`;
  const form = make("form", { className: "run-bar" }, edit, check, stop, reset, mark, save, load, file);
  const told = make("p", { className: "run-told" }), result = make("div", { className: "run-result" }, told);
  told.setAttribute("aria-live", "polite");
  result.dataset.result = "", result.dataset.state = "idle", check.type = "submit";
  const text = window.courseCompiler.textOf(stub, kernel, make);
  text.box.hidden = true, text.area.ariaLabel = `Exercise ${id}: ${title}`;
  const say = (state, words, ...inside) => {
    result.dataset.state = state, told.textContent = words;
    result.replaceChildren(told, ...inside);
  };
  const marked = () => {
    const status = marks()[id]?.status;
    mark.textContent = status === "passed" ? "\u2713 passed" : status === "wrong" ? "tried" : "";
    save.hidden = !Object.keys(marks()).length;
  };
  let opened = null;
  const ask = async (name, ...args) => JSON.parse((await window.courseCompiler.sent({ python: [ROOM, name, ...args] },
    { say, stop, make })).value);
  const open = async () => {
    const bytes = await fetch(new URL(`exercise-${id}`, AT)).then(answer => answer.ok ? answer.arrayBuffer()
      : Promise.reject(new Error(`the server answers ${answer.status}`))).catch(error => {
      throw new Error(`The cases of exercise ${id} could not be loaded (${error.message}). Is the connection closed?`); });
    const { launches, data } = await ask("opened", id, new Uint8Array(bytes));
    return { launches, bytes: Uint8Array.from(atob(data), letter => letter.charCodeAt(0)) };
  };
  const judged = async source => {
    const { launches, bytes } = await (opened ??= open().catch(error => { opened = null; throw error; }));
    const first = await ask("screened", id, source);
    if (!first.job) return first;
    const built = await window.courseCompiler.sent(first.job, { say, stop, make });
    const [came, data] = built.error ? [built, new Uint8Array()]
      : await ran(built, launches, bytes, { inWorker, say, stop });
    result.dataset.took = JSON.stringify(built.took ?? {});
    return ask("judged", id, source, JSON.stringify({ ...came, module: undefined }), data);
  };
  form.onsubmit = async event => {
    event.preventDefault();
    if (check.disabled) return;
    check.disabled = true, stop.hidden = false;
    try {
      const without = lacking() || (location.protocol === "file:" ? window.courseCompiler.FROM_DISK : "");
      if (without) throw new Error(without);
      const { verdict, html } = await judged(text.area.value);
      say("done", "", make("div", { innerHTML: html }));
      cell.dataset.verdict = verdict.status;
      keep({ [id]: verdict });
    } catch (error) {
      cell.dataset.verdict = "not run";
      say("error", error.message);
    }
    check.disabled = false, stop.hidden = true;
  };
  edit.onclick = () => {
    text.box.hidden = check.hidden = !text.box.hidden;
    edit.textContent = text.box.hidden ? `Work on ${id} here` : "Close the editor";
    if (!text.box.hidden) text.area.focus({ preventScroll: true });
  };
  text.area.oninput = () => { text.number(), reset.hidden = text.area.value === text.given; };
  text.area.onkeydown = event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.preventDefault(), form.requestSubmit();
  };
  reset.onclick = () => { text.area.value = text.given, text.area.oninput(), say("idle", ""), text.area.focus({ preventScroll: true }); };
  save.onclick = () => download(make);
  load.onclick = () => file.click();
  file.onchange = async () => {
    try { keep(JSON.parse(await file.files[0].text())); } catch { say("error", "That file holds no marks."); }
    file.value = "";
  };
  addEventListener(KEY, marked);
  marked();
  cell.replaceChildren(form, text.box, result);
};
})();
