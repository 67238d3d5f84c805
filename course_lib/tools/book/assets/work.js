// A kernel exercise on the page: the reader's text is compiled and launched on the stored cases here, and the course's own
// judge, in the page's Python, gives the verdict. Marks stay in this browser; as a file they are what a notebook keeps.
const KEY = "course-marks", ROOM = "course_lib.exercises.on_page";

const marks = () => { try { return JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { return {}; } };

// A pass is not lost by a later try.
function keep(id, status) {
  const all = marks();
  if (all[id]?.status !== "passed" && ["passed", "wrong"].includes(status)) all[id] = { status, hints: 0, revealed: false };
  try { localStorage.setItem(KEY, JSON.stringify(all)); } catch { /* it is shown all the same */ }
  dispatchEvent(new Event(KEY));
}

// The cases one by one, up to the first loop that does not end; their answers, and the arrays one behind the other.
async function ran({ module, entry, parameters }, cases, data, { say, stop }) {
  const answers = [], parts = [], bytes = bytesOf(data);
  for (const launch of cases) {
    say("running", `Case ${answers.length + 1} of ${cases.length} ...`);
    const { late, error, sites, arrays } = await inWorker(module, { ...launch, entry }, bytes, stop)
      .catch(error => error.late ? error : Promise.reject(error));
    answers.push(late ? null : { error, sites });
    if (late || error?.kind === "timeout") break;
    if (!error) parts.push(...arrays.flatMap(a => [a.after, a.written ?? ""]));
  }
  return [{ answers, parameters }, new Uint8Array(await new Blob(parts).arrayBuffer())];
}

live.exercise = cell => {
  const id = cell.dataset.exercise;
  const how = panel(cell, async () => {
    notFromDisk();
    const { verdict, html } = await judged(text.value);
    say("done", "", Object.assign(element("div"), { innerHTML: html }));
    cell.dataset.verdict = verdict.status;
    keep(id, verdict.status);
  }), { form, say } = how, { text } = form.elements, [mark, save] = form.querySelectorAll(".run-mark");
  numbered(text);
  const ask = async (name, ...args) => JSON.parse((await sent({ python: [ROOM, name, ...args] }, how)).value);
  const cases = once(() => fetch(new URL(`exercise-${id}`, COMPILER)).then(answer => answer.ok ? answer.arrayBuffer()
    : Promise.reject(new Error(`the server answers ${answer.status}`))).catch(error => {
    throw new Error(`The cases of exercise ${id} could not be loaded (${error.message}). Is the connection closed?`); }));
  const judged = async source => {
    const { job, launches, data, ...early } = await ask("screened", id, source, new Uint8Array(await cases()));
    if (!job) return early;
    const built = await sent(job, how), came = built.error ? [built, ""] : await ran(built, launches, data, how);
    return ask("judged", id, source, JSON.stringify(came[0]), came[1]);
  };
  const marked = () => {
    const all = marks(), status = all[id]?.status;
    mark.textContent = status === "passed" ? "\u2713 passed" : status === "wrong" ? "tried" : "";
    save.hidden = !Object.keys(all).length;
    save.href = `data:application/json,${encodeURIComponent(JSON.stringify(all))}`;
  };
  addEventListener(KEY, marked);
  marked();
};
