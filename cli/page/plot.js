// The plot: surprisal in columns, entropy as a line, both in bits.

const plot = { left: 30, right: 6, top: 8, bottom: 20, grain: 1 }; // grain: tokens to a column

function niceStep(most, parts) {
  const rough = most / parts, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

function grouped(numbers, fold) {
  const groups = [];
  for (let i = 0; i < numbers.length; i += plot.grain) groups.push(fold(numbers.slice(i, i + plot.grain)));
  return groups;
}

function drawPlot() {
  const box = byId("plot"), length = steps().length, width = box.clientWidth, height = box.clientHeight;
  const inner = Math.max(width - plot.left - plot.right, 1), floor = height - plot.bottom;
  plot.grain = Math.max(1, Math.ceil(length / (inner / 2.5)));
  const surprisals = grouped(steps().map((step) => bitsOf(step[LOGPROB])), (some) => Math.max(...some));
  const mean = (some) => some.reduce((a, b) => a + b) / some.length;
  const entropies = grouped(steps().map((step) => step[ENTROPY] ?? 0), mean);
  const most = Math.max(1, ...surprisals.filter(Number.isFinite), ...entropies);
  const gap = niceStep(most, 3), top = Math.ceil(most / gap) * gap, wide = inner / surprisals.length;
  const y = (value) => floor - (Math.min(value, top) / top) * (floor - plot.top);
  const x = (column) => (plot.left + (column + 0.5) * wide).toFixed(1);
  plot.x = (index) => plot.left + ((index + 0.5) / length) * inner;
  const points = entropies.map((value, column) => `${x(column)} ${y(value).toFixed(1)}`);
  const columns = surprisals.map((value, column) => `M${x(column)} ${floor}V${y(value).toFixed(1)}`);
  const line = points.length ? `M${points.join("L")}` : "";
  const dots = wide < 14 ? [] : points.map((point) => `M${point}h.01`);
  box.replaceChildren(make("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    ...axes(width, height, floor, y, gap, top),
    make("rect", { class: "in-view", y: plot.top, height: floor - plot.top }),
    make("path", { class: "surprisal", d: columns.join(""), "stroke-width": Math.min(16, Math.max(1, wide * 0.62)) }),
    make("path", { class: "entropy", d: line, "stroke-width": wide < 8 ? 1.25 : 2 }),
    make("path", { class: "entropy", d: dots.join(""), "stroke-width": 6, "stroke-linecap": "round" }),
    make("path", { class: "cursor-head" }), make("line", { class: "cursor", y1: plot.top, y2: floor })));
  byId("grain").textContent = plot.grain > 1 ? ` · highest, mean of ${plot.grain}` : "";
  box.setAttribute("aria-valuemin", 1);
  box.setAttribute("aria-valuemax", length);
  drawCursor();
  drawView();
}

function axes(width, height, floor, y, gap, top) {
  const length = steps().length, grid = [], labels = [];
  for (let value = 0; value <= top + gap / 2; value += gap) {
    grid.push(`M${plot.left} ${y(value)}H${width - plot.right}`);
    const label = String(Number(value.toPrecision(3)));
    labels.push(make("text", { x: plot.left - 6, y: y(value) + 4, "text-anchor": "end" }, label));
  }
  const every = Math.max(1, niceStep(Math.max(length, 1), Math.min(10, width / 60)));
  for (let n = every; n <= length; n += every) {
    const x = Math.min(plot.x(n - 1), width - 14); // the last one stays within the plot
    labels.push(make("text", { x, y: height - 4, "text-anchor": "middle" }, count(n)));
  }
  return [make("path", { class: "grid", d: grid.join("") }), ...labels];
}

function drawCursor() {
  const box = byId("plot"), at = state.token, x = at === null ? -99 : plot.x(at), line = box.querySelector(".cursor");
  box.setAttribute("aria-valuenow", at === null ? 1 : at + 1);
  box.setAttribute("aria-valuetext", at === null ? "no token chosen" : inWords(at));
  line.setAttribute("x1", x);
  line.setAttribute("x2", x);
  box.querySelector(".cursor-head").setAttribute("d", `M${x - 5} ${plot.top - 7}h10l-5 7z`);
}

// Shades the tokens that are on the screen, where not all of them are.
function drawView() {
  const pieces = textBox().children, view = byId("plot").querySelector(".in-view"), last = steps().length - 1;
  if (!view || last < 0) return;
  const bottomOf = (index) => pieces[index].getBoundingClientRect().bottom;
  const firstBelow = (limit) => {
    let low = 0, high = last;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (bottomOf(middle) > limit) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  const isStuck = getComputedStyle(byId("bar")).position === "sticky";
  const first = firstBelow(isStuck ? byId("bar").getBoundingClientRect().bottom : 0), final = firstBelow(innerHeight);
  const isWhole = first === 0 && bottomOf(last) <= innerHeight;
  view.setAttribute("x", plot.x(first));
  view.setAttribute("width", isWhole ? 0 : Math.max(0, plot.x(final) - plot.x(first)));
}

// The token under the pointer; of a column of several, the one that it is as high as.
function pointedAt(event) {
  const box = byId("plot").getBoundingClientRect(), all = steps();
  const share = (event.clientX - box.left - plot.left) / (box.width - plot.left - plot.right);
  const index = Math.min(Math.max(Math.floor(share * all.length), 0), all.length - 1);
  const first = index - (index % plot.grain), group = all.slice(first, first + plot.grain);
  const surprisals = group.map((step) => bitsOf(step[LOGPROB]));
  return first + surprisals.indexOf(Math.max(...surprisals));
}

function readOut(index) {
  const at = index ?? state.token;
  byId("readout").textContent = at === null ? "" : inWords(at);
}
