// A reader's own kernel: the text of a launch's source can be edited, and a compiler in a worker builds it for the page.
const COMPILING = 120;           // seconds, then it is ended
const COMPILER = new URL("compiler/compile.js", document.currentScript.src);
const askCompiler = talker(() => new Worker(COMPILER, { type: "module" }),
  "The compiler could not be started here");

function notFromDisk() {
  if (location.protocol === "file:") throw new Error("This page comes from the disk, and from there a browser loads no compiler. " +
    "Serve the book's folder, as in python -m http.server --directory .build/book/html, and open http://localhost:8000.");
}

// What the worker answers to a job: a module, a value of its Python's, or what is wrong with the text.
async function sent(job, { say, stop }) {
  notFromDisk();
  const bar = element("progress", { max: 1, "aria-label": "Loading" });
  return askCompiler(job, stop, (data, { done, failed, within }) => {
    if (data.state === "loading") {
      bar.value = data.part;
      if (!bar.isConnected) say("loading", "Loading the compiler. The browser keeps it.", bar);
    } else if (data.state === "building") {
      say("running", job.python ? "Checking ..." : "Compiling ...");
      within(COMPILING, `The compiler was stopped after ${COMPILING} seconds.`);
    } else if (data.crash) failed(new Error(`The compiler gave up: ${data.crash}. The page goes on, and so does the next run.`));
    else if (!data.state) done(data);
  });
}

// Beside a text the numbers of its lines, which compiler and findings name. Where it does not grow by itself, it gets a row
// for each, and one for the bar below: it must not scroll without them.
function numbered(text) {
  (text.oninput = () => { text.rows = text.value.split("\n").length + 1; })();
  text.previousSibling.textContent = Array.from({ length: 999 }, (_, n) => n + 1).join("\n");
}

live.editor = (cell, shown) => {
  const { text } = shown.form.elements, details = text.closest("details");
  let last = null;
  details.hidden = false;
  details.ontoggle = async () => {
    try {
      if (details.open) notFromDisk();
      const { launches, sources } = await chapter(cell.dataset.page);
      if (text.value) return;
      text.defaultValue = sources[launches[cell.dataset.kernel].source].lines[0].join("\n");
      numbered(text);
    } catch (error) { shown.say("error", error.message); }
  };
  // Module, launch and source of the text as it is now; null where it is the chapter's.
  cell.edited = async (launch, source) => {
    const { value: mine, defaultValue: given } = text;
    if (mine === given || last?.text === mine) return mine === given ? null : last;
    const { module, entry, types, error } = await sent({ ...source, text: mine, kernel: launch.kernel }, shown);
    if (error) throw Object.assign(new Error("It does not compile."), { shown: error });
    return last = { text: mine, module, launch: { ...launch, source: 0, entry, laptop: null },
      source: { ...source, types, lines: [mine.split("\n"), ...source.lines.slice(1)] } };
  };
};
