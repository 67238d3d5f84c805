// The language model of chapter 10 (course_lib/language_model), one character after another through caches of keys
// and values: logits as PyTorch's within 1e-4, weights of every head. Sums are in double precision.

// A matrix, row by row, times x.
const times = (matrix, x) => Float64Array.from({length: matrix.length / x.length}, (_, row) =>
  x.reduce((sum, value, n) => sum + value * matrix[row * x.length + n], 0));

function softmax(scores) {
  const most = Math.max(...scores), parts = scores.map(s => Math.exp(s - most)), total = parts.reduce((a, b) => a + b);
  return parts.map(part => part / total);
}

function normed(x, weight) {
  const size = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length + 1e-6);
  return x.map((v, n) => v / size * weight[n]);
}

class Model {
  constructor({config, vocabulary, draws, shapes = [], values = ""}) {
    Object.assign(this, {config, vocabulary, draws, weights: {}});
    let at = 0;
    const all = Float32Array.from(new Uint16Array(Uint8Array.from(atob(values), c => c.charCodeAt(0)).buffer), float16);   // little-endian
    for (const [name, shape] of shapes) this.weights[name] = all.subarray(at, at += shape.reduce((a, b) => a * b));
    if (!at || at !== all.length) throw new Error("the file of the weights is not whole");
  }

  encode(text) {
    const unknown = [...text].find(character => !this.vocabulary.includes(character));
    if (unknown) throw refused(`text has ${quoted(unknown)}, which is not in the vocabulary`);
    return [...text].map(character => this.vocabulary.indexOf(character));
  }

  // Pairs (2i, 2i + 1) of each head turned by the angle p * base^(-2i / head_dim).
  rotated(x, position) {
    const wide = this.config.d_model / this.config.n_heads;
    return x.map((value, n) => {
      const angle = position * this.config.rope_base ** -((n - n % 2) % wide / wide), c = Math.cos(angle), s = Math.sin(angle);
      return n % 2 ? x[n - 1] * s + value * c : value * c - x[n + 1] * s;
    });
  }

  // One block's attention: adds the key and the value to its cache; [output, weights of each head on what it holds].
  attend(layer, x, position, cache, window) {
    const {d_model, n_heads} = this.config, wide = d_model / n_heads, mixed = new Float64Array(d_model);
    const project = name => times(this.weights[`blocks.${layer}.attention.${name}_proj.weight`], x);
    const q = this.rotated(project("q"), position);
    cache.push({position, k: this.rotated(project("k"), position), v: project("v")});
    const weights = Array.from({length: n_heads}, (_, head) => {
      const from = head * wide, mine = q.subarray(from, from + wide);
      const score = k => mine.reduce((sum, value, i) => sum + value * k[from + i], 0) / Math.sqrt(wide);
      const row = softmax(cache.map(({position: at, k}) => at > position - window ? score(k) : -Infinity));
      row.forEach((weight, n) => { for (let i = from; i < from + wide; i++) mixed[i] += weight * cache[n].v[i]; });
      return row;
    });
    return [times(this.weights[`blocks.${layer}.attention.out_proj.weight`], mixed), weights];
  }

  // One character through all blocks: {logits, weights: (n_layers, n_heads, held)}. A cache per block is in `caches`.
  read(token, position, caches, window = Infinity) {
    const {d_model, n_layers} = this.config, embedding = this.weights["embedding.weight"], seen = [];
    const x = Float64Array.from(embedding.subarray(token * d_model, (token + 1) * d_model));
    for (let layer = 0; layer < n_layers; layer++) {
      const of = name => this.weights[`blocks.${layer}.${name}.weight`];
      const [looked, weights] = this.attend(layer, normed(x, of("attention_norm")), position, caches[layer], window);
      seen.push(weights);
      looked.forEach((v, n) => { x[n] += v; });
      const h = normed(x, of("feed_forward_norm")), up = times(of("feed_forward.up"), h);
      const gated = times(of("feed_forward.gate"), h).map((g, n) => g / (1 + Math.exp(-g)) * up[n]);
      times(of("feed_forward.down"), gated).forEach((v, n) => { x[n] += v; });
    }
    return {logits: times(embedding, normed(x, this.weights["final_norm.weight"])), weights: seen};
  }

  caches() { return Array.from({length: this.config.n_layers}, () => []); }
}

// A function that keeps what it found last.
const kept = (compute, last = []) => (model, ...given) => {
  const key = JSON.stringify(given);
  return (last = last[0] === key ? last : [key, compute(model, ...given)])[1];
};

const inLine = text => text.replaceAll("\n", "/");
const shown = character => character === " " ? "_" : character;
// [weight, place], the largest first.
const best = (row, most) => [...row].map((weight, at) => [weight, at]).sort((a, b) => b[0] - a[0]).slice(0, most);

const LEFT = 104, FEET = 80;      // of the bars

// The characters, each as `box` says, and the weights on those held as bars above them.
function drawLine(canvas, called, text, cell, held, row, box) {
  canvas.text(LEFT - 10, FEET, "weight", {anchor: "end", fill: "faint"});
  canvas.text(LEFT - 10, FEET + 27, called, {anchor: "end", fill: "faint"});
  held.forEach((at, n) => {
    const share = round(row[n], 2), x = LEFT + cell * at;
    if (share) canvas.rect(x + 1, FEET - 60 * share, cell - 2, 60 * share, {fill: "2", about: percent(share)});
    if (share >= 0.15) canvas.text(x + cell / 2, FEET - 60 * share - 4, percent(share), {size: 10, anchor: "middle"});
  });
  [...text].forEach((character, at) => canvas.rect(LEFT + cell * at, FEET + 12, cell, 22, {text: shown(character),
    size: Math.min(12, cell), about: `character ${at}, '${shown(character)}'`, ...box(at)}));
  canvas.line(LEFT, FEET + 0.5, LEFT + cell * text.length, FEET + 0.5, {stroke: "faint"});
}

// A strip per head on what its cache holds, as strong as the weights; the frame of a strip is a button.
function drawHeads(canvas, {top, high, cell, held, weights, layer, head}) {
  weights.flat().forEach((row, n) => {
    const set = {layer: Math.floor(n / weights[0].length), head: n % weights[0].length}, y = top + 12.5 * n;
    const here = set.layer === layer && set.head === head, about = `layer ${set.layer}, head ${set.head}`;
    canvas.text(LEFT - 10, y + 9, about, {size: 10, anchor: "end", bold: here});
    row.forEach((share, at) => {
      if (share >= 0.05) canvas.rect(LEFT + cell * held[at], y, cell, high, {fill: "2", stroke: null, shade: round(share, 1)});
    });
    const first = LEFT + cell * held[0], look = {stroke: here ? "ink" : "line", thick: here ? 2 : 1, shade: 0};
    canvas.rect(first, y, LEFT + cell * (held.at(-1) + 1) - first, high, {...look, set, about});
  });
}
