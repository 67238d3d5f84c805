// A worker that makes a module of a reader's kernel: the engine's text passes in Python, clang with hooks, the linker,
// Asyncify. All that it loads is packed, and kept by the browser; nothing of it is loaded before the first edit.
const base = new URL("./", self.location), network = self.fetch.bind(self);
const say = (state, part) => postMessage({ state, part });
const TABLE = "static const laptop_entries::Row";       // of names and types, which a page does not ask for

async function loaded() {
  const { key, sizes } = await (await network(new URL("files.json", base))).json();
  const all = Object.entries(sizes).reduce((sum, [name, n]) => sum + (/packed$/.test(name) ? n : 0), 0);
  let done = 0, lose;
  const lost = new Promise((_, failed) => { lose = failed; });         // a file: whoever asked for it may wait for ever
  async function unpacked(name) {
    const counted = new TransformStream({ transform: (part, to) => { say("loading", (done += part.length) / all), to.enqueue(part); } });
    const whole = await network(new URL(`${name}.packed?${key}`, base), { cache: "force-cache" }).then(answer => {
      if (!answer.ok) throw new Error(`${name}: the server answers ${answer.status}`);
      return new Response(answer.body.pipeThrough(counted)).blob();       // whole, or not at all
    }).catch(error => { lose(error); throw error; });
    const headers = { "content-type": name.endsWith(".wasm") ? "application/wasm" : "text/plain" };
    return new Response(whole.stream().pipeThrough(new DecompressionStream("gzip")), { headers });
  }
  // each of the three asks for its own files by name
  self.fetch = (asked, ...how) => {
    const name = String(asked.url ?? asked).slice(base.href.length);
    return sizes[`${name}.packed`] ? unpacked(name) : network(asked, ...how);
  };
  const text = name => unpacked(name).then(answer => answer.text());
  const [python, clang, binaryen, kit] = await Promise.race([lost, Promise.all([
    import(new URL("pyodide.mjs", base)).then(({ loadPyodide }) => loadPyodide({ indexURL: base.href })),
    import(new URL("bundle.js", base)).then(async made => (await made.runLLVM(null, {}, { fetchProgress() {} }), made)),
    text("index.js").then(code => import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })))).then(made => made.default),
    text("kit.json").then(JSON.parse)])]);
  python.unpackArchive(await (await unpacked("engine.zip")).arrayBuffer(), "zip");
  const passes = python.pyimport("laptop_cuda.page.edited"), { hooked } = python.pyimport("laptop_cuda.page.hooked");
  const bytes = Object.entries(kit.binary).map(([name, text]) => [name, Uint8Array.from(atob(text), c => c.charCodeAt(0))]);
  return { python, passes, hooked, clang, binaryen, kit, tree: { ...kit.text, ...Object.fromEntries(bytes) } };
}

// One program of clang's: the file that it makes, or else its text, and what it printed. To a file it writes each word of a
// text by itself, which takes longer than to compile.
async function ran({ clang }, words, files, output) {
  const reader = new TextDecoder(), said = { stdout: "", stderr: "" };
  const note = where => bytes => { said[where] += bytes ? reader.decode(bytes, { stream: true }) : ""; };
  const how = { stdout: note("stdout"), stderr: note("stderr"), fetchProgress() {} };
  const made = await clang.runLLVM(words, files, how).catch(error => { if (!(error instanceof clang.Exit)) throw error; });
  return { made: made && (output ? made[output] : said.stdout), printed: said.stderr, failed: !made };
}

function asyncified({ binaryen: b, kit }, wasm) {
  const module = b.readBinary(wasm), has = b.Features;
  module.setFeatures(has.MutableGlobals | has.NontrappingFPToInt | has.SignExt | has.BulkMemory | has.BulkMemoryOpt |
    has.CallIndirectOverlong | has.ReferenceTypes | has.Multivalue | has.SIMD128);
  for (const [name, value] of Object.entries(kit.asyncify)) b.setPassArgument(name, value);
  b.setOptimizeLevel(0);                   // four times as fast, and the module is a third larger
  module.runPasses(["asyncify"]);
  const made = module.emitBinary();
  module.dispose();
  return made;
}

async function built(parts, job) {
  const { passes, kit: { flags }, tree } = parts, names = JSON.stringify(job.files);
  const { text, copies, ...told } = JSON.parse(passes.prepared(JSON.stringify(job)));
  if (told.error) return told;
  const files = { ...tree, "k.cpp": text.split(TABLE)[0] };
  for (const [path, text] of Object.entries(copies)) {
    const homes = path.split("/").filter(Boolean), name = homes.pop();
    homes.reduce((place, home) => place[home] ??= {}, files)[name] = text;
  }
  const first = await ran(parts, flags.traced, files);
  const refusal = step => passes.refusal(step.failed, step.printed, job.text, job.name, names), against = refusal(first);
  if (against) return { error: against, kind: "compile" };
  const hooked = parts.hooked(first.made, job.files), second = await ran(parts, flags.object, { "k.ll": hooked }, "k.o");
  const linked = second.failed ? second : await ran(parts, flags.link, { ...tree, "k.o": second.made }, "k.wasm");
  if (linked.failed) return { error: refusal(linked), kind: "compile" };
  return { module: await WebAssembly.compile(asyncified(parts, linked.made)), ...told };
}

let ready = null;
onmessage = async ({ data: job }) => {
  try {
    const parts = await (ready ??= loaded().catch(error => {
      ready = null;
      throw new Error(`its files did not load (${error.message ?? error}); the connection may be closed, or memory short`);
    }));
    say("building");
    if (!job.python) return postMessage(await built(parts, job));
    const [room, name, ...args] = job.python;       // a function of the book's own Python
    postMessage({ value: parts.python.pyimport(room)[name](...args.map(each => parts.python.toPy(each))) });
  } catch (error) {
    const words = String(error?.message ?? error);
    const known = words === "unreachable" ? "it ran out of memory" : /call stack/.test(words) ? "the text is nested too deeply" : words;
    postMessage({ crash: known });
  }
};
