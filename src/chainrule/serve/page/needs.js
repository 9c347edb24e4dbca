// The views, and what a model has to do for each of them.
import { el } from "./parts.js";

// Null: nothing in particular.
export const NEEDS = {
  write: "generate", read: "generate", tree: "generate", tokens: null, inside: null, translate: "translate", tag: "tag", fill: "fill", runs: null, learn: null,
};

const MAKING = {
  generate: ["a model that predicts text", "chainrule train lstm corpus.txt --out lstm", "chainrule serve lstm"],
  translate: ["a model that translates", "chainrule train seq2seq source.txt target.txt --out translator", "chainrule serve translator"],
  tag: ["a tagger", "chainrule train tagger tagged.conllu --out tagger", "chainrule serve tagger"],
  fill: ["a masked model", "chainrule train masked corpus.txt --out masked", "chainrule serve masked"],
};

export const isPossible = (verb, models) => verb === null || models.some((model) => model.verb === verb);
export const reason = (verb) => `This view needs ${MAKING[verb][0]}, and none is served.`;

export function missing(verb) {
  const commands = MAKING[verb].slice(1);
  return [
    el("p", {}, `${reason(verb)} These commands make one and serve it:`),
    el("pre", { class: "command", tabindex: 0, role: "region", "aria-label": "Commands" }, commands.join("\n")),
  ];
}
