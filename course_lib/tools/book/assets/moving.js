// The pictures of a page take the place of their stills: at once, or where they need the model after a click.
const folder = new URL("explorables/", document.currentScript.src);
let model = null;

const opened = made => new Promise((done, fail) => document.head.append(element("script", {
  src: new URL("model.js", folder),
  onload: () => { try { done(made.open(window.courseWeights ?? {})); } catch (problem) { fail(problem); } },
  onerror: () => fail(new Error("the file model.js is missing, or the connection ended")),
})));

function offer(root, made, start) {
  const said = element("span", {role: "status"});
  const button = element("button", {type: "button", class: "move", onclick: async () => {
    button.disabled = true;
    said.textContent = " Loading the model.";
    try {
      mountHere(root, made, start, await (model ??= opened(made)));
      root.querySelector("input").focus();
    } catch (problem) {
      model = null;
      button.disabled = false;
      said.textContent = ` The model did not open: ${problem.message}. In JupyterLab the picture moves.`;
    }
  }}, `Move this picture (loads the small model once, ${made.size})`);
  root.querySelector(".needs-a-kernel").replaceChildren(button, said);
}

addEventListener("DOMContentLoaded", () => {
  for (const root of document.querySelectorAll(".explorable")) {
    const made = window.courseExplorables?.[root.dataset.name];
    try {
      if (made) (made.open ? offer : mountHere)(root, made, JSON.parse(root.dataset.start));
    } catch (problem) { console.error(problem); }       // its still remains, with the sentence below it
  }
});
