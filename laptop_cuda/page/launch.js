// One launch in a fresh instance of a module: its description in, the answer and the arrays out. Counting, checks and
// findings are the engine's own code, inside the module.
function laptopLaunch(module, launch, data) {
  const escaped = {}, ended = {}, out = () => new DataView(wasm.memory.buffer);
  const calls = (name, way) => () => {            // whether it was left that way
    try { wasm[name](); return 0; } catch (error) { if (error !== way) throw error; return 1; }
  };
  const instance = new WebAssembly.Instance(module, {
    page: { attempt: calls("perform", escaped), escape() { throw escaped; }, enter: calls("enter", ended), leave() { throw ended; } },
    wasi_snapshot_preview1: new Proxy({
      environ_sizes_get(count, bytes) { out().setUint32(count, 0, true), out().setUint32(bytes, 0, true); return 0; },
      proc_exit(status) { throw new Error(`out of memory, or ended with ${status}`); },
    }, { get: (own, name) => own[name] ?? (() => 0), has: () => true }),
  });
  const wasm = instance.exports;
  wasm._initialize();
  const put = bytes => {
    const at = wasm.alloc(bytes.length);
    new Uint8Array(wasm.memory.buffer).set(bytes, at);
    return at;
  };
  const text = words => put(new TextEncoder().encode(words + "\0"));
  const { grid, block, cluster = [0, 0, 0, 8], shared, shared_limit, max_threads, step_limit } = launch;
  const of = Uint32Array.of(...grid, ...block, ...cluster, shared, shared_limit, max_threads, step_limit);
  wasm.begin(launch.source, launch.entry, text(launch.kernel), put(new Uint8Array(of.buffer)));
  const maps = [], places = launch.storages.map(({ at, bytes, written }) => {
    const part = from => put(from < 0 ? new Uint8Array(bytes) : data.subarray(from, from + bytes)), place = part(at);
    maps.push(written === null ? 0 : part(written));
    wasm.storage(place, bytes, maps.at(-1));
    return place;
  });
  // numbers of the reader's choice; those that look random are the same when a launch is made again to be stepped through
  const other = { counted: i => i, random: i => 2 * Math.abs(1e4 * Math.sin(i + 1) % 1) - 1 }[launch.inputs];
  for (const a of launch.args) {
    if ("value" in a) wasm.value(put(Uint8Array.from([...a.value, 0, 0, 0, 0, 0, 0, 0, 0])));
    else wasm.array(text(a.name), text(a.dtype), a.itemsize, a.storage, a.offset, a.bytes);
    if (other && a.const && a.dtype === "float32" && a.storage >= 0)
      new Float32Array(wasm.memory.buffer, places[a.storage] + a.offset, a.bytes / 4).forEach((_, i, all) => { all[i] = other(i); });
  }
  for (const address of launch.addresses ?? []) wasm.address(...address);
  const { blocks, most, fails } = launch.record ?? {};
  if (blocks) wasm.record(put(new Uint8Array(Uint32Array.from(blocks).buffer)), blocks.length, most, fails);
  const at = wasm.run(launch.args.filter(a => !a.reached).length), bytes = new Uint8Array(wasm.memory.buffer);
  const answer = JSON.parse(new TextDecoder().decode(bytes.subarray(at, bytes.indexOf(0, at))));
  const part = (place, { offset, bytes: size }) => place ? bytes.slice(place + offset, place + offset + size) : null;
  answer.arrays = launch.args.filter(a => a.storage >= 0)
    .map(a => ({ ...a, after: part(places[a.storage], a), written: part(maps[a.storage], a) }));
  return answer;
}
