// One launch in a fresh instance of a module: its description in, the answer and the arrays out. Counting, checks and
// findings are the engine's own code, inside the module.
function laptopLaunch(module, launch, data) {
  const escaped = {}, ended = {}, out = () => new DataView(wasm.memory.buffer);
  const none = () => 0;
  const calls = (name, way) => () => {            // whether it was left that way
    try { wasm[name](); } catch (error) { if (error !== way) throw error; return 1; }
    return 0;
  };
  const instance = new WebAssembly.Instance(module, {
    page: { attempt: calls("perform", escaped), escape() { throw escaped; }, enter: calls("enter", ended), leave() { throw ended; } },
    wasi_snapshot_preview1: new Proxy({
      environ_sizes_get(count, bytes) { out().setUint32(count, 0, true), out().setUint32(bytes, 0, true); return 0; },
      proc_exit(status) { throw new Error(`out of memory, or ended with ${status}`); },
    }, { get: (own, name) => own[name] ?? none, has: () => true }),
  });
  const wasm = instance.exports;
  wasm._initialize();
  const put = bytes => {
    const at = wasm.alloc(bytes.length);
    new Uint8Array(wasm.memory.buffer).set(bytes, at);
    return at;
  };
  const text = words => put(new TextEncoder().encode(words + "\0"));
  wasm.begin(launch.source, launch.entry, text(launch.kernel));
  [...launch.grid, ...launch.block].forEach((n, axis) => wasm.size(axis, n));
  wasm.limits(launch.shared, launch.shared_limit, launch.max_threads, launch.step_limit);
  const maps = [], places = launch.storages.map(storage => {
    const at = put(data.subarray(storage.at, storage.at + storage.bytes));
    const flags = storage.written === null ? 0
      : put(storage.written < 0 ? new Uint8Array(storage.bytes)
        : data.subarray(storage.written, storage.written + storage.bytes));
    wasm.storage(at, storage.bytes, flags);
    maps.push(flags);
    return at;
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
  wasm.cluster(...(launch.cluster ?? [0, 0, 0, 8]));
  const { blocks, most, fails } = launch.record ?? {};
  if (blocks) wasm.record(put(new Uint8Array(Uint32Array.from(blocks).buffer)), blocks.length, most, fails);
  const at = wasm.run(launch.args.filter(a => !a.reached).length), bytes = new Uint8Array(wasm.memory.buffer);
  const answer = JSON.parse(new TextDecoder().decode(bytes.subarray(at, bytes.indexOf(0, at))));
  answer.arrays = launch.args.filter(a => a.storage >= 0).map(a => ({ ...a,
    after: bytes.slice(places[a.storage] + a.offset, places[a.storage] + a.offset + a.bytes),
    written: maps[a.storage] ? bytes.slice(maps[a.storage] + a.offset, maps[a.storage] + a.offset + a.bytes) : null }));
  return answer;
}
