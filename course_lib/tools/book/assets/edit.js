// A reader's own kernel: the text of a launch's source can be edited, and a compiler in a worker builds it for the page.
(() => {
const SECONDS = 120;             // of compiling, then it is ended
const COMPILER = new URL("compiler/compile.js", document.currentScript.src);
const FROM_DISK = "This page comes from the disk, and from there a browser loads no compiler. Serve the book's folder, as in " +
  "python -m http.server --directory .build/book/html, and open http://localhost:8000.";
let worker = null;

function end() {
  worker?.terminate();
  worker = null;
}

// What the worker answers to a job: a module, a value of its Python's, or what is wrong with the text.
function sent(job, { say, stop, make }) {
  if (location.protocol === "file:") throw new Error(FROM_DISK);
  worker ??= new Worker(COMPILER, { type: "module" });
  return new Promise((done, failed) => {
    let clock, bar;
    const over = words => { clearTimeout(clock); end(); failed(new Error(words)); };
    stop.onclick = () => over("Stopped.");
    worker.onerror = event => over(`The compiler could not be started here: ${event.message ?? "a file of it is missing"}.`);
    worker.onmessage = ({ data }) => {
      if (data.state === "loading") {
        if (bar) bar.value = data.part;
        else say("loading", "Loading the compiler. The browser keeps it.", bar = make("progress", { max: 1, ariaLabel: "Loading" }));
      } else if (data.state === "building") {
        say("running", job.python ? "Checking ..." : "Compiling ...");
        clock = setTimeout(() => over(`The compiler was stopped after ${SECONDS} seconds.`), 1000 * SECONDS);
      } else {
        clearTimeout(clock);
        if (data.crash) failed(new Error(`The compiler gave up: ${data.crash}. The page goes on, and so does the next run.`));
        else done(data);
      }
    };
    worker.postMessage(job);
  });
}

async function compiled(job, how) {
  const made = await sent(job, how);
  if (made.error) throw Object.assign(new Error("It does not compile."), { shown: made.error });
  return made;
}

// The text with the numbers of its lines, which compiler and findings name.
function textOf(given, kernel, make) {
  const name = kernel.split("<")[0].split("::").pop();
  const area = make("textarea", { value: given, spellcheck: false, wrap: "off", ariaLabel: `Source of ${kernel}` });
  const numbers = make("pre", { ariaHidden: "true" });
  const number = () => {
    const lines = area.value.split("\n").length;
    area.rows = lines + 1;
    numbers.textContent = Array.from({ length: lines }, (_, n) => n + 1).join("\n");
  };
  number();
  const at = given.search(new RegExp(`__global__[^;{}]*\\b${name}\\s*\\(`));
  return { area, given, number, line: given.slice(0, Math.max(at, 0)).split("\n").length - 1,
    box: make("div", { className: "run-editor", tabIndex: -1 }, numbers, area) };
}

Object.assign(window, { courseCompiler: { sent, textOf, FROM_DISK } });
window.courseEditor = (cell, { form, result, make, chapter, kernel }) => {
  const edit = make("button", { type: "button" }, "Edit the kernel");
  const reset = make("button", { type: "button", hidden: true }, "As it was");
  edit.dataset.act = "edit", reset.dataset.act = "reset";
  let text = null, last = null;
  const changed = () => { reset.hidden = !text || text.area.value === text.given; };
  edit.onclick = async () => {
    try {
      if (!text) {
        const { launches, sources } = await chapter();
        text = textOf(sources[launches[cell.dataset.kernel].source].lines[0].join("\n"), kernel, make);
        text.area.oninput = () => { text.number(); changed(); };
        text.area.onkeydown = event => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.preventDefault(), form.requestSubmit();
        };
        form.after(text.box);
        text.box.scrollTop = text.line * parseFloat(getComputedStyle(text.area).lineHeight);
      } else text.box.hidden = !text.box.hidden;
      edit.textContent = text.box.hidden ? "Edit the kernel" : "Close the editor";
      if (location.protocol === "file:" && !text.box.hidden) throw new Error(FROM_DISK);
      if (!text.box.hidden) text.area.focus({ preventScroll: true });
    } catch (error) {
      result.dataset.state = "error", result.firstChild.textContent = error.message;
    }
  };
  reset.onclick = () => {
    text.area.value = text.given;
    text.number(), changed(), result.replaceChildren(result.firstChild);
    result.dataset.state = "idle", result.firstChild.textContent = "", text.area.focus({ preventScroll: true });
  };
  form.querySelector("[data-act=stop]").after(edit, reset);
  // Module, launch and source of the text as it is now; null where it is the chapter's.
  cell.edited = async (launch, source, how) => {
    const mine = text?.area.value;
    if (!text || mine === text.given) return null;
    if (last?.text === mine) return last;
    const beside = Object.fromEntries(source.places.map((place, n) => [place, source.lines[n + 1].join("\n")]));
    const { module, entry, types, took } = await compiled({ text: mine, given: text.given, name: source.name, beside,
      kernel: launch.kernel, define: source.define, files: source.files }, { ...how, make });
    result.dataset.took = JSON.stringify(took);
    return last = { text: mine, module, launch: { ...launch, source: 0, entry, laptop: null },
      source: { ...source, types, lines: [mine.split("\n"), ...source.lines.slice(1)] } };
  };
};
})();
