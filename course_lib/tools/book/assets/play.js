// A launch of the page, step by step: it is made again and recorded by the engine, and its player is drawn.
// ENGINE has what the laptop's replay says of itself (running.py).
const TYPED = { float32: Float32Array, int32: Int32Array, uint32: Uint32Array, float64: Float64Array, int64: BigInt64Array,
  uint64: BigUint64Array, int16: Int16Array, uint16: Uint16Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array };
const PLAYER = new URL("player.js", document.currentScript.src);

// What is to be recorded: of a finding the blocks that it speaks of.
function asked({ grid: [x, y, z] }, error) {
  const told = new Set([error?.who, error?.other].filter(Boolean).map(({ block: [i, j, k] }) => i + x * (j + y * k)));
  const first = Array(Math.min(ENGINE.blocks, x * y * z)).keys();
  return { most: ENGINE.most, fails: Boolean(error), blocks: [...(told.size ? told : first)].sort((a, b) => a - b) };
}

const HALVES = { float16, bfloat16: bits => new Float32Array(Uint32Array.of(bits << 16).buffer)[0] };
const numbers = ({ dtype, after: { buffer } }) => TYPED[dtype] ? [...new TYPED[dtype](buffer)]
  : HALVES[dtype] ? Array.from(new Uint16Array(buffer), HALVES[dtype]) : [];

// As many digits as tell a number, or the word for what is none.
const short = n => Number.isFinite(n) ? +n.toPrecision(6) : { NaN: "nan", Infinity: "inf" }[n] ?? "-inf";
const shortened = dtype => dtype === "bool" ? Boolean : /float/.test(dtype) ? short : Number;

function value(hex, { dtype, itemsize } = {}) {
  if (hex.length / 2 % itemsize) return null;
  const all = numbers({ dtype, after: Uint8Array.from(hex.match(/../g) ?? [], two => parseInt(two, 16)) }).map(shortened(dtype));
  return all.length > 1 ? all : all[0] ?? null;
}

// The engine's answer with what the page knows: types, shapes and texts.
function packed({ replay, error }, launch, source, message) {
  const { kernel, grid, block, record: { blocks } } = launch, { rows, accesses, cut, ...known } = replay, { files } = source;
  const given = launch.args.filter(a => "storage" in a), count = grid[0] * grid[1] * grid[2];
  const arrays = replay.arrays.map(({ parameter, ...array }) => {
    const declared = array.space === "shared" ? source.types[array.name] ?? ENGINE.guess[array.itemsize] ?? "uint8" : "";
    const { shape = [], dtype = declared } = given[parameter] ?? {};
    const size = numbers({ dtype, after: new Uint8Array(8) }).length;
    return { ...array, dtype, shape, itemsize: size ? 8 / size : array.itemsize };
  });
  const left = [cut && `cut at ${said(ENGINE.most)} accesses`, blocks.length < count && `${blocks.length} of ${said(count)} blocks`];
  return { ...known, kernel, grid, block, blocks, arrays, files, source: files[0], steps: { columns: ENGINE.columns, rows },
    events: replay.events.map(([lane, offset, size, hex, memory]) => [lane, offset, size, value(hex, arrays[memory])]),
    machine: ENGINE.machine, registers: { names: null, rows: [] },
    texts: Object.fromEntries(files.map((name, n) => [name, source.lines[n]])), cut: left.filter(Boolean).join("; ") || null,
    error: error ? { kind: error.kind, message, accesses } : null };
}

const played = once(() => script(PLAYER, () => window.coursePlayer, "The file player.js is missing, or not whole."));

// A button that plays what `again(record)` answers below it.
function stepper(launch, error, again, source, message) {
  const root = element("div"), words = element("span", { role: "status" });
  const start = element("button", { type: "button", name: "play", onclick: async () => {
    start.disabled = true, words.textContent = " Recording ...";
    try {
      const made = { ...launch, record: asked(launch, error) }, play = await played(), answer = await again(made);
      play(root, packed(answer, made, source, message));
      words.textContent = "", start.hidden = true, root.focus({ preventScroll: true });
    } catch (problem) { words.textContent = ` ${problem.message}`; }
    start.disabled = false;
  } }, "Step through");
  return element("div", { class: "run-bar" }, start, words, root);
}
