// The pictures of a page take the place of their stills: at once, or where they need the model after a click.
const folder = new URL("explorables/", document.currentScript.src);
let model = null;

const weights = () => new Promise((done, fail) => document.head.append(element("script", {src: new URL("model.js", folder),
  onload: done, onerror: () => fail(new Error("the file model.js is missing, or the connection ended"))})));

function offer(root, made, start) {
  const said = element("span", {role: "status"});
  const button = element("button", {type: "button", class: "move", onclick: async () => {
    button.disabled = true;
    said.textContent = " Loading the model.";
    try {
      if (!model) await weights();
      mountHere(root, made, start, model ??= made.open(window.courseWeights ?? {}));
      root.querySelector("input").focus();
    } catch (problem) {
      button.disabled = false;
      said.textContent = ` The model did not open: ${problem.message}. In JupyterLab the picture moves.`;
    }
  }}, `Move this picture (loads the small model once, ${made.size})`);
  root.querySelector(".needs-a-kernel").replaceChildren(button, said);
}

// One that fails leaves its still, with the sentence below it, and the others alone.
addEventListener("DOMContentLoaded", () => document.querySelectorAll(".explorable").forEach(root => setTimeout(() => {
  const made = window.courseExplorables?.[root.dataset.name];
  if (made) (made.open ? offer : mountHere)(root, made, JSON.parse(root.dataset.start));
})));
