// A JupyterLab extension without a build step: cells that begin with %%cuda are coloured as C++.
// JupyterLab gives every cell the kernel's language and sets it again whenever the kernel answers, so each
// cell is watched for a change of its text and of its language.
(() => {
  const CPP = 'text/x-c++src';
  const seen = new WeakSet();
  let shared;

  function colour(model) {
    const ours = /^\s*%%cuda\b/.test(model.sharedModel.getSource());
    if (ours && model.mimeType !== CPP) {
      model.beforeCuda = model.mimeType;
      model.mimeType = CPP;
    } else if (!ours && model.mimeType === CPP) {
      model.mimeType = model.beforeCuda || 'text/x-python';
    }
  }

  function watch(model) {
    if (model.type !== 'code' || seen.has(model)) return;
    seen.add(model);
    model.contentChanged.connect(colour);
    model.mimeTypeChanged.connect(colour);
    colour(model);
  }

  function watchAll(notebook) {
    for (const cell of notebook.model?.cells ?? []) watch(cell);
  }

  function activate(app, tracker) {
    const open = panel => {
      panel.context.ready.then(() => {
        watchAll(panel.content);
        panel.content.model?.cells.changed.connect(() => watchAll(panel.content));
      });
    };
    tracker.forEach(open);
    tracker.widgetAdded.connect((_, panel) => open(panel));
  }

  async function fromJupyterLab(name) {
    const [version] = Object.values(shared[name]);
    return (await version.get())();
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB['course-cuda-colours'] = {
    init: scope => { shared = scope; },
    get: async () => {
      const { INotebookTracker } = await fromJupyterLab('@jupyterlab/notebook');
      const plugin = { id: 'course-cuda-colours:plugin', autoStart: true, requires: [INotebookTracker], activate };
      return () => ({ __esModule: true, default: plugin });
    }
  };
})();
