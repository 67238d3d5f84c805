// A kernel exercise on the page: the reader's text is compiled and launched on the stored cases here, and the course's own
// judge, in the page's Python, gives the verdict. Marks stay in this browser; as a file they are what a notebook keeps.
const KEY = "course-marks", ROOM = "course_lib.exercises.on_page";

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

function download() {
  const link = make("a", { download: "marks.json", href: URL.createObjectURL(new Blob([JSON.stringify(marks(), null, 1)])) });
  link.click();
  URL.revokeObjectURL(link.href);
}

// The cases one by one, up to the first loop that does not end; their answers, and the arrays one behind the other.
async function ran(built, cases, bytes, { say, stop }) {
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

live.exercise = cell => {
  const id = cell.dataset.exercise, { title, stub } = JSON.parse(cell.dataset.work);
  const check = button("check", `Check exercise ${id}`, { type: "submit", hidden: true }), stop = button("stop", "Stop", { hidden: true });
  const edit = button("edit", `Work on ${id} here`), reset = button("reset", "As it was", { hidden: true });
  const load = button("load", "Load marks"), save = button("marks", "Save marks",
    { title: `All marks of this browser, for the notebooks: progress(marks_of="marks.json")`, onclick: download });
  const mark = make("span", { className: "run-mark" }), file = make("input", { type: "file", accept: ".json", hidden: true });
  const form = make("form", { className: "run-bar" }, edit, check, stop, reset, mark, save, load, file);
  const how = panel(form, check, stop, async () => {
    cell.dataset.verdict = "not run";
    notFromDisk();
    const { verdict, html } = await judged(text.area.value);
    how.say("done", "", make("div", { innerHTML: html }));
    cell.dataset.verdict = verdict.status;
    keep({ [id]: verdict });
  }), { result, say } = how;
  const text = editorOf(stub, `Exercise ${id}: ${title}`, form, say, { edit, reset });
  const ask = async (name, ...args) => JSON.parse((await sent({ python: [ROOM, name, ...args] }, how)).value);
  const open = once(async () => {
    const bytes = await fetch(new URL(`exercise-${id}`, COMPILER)).then(answer => answer.ok ? answer.arrayBuffer()
      : Promise.reject(new Error(`the server answers ${answer.status}`))).catch(error => {
      throw new Error(`The cases of exercise ${id} could not be loaded (${error.message}). Is the connection closed?`); });
    const { launches, data } = await ask("opened", id, new Uint8Array(bytes));
    return { launches, bytes: Uint8Array.from(atob(data), letter => letter.charCodeAt(0)) };
  });
  const judged = async source => {
    const { launches, bytes } = await open(), first = await ask("screened", id, source);
    if (!first.job) return first;
    const built = await sent(first.job, how);
    const [came, data] = built.error ? [built, new Uint8Array()] : await ran(built, launches, bytes, how);
    result.dataset.took = JSON.stringify(built.took ?? {});
    return ask("judged", id, source, JSON.stringify({ ...came, module: undefined }), data);
  };
  edit.onclick = () => { text.toggle(), check.hidden = text.box.hidden; };
  load.onclick = () => file.click();
  file.onchange = async () => {
    try { keep(JSON.parse(await file.files[0].text())); } catch { say("error", "That file holds no marks."); }
    file.value = "";
  };
  const marked = () => {
    const status = marks()[id]?.status;
    mark.textContent = status === "passed" ? "\u2713 passed" : status === "wrong" ? "tried" : "";
    save.hidden = !Object.keys(marks()).length;
  };
  addEventListener(KEY, marked);
  marked();
  cell.replaceChildren(form, text.box, result);
};
