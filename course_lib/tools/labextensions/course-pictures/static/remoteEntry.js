// A JupyterLab extension without a build step. A figure's output is a PNG whose metadata hold its text
// alternative and the same picture as SVG ("image/png": {"alt": ..., "svg": ...}). JupyterLab alone shows the PNG
// without either, and as a white sheet in the dark theme. Here it gets its `alt`; the SVG takes its place, as an
// image, in which no script runs, so that it needs no trusted notebook; and in the dark theme lightness is turned
// over and hues are kept: ink becomes light, white dark. The still of a picture that moves has colours for both
// themes, and takes those of JupyterLab's instead of the desktop's. In a notebook opened again the picture that moved
// is gone with its kernel: JupyterLab shows an error and hides the still, which is shown here. (Its own way, the state
// of widgets in the file, lasts until the next automatic save.) Printed
// tables scroll, and fade where they are cut; other printed lines break between words. package.json turns the question about news off.
(() => {
  const STYLE = `
    body[data-jp-theme-light="false"] img.course-figure { filter: invert(0.9) hue-rotate(180deg); }
    body[data-jp-theme-light="false"] .jp-RenderedHTML figure img { color-scheme: dark; }
    body[data-jp-theme-light="true"] .jp-RenderedHTML figure img { color-scheme: light; }
    .jp-OutputArea-output.jp-RenderedText pre { word-break: normal; }
    .jp-OutputArea-output.jp-RenderedText pre.course-table { white-space: pre; overflow-x: auto;
      animation: course-more linear; animation-timeline: scroll(self inline); }
    @keyframes course-more {
      from, 90% { mask-image: linear-gradient(to left, transparent, #000 40px); } to { mask-image: none; } }
    .jp-RenderedHTML pre span[style*="opacity:.5"] { opacity: .8 !important; }
  `;
  const LOST = 'Error displaying widget: model not found';
  const GONE = 'As it was first shown. The kernel that moved it is gone: run this cell again to move it.';
  let shared;

  async function showStill(view, output, rendermime) {
    const still = rendermime.createRenderer('text/html'), line = document.createElement('p');
    view.node.textContent = '';
    view.addWidget(still);
    await still.renderModel(output);
    line.textContent = GONE;
    view.node.append(line);
  }

  function mend(cell, rendermime) {
    cell.outputArea?.widgets.forEach((child, n) => {
      const output = cell.model.outputs.get(n);
      if (!output?.data['text/html']) return;
      const lost = [...child.children()].filter(view => view.node.textContent === LOST);
      lost.forEach(view => showStill(view, output, rendermime));
    });
  }

  function describe(cell) {
    const outputs = cell.model?.outputs;
    if (!outputs) return;
    const shown = cell.node.querySelectorAll('.jp-Cell-outputArea > .jp-OutputArea > .jp-OutputArea-child, ' +
                                             '.jp-Cell-outputArea > .jp-OutputArea-child');
    for (let n = 0; n < Math.min(outputs.length, shown.length); n++) {
      const { alt, svg } = outputs.get(n).metadata?.['image/png'] ?? {};
      const image = shown[n].querySelector('.jp-RenderedImage img');
      if (!alt || !image || image.alt === alt) continue;
      image.alt = alt;
      if (svg) image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
      image.classList.add('course-figure');
    }
  }

  function markTable(pre) {
    pre.classList.toggle('course-table', (pre.textContent.match(/[^\s|] {2,}\S/g) ?? []).length > 4);
  }

  function watch(panel) {
    let waiting = false;
    const all = () => {
      waiting = false;
      panel.content.widgets.forEach(describe);
      panel.content.widgets.forEach(cell => mend(cell, panel.content.rendermime));
      panel.content.node.querySelectorAll('.jp-RenderedText pre').forEach(markTable);
    };
    const soon = () => {
      if (!waiting) requestAnimationFrame(all);
      waiting = true;
    };
    new MutationObserver(soon).observe(panel.content.node, { childList: true, subtree: true });
    soon();
  }

  function activate(app, tracker) {
    const style = document.createElement('style');
    style.textContent = STYLE;
    document.head.append(style);
    tracker.forEach(watch);
    tracker.widgetAdded.connect((_, panel) => watch(panel));
  }

  async function fromJupyterLab(name) {
    const [version] = Object.values(shared[name]);
    return (await version.get())();
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB['course-pictures'] = {
    init: scope => { shared = scope; },
    get: async () => {
      const { INotebookTracker } = await fromJupyterLab('@jupyterlab/notebook');
      const plugin = { id: 'course-pictures:plugin', autoStart: true, requires: [INotebookTracker], activate };
      return () => ({ __esModule: true, default: plugin });
    }
  };
})();
