// A JupyterLab extension without a build step: cells that begin with %%cuda are coloured as C++.
// JupyterLab gives every cell the kernel's language and sets it again whenever the kernel answers, so each
// cell is watched for a change of its text and of its language. The editor loads a language's parser when it is
// first asked for, and the parser that arrives last wins: so the kernel's own is waited for before C++ is set.
(() => {
  const CPP = 'text/x-c++src';
  const seen = new WeakSet();
  let shared, languages;

  const isCuda = model => /^\s*%%cuda\b/.test(model.sharedModel.getSource());

  async function colour(model) {
    const before = model.mimeType;
    if (isCuda(model) && before !== CPP) {
      await Promise.all([languages.getLanguage(before), languages.getLanguage(CPP)]);
      setTimeout(() => {
        if (model.isDisposed || !isCuda(model) || model.mimeType === CPP) return;
        model.beforeCuda = model.mimeType;
        model.mimeType = CPP;
      });
    } else if (!isCuda(model) && before === CPP) {
      model.mimeType = model.beforeCuda || 'text/x-ipython';
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

  function activate(app, tracker, registry) {
    languages = registry;
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
      const { IEditorLanguageRegistry } = await fromJupyterLab('@jupyterlab/codemirror');
      const plugin = {
        id: 'course-cuda-colours:plugin', autoStart: true, requires: [INotebookTracker, IEditorLanguageRegistry], activate
      };
      return () => ({ __esModule: true, default: plugin });
    }
  };
})();
