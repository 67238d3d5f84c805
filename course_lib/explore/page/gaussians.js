// course_lib/explore/gaussians.py in the page: diagonal Gaussians have closed forms.
const BOX = [20, 14, 440, 220], RANGE = 4, HEIGHT = 0.5;

const placed = (x, y) => [BOX[0] + BOX[2] * (x + RANGE) / (2 * RANGE), BOX[1] + BOX[3] * (RANGE / 2 - y) / RANGE];
const outline = ([x, y], wide) => Array.from({length: 36}, (_, n) =>
  placed(x + wide * Math.cos(Math.PI * n / 18), y + HEIGHT * Math.sin(Math.PI * n / 18)));

function draw({a, b, width_a, width_b}) {
  const means = (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2, widths = (width_a - width_b) ** 2, far = Math.sqrt(means + widths);
  const totals = [width_a ** 2 + width_b ** 2, 2 * HEIGHT ** 2];
  const alike = -0.5 * totals.reduce((sum, total, n) => sum + (a[n] - b[n]) ** 2 / total + Math.log(total), 0);
  const [m, w, f, root, overlap] = [means, widths, far ** 2, far, alike].map(x => fixed(x, 3));
  const canvas = new Canvas(700, 260), blue = outline(a, width_a), orange = outline(b, width_b);
  canvas.rect(...BOX, {fill: null});
  for (const [fill, line] of [["0", blue], ["1", orange]]) canvas.curve(line, {fill, shade: 0.55, stroke: "ink", thick: 1});
  for (let angle = 0; angle < 360; angle += 45) {
    const n = Math.floor(angle / 10);
    canvas.arrow(...blue[n], ...orange[n], {stroke: "faint", thick: 0.8, head: 5});
  }
  for (const [name, mean] of [["a", a], ["b", b]])
    canvas.circle(...placed(...mean), 6, {fill: "accent", drag: name, about: `the mean of ${name}`});
  [`means: ${m}`, `widths: ${w}`, `W2² = ${f}`, `W2 = ${root}`, `overlap score: ${overlap}`].forEach((row, n) =>
    canvas.text(480, 50 + 30 * n, row, {size: 13, bold: n === 3}));
  return [canvas, `Blue: mean (${a[0]}, ${a[1]}), width ${width_a}. Orange: mean (${b[0]}, ${b[1]}), width ${width_b}. ` +
    `Squared distance ${m} of the means plus ${w} of the widths is ${f}, so W2 is ${root}. The overlap score, which ` +
    `takes the squares of the widths as variances, is ${overlap}.`];
}
