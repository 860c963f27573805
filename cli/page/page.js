// The page as a whole: which sample is shown, which token is chosen, and the address that says so.

const hint = [...byId("details").childNodes];

function select(index) {
  if (index === null || !steps().length) return;
  const box = textBox();
  box.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
  state.token = Math.min(Math.max(index, 0), steps().length - 1);
  const piece = box.children[state.token];
  piece.setAttribute("aria-selected", "true");
  box.setAttribute("aria-activedescendant", piece.id);
  open();
  readOut(null);
  drawCursor();
  const { top, bottom } = piece.getBoundingClientRect(), isNear = bottom > -innerHeight / 2 && top < 1.5 * innerHeight;
  piece.scrollIntoView({ block: isNear ? "nearest" : "center" });
  tellAddress();
}

function unselect() {
  textBox().querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
  textBox().removeAttribute("aria-activedescendant");
  state.token = null;
  byId("details").replaceChildren(...hint);
  document.body.classList.remove("has-details");
}

function close() {
  unselect();
  readOut(null);
  drawCursor();
  textBox().focus({ preventScroll: true });
  tellAddress();
}

function show(sample) {
  unselect();
  state.sample = sample;
  document.querySelectorAll(".sample").forEach((one, i) => { one.hidden = i !== sample; });
  byId("sample").value = sample;
  buildText();
  colour(state.measure);
  drawPlot();
  readOut(null);
}

function tellAddress() {
  const parts = data.samples.length > 1 ? [`sample=${data.samples[state.sample].index + 1}`] : [];
  if (state.token !== null) parts.push(`token=${state.token + 1}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}

function followAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1)), number = wanted.get("token") ?? "";
  const sample = data.samples.findIndex((one) => String(one.index + 1) === wanted.get("sample"));
  if (sample >= 0 && sample !== state.sample) show(sample);
  if (/^[0-9]{1,9}$/.test(number)) select(Number(number) - 1);
}

function listenToPlot() {
  const box = byId("plot");
  box.addEventListener("keydown", onKey);
  box.addEventListener("pointerdown", (event) => {
    box.setPointerCapture(event.pointerId);
    if (steps().length) select(pointedAt(event));
  });
  box.addEventListener("pointermove", (event) => {
    if (steps().length) (event.buttons ? select : readOut)(pointedAt(event));
  });
  box.addEventListener("pointerleave", () => readOut(null));
}

function start() {
  const measures = byId("measures"), samples = byId("sample");
  state.measure = measures.querySelector(":checked").value;
  measures.addEventListener("change", (event) => colour(event.target.value));
  samples.addEventListener("change", () => {
    show(Number(samples.value));
    tellAddress();
  });
  samples.parentElement.hidden = data.samples.length < 2;
  document.body.classList.add("is-live");
  for (const id of ["bar", "details"]) byId(id).hidden = false;
  show(0);
  listenToPlot();
  byId("details").addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  addEventListener("hashchange", followAddress);
  addEventListener("scroll", () => requestAnimationFrame(drawView), { passive: true });
  new ResizeObserver(() => {
    const isStuck = getComputedStyle(byId("bar")).position === "sticky";
    document.documentElement.style.setProperty("--bar", `${isStuck ? byId("bar").offsetHeight : 0}px`);
    drawPlot();
  }).observe(byId("bar"));
  followAddress();
}

if (data.samples.length) start();
