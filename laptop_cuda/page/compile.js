// A worker that makes a module of a reader's kernel: the engine's text passes in Python, clang with hooks, the linker,
// Asyncify. All that it loads is packed and kept by the browser; nothing of it is loaded before the first edit.
const base = new URL("./", self.location), network = self.fetch.bind(self);
const say = (state, part) => postMessage({ state, part });
const TABLE = "static const laptop_entries::Row";       // of names and types, which a page does not ask for
const TYPES = { wasm: "application/wasm", json: "application/json" };

async function kept(key) {
  try {
    for (const old of await caches.keys()) if (/^course-compiler-/.test(old) && !old.endsWith(key)) await caches.delete(old);
    return await caches.open(`course-compiler-${key}`);
  } catch { return null; }                // without a secure address there is the browser's ordinary cache
}

async function loaded() {
  const { key, sizes } = await (await network(new URL("files.json", base))).json();
  const store = await kept(key), packs = Object.entries(sizes).filter(([name]) => /packed$/.test(name));
  const all = packs.reduce((sum, [, n]) => sum + n, 0);
  let done = 0, lose;
  const lost = new Promise((_, failed) => { lose = failed; });         // a file: whoever asked for it may wait for ever
  const count = n => say("loading", Math.min((done += n) / all, 1));
  async function packed(name) {
    const at = new URL(`${name}.packed?${key}`, base), found = await store?.match(at);
    if (found) return count(sizes[`${name}.packed`]), found.body;
    const answer = await network(at);
    if (!answer.ok) throw new Error(`${name}: the server answers ${answer.status}`);
    const parts = [], reader = answer.body.getReader();
    for (let part; !(part = await reader.read()).done; count(part.value.length)) parts.push(part.value);
    const whole = new Blob(parts);
    await store?.put(at, new Response(whole)).catch(() => {});       // a full disk only costs the next load
    return whole.stream();
  }
  async function unpacked(name) {
    const stream = (await packed(name).catch(error => { lose(error); throw error; })).pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream, { headers: { "content-type": TYPES[name.split(".").pop()] ?? "text/plain" } });
  }
  // each of the three asks for its own files by name
  self.fetch = (asked, ...how) => {
    const name = String(asked.url ?? asked).slice(base.href.length);
    return sizes[`${name}.packed`] ? unpacked(name) : network(asked, ...how);
  };
  const text = name => unpacked(name).then(answer => answer.text());
  const script = async name => import(URL.createObjectURL(new Blob([await text(name)], { type: "text/javascript" })));
  const [python, clang, binaryen, kit, flags] = await Promise.race([lost, Promise.all([
    import(new URL("pyodide.mjs", base)).then(({ loadPyodide }) => loadPyodide({ indexURL: base.href })),
    import(new URL("bundle.js", base)).then(async made => (await made.runLLVM(null, {}, { fetchProgress() {} }), made)),
    script("index.js").then(made => made.default),
    text("kit.json").then(JSON.parse), text("flags.json").then(JSON.parse)])]);
  python.unpackArchive(await (await unpacked("engine.zip")).arrayBuffer(), "zip");
  const passes = python.pyimport("laptop_cuda.page.edited");
  const bytes = Object.entries(kit.binary).map(([name, text]) => [name, Uint8Array.from(atob(text), c => c.charCodeAt(0))]);
  return { python, passes, clang, binaryen, flags, kit, tree: { ...kit.text, ...Object.fromEntries(bytes) } };
}

function put(files, path, text) {
  const homes = path.split("/").filter(Boolean), name = homes.pop();
  homes.reduce((place, home) => place[home] ??= {}, files)[name] = text;
}

// One program of clang's: the file that it makes, or else its text, and what it printed. To a file it writes each word of a
// text by itself, which takes longer than to compile.
async function ran({ clang }, words, files, output) {
  const reader = new TextDecoder(), said = { stdout: "", stderr: "" };
  const note = where => bytes => { said[where] += bytes ? reader.decode(bytes, { stream: true }) : ""; };
  try {
    const made = await clang.runLLVM(words, files, { stdout: note("stdout"), stderr: note("stderr"), fetchProgress() {} });
    return { made: output ? made[output] : said.stdout, printed: said.stderr, failed: false };
  } catch (error) {
    if (!(error instanceof clang.Exit)) throw error;
    return { printed: said.stderr, failed: true };
  }
}

function asyncified({ binaryen: b, kit }, wasm) {
  const module = b.readBinary(wasm), has = b.Features;
  module.setFeatures(has.MutableGlobals | has.NontrappingFPToInt | has.SignExt | has.BulkMemory | has.BulkMemoryOpt |
    has.CallIndirectOverlong | has.ReferenceTypes | has.Multivalue | has.SIMD128);
  const settings = { ...kit.asyncify, "asyncify-removelist": kit.never.filter(name => module.getFunction(name)).join("\n") };
  for (const [name, value] of Object.entries(settings)) b.setPassArgument(name, value);
  b.setOptimizeLevel(0);                   // four times as fast, and the module is a third larger
  module.runPasses(["asyncify"]);
  const made = module.emitBinary();
  module.dispose();
  return made;
}

async function built(parts, job) {
  const { passes, flags, tree } = parts, names = JSON.stringify(job.files), took = {};
  let clock = performance.now();
  const lap = name => { took[name] = Math.round(performance.now() - clock), clock = performance.now(); };
  const { text, copies, ...told } = JSON.parse(passes.prepared(JSON.stringify(job)));
  lap("text passes");
  if (told.error) return told;
  const files = { ...tree, "k.cpp": text.split(TABLE)[0] };
  Object.entries(copies).forEach(copy => put(files, ...copy));
  const first = await ran(parts, flags.traced, files);
  lap("clang");
  const against = passes.refusal(first.failed, first.printed, job.text, job.name, names);
  if (against) return { error: against, kind: "compile" };
  const hooked = passes.with_hooks(first.made, names);
  lap("hooks");
  const second = await ran(parts, flags.object, { "k.ll": hooked }, "k.o");
  lap("code");
  const linked = second.failed ? second : await ran(parts, flags[told.packs ? "link packs" : "link"], { ...tree, "k.o": second.made }, "k.wasm");
  lap("link");
  if (linked.failed) return { error: passes.refusal(true, linked.printed, job.text, job.name, names), kind: "compile" };
  const module = await WebAssembly.compile(asyncified(parts, linked.made));
  lap("Asyncify");
  return { module, ...told, took };
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
    postMessage({ value: parts.python.pyimport(room)[name](...args) });
  } catch (error) {
    const words = String(error?.message ?? error);
    postMessage({ crash: words === "unreachable" ? "it ran out of memory" : /call stack/.test(words) ? "the text is nested too deeply"
      : words });
  }
};
