// A reader's own kernel: the text of a launch's source can be edited, and a compiler in a worker builds it for the page.
const COMPILING = 120;           // seconds, then it is ended
const COMPILER = new URL("compiler/compile.js", document.currentScript.src);
const FROM_DISK = "This page comes from the disk, and from there a browser loads no compiler. Serve the book's folder, as in " +
  "python -m http.server --directory .build/book/html, and open http://localhost:8000.";
const askCompiler = talker(() => new Worker(COMPILER, { type: "module" }),
  event => `The compiler could not be started here: ${event.message ?? "a file of it is missing"}.`);

function notFromDisk() {
  if (location.protocol === "file:") throw new Error(FROM_DISK);
}

// What the worker answers to a job: a module, a value of its Python's, or what is wrong with the text.
async function sent(job, { say, stop }) {
  notFromDisk();
  return askCompiler(job, stop, ({ done, within }) => {
    let bar = null;
    return data => {
      if (data.state === "loading") {
        if (bar) bar.value = data.part;
        else say("loading", "Loading the compiler. The browser keeps it.", bar = make("progress", { max: 1, ariaLabel: "Loading" }));
      } else if (data.state === "building") {
        say("running", job.python ? "Checking ..." : "Compiling ...");
        within(COMPILING, `The compiler was stopped after ${COMPILING} seconds.`);
      } else if (data.crash) {
        done(Promise.reject(new Error(`The compiler gave up: ${data.crash}. The page goes on, and so does the next run.`)));
      } else done(data);
    };
  });
}

// A text with the numbers of its lines, which compiler and findings name, and the buttons that open it and give it back.
function editorOf(given, label, form, say, { edit, reset }) {
  const area = make("textarea", { value: given, spellcheck: false, wrap: "off", ariaLabel: label }), closed = edit.textContent;
  const numbers = make("pre", { ariaHidden: "true" });
  const box = make("div", { className: "run-editor", tabIndex: -1, hidden: true }, numbers, area);
  area.oninput = () => {
    const lines = area.value.split("\n").length;
    area.rows = lines + 1;
    numbers.textContent = Array.from({ length: lines }, (_, n) => n + 1).join("\n");
    reset.hidden = area.value === given;
  };
  area.onkeydown = event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.preventDefault(), form.requestSubmit();
  };
  reset.onclick = () => { area.value = given, area.oninput(), say("idle", ""), area.focus({ preventScroll: true }); };
  area.oninput();
  return { area, box, toggle() {
    box.hidden = !box.hidden;
    edit.textContent = box.hidden ? closed : "Close the editor";
    if (!box.hidden) area.focus({ preventScroll: true });
  } };
}

live.editor = (cell, form, { say, result, stop }, kernel) => {
  const edit = button("edit", "Edit the kernel"), reset = button("reset", "As it was", { hidden: true });
  let text = null, given, last = null;
  edit.onclick = async () => {
    try {
      const first = !text;
      if (first) {
        const { launches, sources } = await chapter(cell.dataset.page);
        given = sources[launches[cell.dataset.kernel].source].lines[0].join("\n");
        text = editorOf(given, `Source of ${kernel}`, form, say, { edit, reset });
        form.after(text.box);
      }
      text.toggle();
      const defined = new RegExp(`__global__[^;{}]*\\b${kernel.split("<")[0].split("::").pop()}\\s*\\(`);
      const above = given.slice(0, Math.max(given.search(defined), 0)).split("\n").length - 1;
      if (first) text.box.scrollTop = above * parseFloat(getComputedStyle(text.area).lineHeight);
      if (!text.box.hidden) notFromDisk();
    } catch (error) { say("error", error.message); }
  };
  stop.after(edit, reset);
  // Module, launch and source of the text as it is now; null where it is the chapter's.
  cell.edited = async (launch, source, how) => {
    const mine = text?.area.value;
    if (!text || mine === given) return null;
    if (last?.text === mine) return last;
    const beside = Object.fromEntries(source.places.map((place, n) => [place, source.lines[n + 1].join("\n")]));
    const { module, entry, types, took, error } = await sent({ text: mine, given, name: source.name, beside,
      kernel: launch.kernel, define: source.define, files: source.files }, how);
    if (error) throw Object.assign(new Error("It does not compile."), { shown: error });
    result.dataset.took = JSON.stringify(took);
    return last = { text: mine, module, launch: { ...launch, source: 0, entry, laptop: null },
      source: { ...source, types, lines: [mine.split("\n"), ...source.lines.slice(1)] } };
  };
};
