// The text: one element for each token, in a box that holds the keyboard's place.

function pieceOf(step, id) {
  const [space, ink] = step[PIECE].match(/^( *)([^]*)$/).slice(1); // the space before a word is not coloured
  const inner = make("span", {});
  (ink || space).split("\n").forEach((line, i) => {
    if (i) inner.append(make("span", { class: "line-end" }, "\n"));
    inner.append(line);
  });
  if (step[KIND]) inner.dataset.mark = step[MARK];
  const outer = make("span", { id, role: "option", "aria-selected": "false" }, ink ? space : "", inner);
  if (!ink.trim()) outer.setAttribute("aria-label", data.names[step[NAME]][1]);
  return outer;
}

function buildText() {
  const box = textBox();
  if (box.getAttribute("role") === "listbox") return;
  const pieces = steps().map((step, i) => pieceOf(step, `t${state.sample}-${i}`));
  box.replaceChildren(...pieces, data.samples[state.sample].rest);
  box.setAttribute("role", "listbox");
  box.setAttribute("aria-label", "The text, token by token");
  box.tabIndex = 0;
  box.addEventListener("click", (event) => {
    if (getSelection().isCollapsed) select(indexOf(event.target));
  });
  box.addEventListener("pointerover", (event) => readOut(indexOf(event.target)));
  box.addEventListener("pointerleave", () => readOut(null));
  box.addEventListener("keydown", onKey);
}

function colour(measure) {
  state.measure = measure;
  document.querySelectorAll(".legend").forEach((one) => { one.hidden = one.dataset.measure !== measure; });
  const pieces = textBox().children;
  steps().forEach((step, i) => {
    pieces[i].lastElementChild.className = `ink level-${levelOf(measure, step)} kind-${step[KIND]}`;
  });
}

function indexOf(target) {
  const option = target.closest("[role=option]");
  return option ? Number(option.id.split("-")[1]) : null;
}

// The token in the line above or below that is nearest.
function beside(from, direction) {
  const pieces = textBox().children, here = pieces[from].getBoundingClientRect();
  let best = from, line = null, distance = Infinity;
  for (let i = from + direction; i >= 0 && i < steps().length; i += direction) {
    const there = pieces[i].getClientRects()[0];
    if (!there || (direction > 0 ? there.top < here.bottom - 4 : there.bottom > here.top + 4)) continue;
    line ??= there.top;
    if (Math.abs(there.top - line) > 8) break;
    if (Math.abs(there.left - here.left) >= distance) continue;
    [best, distance] = [i, Math.abs(there.left - here.left)];
  }
  return best;
}

function onKey(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  const at = state.token, last = steps().length - 1, isText = event.currentTarget === textBox();
  const moves = {
    ArrowRight: () => (at === null ? 0 : at + 1),
    ArrowLeft: () => (at === null ? last : at - 1),
    ArrowDown: () => (at === null ? 0 : isText ? beside(at, 1) : at - 1), // on the plot, a slider, it is less
    ArrowUp: () => (at === null ? last : isText ? beside(at, -1) : at + 1),
    Home: () => 0,
    End: () => last,
  };
  if (event.key in moves) select(moves[event.key]());
  else if (event.key === "Enter" && at !== null) byId("details-title").focus();
  else if (event.key === "Escape") close();
  else return;
  event.preventDefault();
}
