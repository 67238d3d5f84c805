// course_lib/explore/looking.py in the page.
const RIGHT = 688, STRIPS = 156, STRIP = 11;

// Per character its weights, (n_layers, n_heads, characters up to it).
const looks = kept((model, text) => {
  const caches = model.caches();
  return model.encode(text.replaceAll("/", "\n")).map((token, at) => model.read(token, at, caches).weights);
});

function draw({text, token, layer, head}, model) {
  if (!text) throw refused("line: type at least one character");
  const found = looks(model, text), at = Math.min(token, found.length - 1), row = found[at][layer][head];
  const canvas = new Canvas(700, STRIPS + 16 * STRIP + 34), cell = Math.min(24, (RIGHT - LEFT) / text.length);
  const held = [...row.keys()], called = place => `'${shown(text[place])}' at ${place}`;
  drawLine(canvas, "character", text, cell, held, row, here =>
    ({fill: here === at ? "accent" : "empty", set: {token: here}, hover: true}));
  canvas.text(20, STRIPS - 12, "The same character in every head. Click a strip to see it above.", {size: 11, fill: "faint"});
  drawHeads(canvas, {top: STRIPS, high: STRIP, cell, held, weights: found[at], layer, head});
  const named = best(row, 3).map(([weight, place]) => `${called(place)} (${percent(weight)})`).join(", ");
  const heads = found[at].map((part, n) => `layer ${n}: ${part.map(each => called(best(each, 1)[0][1])).join(", ")}`);
  return [canvas, `The line ${quoted(text)}. In layer ${layer}, head ${head}, ${called(at)} gives most weight to ` +
    `${named}. In heads 0 to 3 of each layer it looks most at: ${heads.join("; ")}.`];
}
