// The details of one token, built when they are asked for.

function table(name, caption, heads, rows) {
  const cell = (tag, content, i) => make(tag, { class: `c${i}` }, ...[content].flat());
  const head = heads.map((title, i) => cell("th", title, i));
  head.forEach((one) => one.setAttribute("scope", "col"));
  const row = ([kind, ...cells]) => make("tr", { class: kind }, ...cells.map((one, i) => cell("td", one, i)));
  return make("table", { class: name }, make("caption", {}, ...[caption].flat()),
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows.map(row)));
}

function bar(kind, p) {
  const fill = make("span", {});
  fill.style.width = `${100 * p}%`;
  return make("span", { class: `share ${kind}`, "aria-hidden": "true" }, fill);
}

function candidatesOf(step) {
  const list = [];
  for (let i = 0; i < step[CANDIDATES].length; i += 4) {
    const [name, logprob, final, drop] = step[CANDIDATES].slice(i, i + 4), isChosen = name === step[NAME];
    const dropped = drop < 0 ? null : data.stages[drop], rank = isChosen ? step[RANK] : i / 4 + 1;
    list.push({ name, id: data.names[name][0], rank, logprob, final, dropped, isChosen });
  }
  return list;
}

function candidateTable(step, list) {
  const rows = list.map((one) => {
    const kind = one.isChosen ? "chosen" : one.dropped ? "dropped" : "", p = probOf(one.logprob);
    const mark = one.isChosen ? [" ", make("span", { role: "img", "aria-label": "chosen" }, "✓")] : [];
    const kept = [percent(one.final), bar("final", one.final)];
    return [kind, count(one.rank), [token(one.name), ...mark], String(one.id), logit(one.logprob, step[TOTAL]),
      [percent(p), bar("raw", p)], one.dropped ? ["dropped by ", ...breakable(one.dropped)] : kept];
  });
  const sum = list.reduce((total, one) => total + probOf(one.logprob), 0), others = data.vocab_size - list.length;
  const left = 1 - sum < 1e-6 ? "less than 0.0001 %" : percent(1 - sum); // below that it is rounding
  const note = others > 0 ? `The other ${count(others)} tokens share ${left} of the raw probability.` : "";
  return [table("candidates", "Candidates", ["", "token", "id", "logit", "raw", "final"], rows),
    make("p", { class: "note" }, note)];
}

// Where the random number fell: exact where every token before the chosen one is a candidate.
function drawPicture(step, list) {
  if (step[U] === null) return make("p", {}, "Greedy: the likeliest token is taken, without a random number.");
  const kept = list.filter((one) => one.final > 0).sort((a, b) => b.final - a.final || a.id - b.id);
  const place = kept.findIndex((one) => one.isChosen), number = `The random number ${step[U].toPrecision(6)} `;
  if (place < 0 || place + 1 !== step[STAGES].at(-1)) return make("p", {}, `${number}picked this token.`);
  let from = 0;
  const parts = kept.slice(0, place + 1).map((one) => {
    from += one.final;
    const [x, width] = [1000 * (from - one.final), 1000 * one.final];
    return make("rect", { x, y: 12, width, height: 18, class: one.isChosen ? "taken" : "" });
  });
  const [low, high] = [from - step[FINAL], from].map((end) => String(Number(end.toPrecision(4))));
  const where = kept.length === 1 ? "could pick this token only." :
    `fell between ${low} and ${high}, this token's share of all that were left, likeliest first.`;
  return make("div", {},
    make("svg", { viewBox: "0 0 1000 30", preserveAspectRatio: "none", "aria-hidden": "true" },
      make("rect", { x: 0, y: 12, width: 1000, height: 18 }), ...parts,
      make("path", { d: `M${1000 * step[U] - 12} 0h24l-12 11z` })),
    make("p", {}, number + where));
}

function stageTable(step) {
  const rows = [];
  for (let i = 0; i < step[STAGES].length; i += 6) {
    const [name, left, removed, entropy, prob, rank] = step[STAGES].slice(i, i + 6);
    const mass = removed ? percent(removed) : "–";
    rows.push(["", breakable(data.stages[name]), count(left), mass, bits(entropy), percent(prob), count(rank)]);
  }
  const heads = ["stage", "tokens left", "mass removed", "bits", "chosen p", "rank"];
  return rows.length ? [table("waterfall", "What each stage left", heads, rows)] : [];
}

function marginTable(step) {
  if (!step[MARGINS].length) return [];
  const rows = data.knobs.map(([knob, value], i) => {
    const [allowed, picked] = step[MARGINS].slice(2 * i, 2 * i + 2).map((word) => data.words[word]);
    return ["", breakable(knob), String(value ?? "?"), allowed, picked];
  });
  const caption = ["How far each setting could be turned", make("small", {}, " all else the same")];
  return [table("margins", caption, ["setting", "here", "allowed at", "picked at"], rows)];
}

function measured(step) {
  const items = {
    probability: percent(probOf(step[LOGPROB])),
    surprisal: `${bits(bitsOf(step[LOGPROB]))} bits`,
    final: percent(step[FINAL]),
    entropy: `${bits(step[ENTROPY])} bits`,
    rank: count(step[RANK]),
    logit: logit(step[LOGPROB], step[TOTAL]),
  };
  const item = ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
  return make("dl", { class: "measured" }, ...Object.entries(items).map(item));
}

function button(label, sign, action, isOff) {
  const element = make("button", { type: "button", "aria-label": label, title: label }, sign);
  element.disabled = isOff;
  element.addEventListener("click", action);
  return element;
}

function open() {
  const step = steps()[state.token], list = candidatesOf(step), last = steps().length - 1, panel = byId("details");
  const place = `Token ${count(state.token + 1)} of ${count(last + 1)}, id ${data.names[step[NAME]][0]}`;
  const title = make("h2", { id: "details-title", tabindex: "-1" }, token(step[NAME]), make("small", {}, place));
  if (step[KIND]) title.append(make("small", {}, KINDS[step[KIND]]));
  panel.replaceChildren(
    make("div", { class: "details-head" }, title,
      button("Token before", "‹", () => select(state.token - 1), state.token === 0),
      button("Next token", "›", () => select(state.token + 1), state.token === last),
      button("Close", "×", close, false)),
    measured(step), ...candidateTable(step, list),
    make("div", { class: "draw" }, make("h3", {}, "The draw"), drawPicture(step, list)),
    ...stageTable(step), ...marginTable(step));
  panel.scrollTop = 0;
  document.body.classList.add("has-details");
}
