// A launch of the page, step by step: it is made again and recorded by the engine, and its player is drawn.
const MOST = 20000, BLOCKS = 2;          // accesses and blocks that are recorded
const KINDS = ["load", "store", "load", "store", "atomic", "atomic", "barrier", "line", "exchange"];
const COLUMNS = ["block", "warp", "interval", "kind", "file", "line", "lanes", "array", "size", "sectors", "wavefronts", "excess",
  "first_event", "n_events"];
const BITS = { 1: "uint8", 2: "float16", 4: "float32", 8: "float64", 16: "float32" };        // of a type that no text names
const MACHINE = { banks: 32, bank_bytes: 4, sector_bytes: 32, warp_size: 32 };
const TYPED = { float32: Float32Array, int32: Int32Array, uint32: Uint32Array, float64: Float64Array, int64: BigInt64Array,
  uint64: BigUint64Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array };
const PLAYER = new URL("player.js", document.currentScript.src);

// What is to be recorded: of a finding the blocks that it speaks of.
function asked({ grid }, error) {
  const count = grid[0] * grid[1] * grid[2];
  const known = [error?.has && error.who, error?.other].filter(Boolean).map(({ block: [x, y, z] }) => x + grid[0] * (y + grid[1] * z));
  const blocks = known.length ? [...new Set(known)].sort((a, b) => a - b) : [...Array(Math.min(BLOCKS, count)).keys()];
  return { blocks, most: MOST, fails: Boolean(error) };
}

function numbers({ dtype, after }) {
  if (TYPED[dtype]) return [...new TYPED[dtype](after.buffer)];
  if (dtype === "bfloat16") return [...new Uint16Array(after.buffer)].map(h => new Float32Array(new Uint32Array([h << 16]).buffer)[0]);
  if (dtype !== "float16") return [];
  return [...new Uint16Array(after.buffer)].map(h => {
    const exponent = h >> 10 & 31, part = h & 1023, sign = h >> 15 ? -1 : 1;
    return sign * (exponent === 31 ? part ? NaN : Infinity : exponent ? 2 ** (exponent - 25) * (1024 + part) : 2 ** -24 * part);
  });
}

function short(n) {
  if (typeof n !== "number") return typeof n === "bigint" ? Number(n) : n;
  return Number.isFinite(n) ? +n.toPrecision(6) : Number.isNaN(n) ? "nan" : n > 0 ? "inf" : "-inf";
}

function value(hex, { dtype, itemsize } = {}) {
  if (hex.length / 2 % itemsize) return null;
  const all = numbers({ dtype, after: Uint8Array.from(hex.match(/../g) ?? [], two => parseInt(two, 16)) }).map(short);
  const said = dtype === "bool" ? all.map(Boolean) : all;
  return said.length > 1 ? said : said[0] ?? null;
}

// What laptop_cuda/pictures/player.py packs, of this answer's replay.
function packed({ replay, error }, launch, source, message) {
  const given = launch.args.filter(a => "storage" in a), files = [...source.files, ""];
  const arrays = replay.memories.map(([name, [space, parameter, itemsize, bytes, offset], start]) => {
    const { shape = [], dtype = space === 1 ? source.types[name] ?? BITS[itemsize] ?? "uint8" : "" } = given[parameter] ?? {};
    const size = numbers({ dtype, after: new Uint8Array(8) }).length;
    return { name, space: ["global", "shared", "module"][space], dtype, itemsize: size ? 8 / size : itemsize,
      bytes: name.startsWith("__const") ? 0 : bytes, shape, offset, start };        // what a variable begins with is no array
  });
  const rows = replay.steps.map(([block, warp, interval, kind, file, line, lanes, memory, ...counts]) =>
    [block, warp, interval, KINDS[kind], line ? file : files.length - 1, line, lanes, memory < 0 ? null : memory, ...counts]);
  const events = replay.events.map(([[lane, offset, size, memory], hex]) =>
    [lane, offset, size, value(hex, arrays[memory])]);
  const of = name => COLUMNS.indexOf(name), tests = [row => row[of("excess")],
    row => MACHINE.sector_bytes * row[of("sectors")] > row[of("size")] * row[of("n_events")], row => row[of("n_events")]];
  const found = tests.map(test => rows.findIndex(test)).find(n => n >= 0) ?? 0, { accesses } = replay;
  const count = launch.grid[0] * launch.grid[1] * launch.grid[2], { blocks } = launch.record;
  const left = [replay.cut && `cut at ${MOST.toLocaleString("en-US")} accesses`,
    blocks.length < count && `${blocks.length} of ${count.toLocaleString("en-US")} blocks`].filter(Boolean).join("; ");
  return { kernel: launch.kernel, grid: launch.grid, block: launch.block, blocks, cut: left || null, machine: MACHINE, arrays,
    steps: { columns: COLUMNS, rows }, files, intervals: replay.intervals, events, source: source.files[0],
    error: error ? { kind: error.kind, message, accesses } : null, registers: { names: null, rows: [] }, timelines: {},
    texts: Object.fromEntries(files.map((name, n) => [name, source.lines[n] ?? []])),
    first: accesses.length ? Math.max(...accesses.map(access => access.step)) : found };
}

const player = once(() => script(PLAYER, () => window.coursePlayer, "The file player.js came incomplete.", "The file player.js is missing."));

// A button that plays what `again(record)` answers below it.
function stepper(launch, error, again, source, message) {
  const root = make("div"), said = make("span", { role: "status" }), start = button("play", "Step through");
  start.onclick = async () => {
    start.disabled = true, said.textContent = " Recording ...";
    try {
      const made = { ...launch, record: asked(launch, error) }, play = await player(), answer = await again(made);
      play(root, packed(answer, made, source, message));
      said.textContent = "", start.hidden = true, root.focus({ preventScroll: true });
    } catch (problem) { said.textContent = ` ${problem.message}`; }
    start.disabled = false;
  };
  return make("div", { className: "run-bar" }, start, said, root);
}
