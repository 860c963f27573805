"use strict";
// The numbers of the run and how they are written. Everything shown is set as text, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
// What stands where in a step, as report_data.py lays it out.
const [NAME, KIND, PIECE, MARK, LOGPROB, TOTAL, RANK, ENTROPY, FINAL, U, CANDIDATES, STAGES, MARGINS] =
  Array(13).keys();
const KINDS = [
  "",
  "a special token: it steers the model and is not text",
  "what it wrote stands with a later token",
  "not in the text, or not all of it: the end took it",
];

const state = { sample: 0, token: null, measure: null };
const byId = (id) => document.getElementById(id);
const steps = () => data.samples[state.sample].steps;
const article = () => document.querySelectorAll(".sample")[state.sample];
const textBox = () => article().querySelector(".text");

const HTML = "http://www.w3.org/1999/xhtml";
const SVG = "http://www.w3.org/2000/svg";
const SHAPES = ["svg", "path", "line", "rect", "text"];

function make(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SHAPES.includes(tag) ? SVG : HTML, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const probOf = (logprob) => (logprob === null ? 0 : Math.exp(logprob));
const bitsOf = (logprob) => (logprob === null ? Infinity : Math.max(0, -logprob / Math.LN2));
const count = (number) => number.toLocaleString("en");

// A small probability is never written as none, nor a large one as certain.
function percent(p) {
  if (p === null) return "?";
  if (p <= 0 || p >= 1) return p <= 0 ? "0 %" : "100 %";
  if (p > 0.9999) return "> 99.99 %";
  if (p >= 0.0001) return `${(100 * p).toPrecision(p >= 0.9995 ? 4 : 3)} %`;
  const [digits, power] = (100 * p).toExponential(1).split("e-");
  return `${digits} × 10⁻${[...power].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")} %`;
}

function bits(number) {
  if (number === null) return "?";
  if (number === Infinity) return "∞";
  return number > 0 && number < 0.005 ? "< 0.01" : number.toFixed(2);
}

function logit(logprob, total) {
  return logprob === null || total === null ? "−∞" : (logprob + total).toFixed(2).replace("-", "−");
}

function token(name) {
  const [, text, isSpecial] = data.names[name];
  return make("bdi", { class: isSpecial ? "token special" : "token", lang: "" }, text);
}

// A long name may break after its underscores.
const breakable = (name) => name.split(/(?<=_)/).flatMap((part) => [part, make("wbr")]).slice(0, -1);

const VALUES = {
  surprisal: (step) => bitsOf(step[LOGPROB]),
  prob: (step) => probOf(step[LOGPROB]),
  rank: (step) => step[RANK],
  entropy: (step) => step[ENTROPY] ?? 0,
};

// A level counts the bounds of its measure that a step has reached.
function levelOf(measure, step) {
  if (!(measure in VALUES)) return 0;
  const value = VALUES[measure](step), { bounds, is_falling: isFalling } = data.scales[measure];
  return bounds.filter((bound) => (isFalling ? value < bound : value >= bound)).length;
}

function inWords(index) {
  const step = steps()[index], surprisal = bits(bitsOf(step[LOGPROB]));
  const name = `token ${count(index + 1)} “${data.names[step[NAME]][1]}”`;
  return `${name}: ${percent(probOf(step[LOGPROB]))}, rank ${count(step[RANK])}, ` +
    `surprisal ${surprisal}, entropy ${bits(step[ENTROPY])} bits`;
}
