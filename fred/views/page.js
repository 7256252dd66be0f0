"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const DASHES = [[], [9, 4], [2, 3], [9, 3, 2, 3], [14, 4], [5, 5], [2, 6], [14, 3, 2, 3, 2, 3], [6, 2], [1, 2]];
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();  // a colour of the style sheet, light or dark
const off = new Set(), redraws = [];  // names of hidden runs; functions to call when that changes
const repaints = [];  // functions to call when the colours of the style sheet change: light, dark, printed
for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", () => repaints.forEach((repaint) => repaint()));

function lit(colour) {  // lighter on a dark page
  const lift = +ink("--lift"), parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return "#" + parts.map((part) => Math.round(part + lift * (255 - part)).toString(16).padStart(2, "0")).join("");
}

function make(tag, more = {}, ...inside) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(more)) name in node ? (node[name] = value) : node.setAttribute(name, value);
  node.append(...inside);
  return node;
}
function labelled(text, input) { return make("label", {}, text, input); }
function choice(options, change) {
  const select = make("select", {}, ...Object.entries(options).map(([value, text]) => make("option", { value, textContent: text })));
  select.addEventListener("change", change);
  return select;
}
function first(names) { return names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : ""); }
function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(2) : String(+value.toPrecision(4));
}

// ---- curves: uPlot draws lines and bands; every line has a value at each point that any line has

function at(xs, ys, x) {  // linear between points, null beyond them and next to gaps
  if (x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  if (xs[high] === x) return ys[high];
  if (xs[low] === x || ys[low] === null || ys[high] === null) return xs[low] === x ? ys[low] : null;
  return ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low]);
}

function chart(place, data) {
  const names = Object.keys(data.runs), plot = make("div", { className: "plot" }), where = make("p", { className: "at" });
  const x = choice(data.axes, draw), y = choice(data.quantities, () => { suggest(); draw(); });
  const logarithmic = make("input", { type: "checkbox" });
  logarithmic.addEventListener("change", draw);
  const zoom = (factor, shift) => () => {
    const { min, max } = u.scales.x, half = (max - min) / 2 * factor, middle = (min + max) / 2 + shift * (max - min);
    u.setScale("x", { min: middle - half, max: middle + half });
  };
  const buttons = [["+", "zoom in", zoom(0.5, 0)], ["−", "zoom out", zoom(2, 0)], ["←", "earlier", zoom(1, -0.25)], ["→", "later", zoom(1, 0.25)], ["all", "see all", draw]]
    .map(([text, label, click]) => { const b = make("button", { type: "button", textContent: text, title: label, "aria-label": label }); b.addEventListener("click", () => click()); return b; });
  place.append(make("div", { className: "tools" }, labelled("of", y), labelled("by", x), labelled("logarithmic", logarithmic), make("span", { className: "zoom" }, ...buttons)), plot, where);
  if (Object.keys(data.axes).length > 1 && data.axes.virtual_seconds === undefined) x.selectedIndex = 0;
  const outputs = {}, legend = make("ul", { className: "names" });
  names.forEach((name, number) => legend.append(make("li", {}, entry(name, number))));
  place.append(legend);
  let u = null;

  function style(number) { return { stroke: DATA.colours[number % DATA.colours.length], dash: DASHES[(number + Math.floor(number / DATA.colours.length)) % DASHES.length] }; }
  function entry(name, number) {
    const { stroke, dash } = style(number), key = make("span");
    key.innerHTML = `<svg width="22" height="8" aria-hidden="true"><path d="M0 4H22" stroke-width="3" stroke-dasharray="${dash.join(" ")}"/></svg>`;
    const path = key.querySelector("path"), paint = () => path.setAttribute("stroke", lit(stroke));
    repaints.push(paint);
    paint();
    outputs[name] = make("output");
    const button = make("button", { type: "button" }, key.firstChild, make("span", { textContent: name }), outputs[name]);
    button.dataset.run = name;
    button.addEventListener("click", () => { off.has(name) ? off.delete(name) : off.add(name); redraws.forEach((redraw) => redraw()); });
    redraws.push(() => button.setAttribute("aria-pressed", String(!off.has(name))));
    button.setAttribute("aria-pressed", "true");
    return button;
  }
  function suggest() {  // a logarithmic axis if a linear one would hide the small final values
    const ends = names.flatMap((name) => Object.values(data.runs[name]).slice(0, 1).flatMap((curve) => (curve[y.value] || [[]])[0])).filter((value) => value > 0);
    logarithmic.checked = data.points > 0 && ends.length > 0 && Math.max(...ends) > 6 * Math.min(...ends) && !(y.value in { updates: 1, gradients: 1 });
  }
  function aligned(shown) {
    const xs = [...new Set(shown.flatMap((name) => data.runs[name][x.value].x))].sort((a, b) => a - b);
    const log = logarithmic.checked, fit = (value) => (log && !(value > 0) ? null : value);
    const columns = [xs];
    for (const name of shown) {
      const curve = data.runs[name][x.value], [mean, least, largest] = curve[y.value];
      for (const ys of [mean, largest || mean, least || mean]) columns.push(xs.map((each) => fit(at(curve.x, ys, each))));
    }
    return columns;
  }
  function draw() {
    const shown = names.filter((name) => !off.has(name) && data.runs[name][x.value] && data.runs[name][x.value][y.value]);
    const target = (data.targets || {})[y.value], series = [{}], bands = [];
    for (const name of shown) {
      const { stroke, dash } = style(names.indexOf(name));
      series.push({ label: name, stroke: () => lit(stroke), dash, width: 2, spanGaps: false, points: { show: data.points === 0 } });
      series.push({ show: true, width: 0, stroke: "transparent", points: { show: false } }, { show: true, width: 0, stroke: "transparent", points: { show: false } });
      bands.push({ series: [series.length - 2, series.length - 1], fill: () => lit(stroke) + "2e" });
    }
    const axis = { font: "13px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif", stroke: () => ink("--ink"), grid: { stroke: () => ink("--grid"), width: 1 }, ticks: { stroke: () => ink("--line"), width: 1 }, values: (_, all) => all.map((value) => (value === null ? "" : short(value))) };
    const options = {
      width: plot.clientWidth, height: Math.max(250, Math.min(400, plot.clientWidth * 0.5)), legend: { show: false },
      scales: { x: { time: false, distr: data.geometric ? 3 : 1 }, y: logarithmic.checked ? { distr: 3 } : {} },
      axes: [{ ...axis, label: data.axes[x.value], labelSize: 22, size: 34 }, { ...axis, label: data.quantities[y.value], labelSize: 22, size: 56 }],
      cursor: { drag: { x: true, y: true, uni: 20 }, points: { size: 7 } }, series, bands,
      hooks: { setCursor: [told], draw: [(drawn) => line(drawn, target)] },
    };
    if (u) u.destroy();
    for (const name of names) outputs[name].textContent = "";
    where.textContent = "";
    u = new uPlot(options, shown.length ? aligned(shown) : [[0, 1]], plot);
    plot.dataset.axis = x.value;
    plot.dataset.shown = shown.join("\n");
  }
  function line(drawn, target) {
    if (!target) return;
    const { ctx, bbox } = drawn, height = drawn.valToPos(target, "y", true);
    if (height < bbox.top || height > bbox.top + bbox.height) return;
    ctx.save(); ctx.strokeStyle = ink("--soft"); ctx.lineWidth = devicePixelRatio; ctx.setLineDash([3 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath(); ctx.moveTo(bbox.left, height); ctx.lineTo(bbox.left + bbox.width, height); ctx.stroke();
    ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`; ctx.textBaseline = "bottom"; ctx.textAlign = "left"; ctx.fillStyle = ink("--ink");
    ctx.setLineDash([]); ctx.lineWidth = 4 * devicePixelRatio; ctx.strokeStyle = ink("--page");  // readable on lines
    for (const write of ["strokeText", "fillText"]) ctx[write](`target ${short(target)}`, bbox.left + 6 * devicePixelRatio, height - 3 * devicePixelRatio);
    ctx.restore();
  }
  function told(drawn) {
    const i = drawn.cursor.idx;
    where.textContent = i === null || i === undefined ? "" : `${data.axes[x.value]}: ${short(drawn.data[0][i])}`;
    drawn.series.forEach((each, number) => { if (number % 3 === 1 && each.label in outputs) outputs[each.label].textContent = i === null || i === undefined ? "" : short(drawn.data[number][i]); });
  }
  redraws.push(draw);
  repaints.push(() => u.redraw(false));
  suggest();
  draw();
  new ResizeObserver(() => { if (u && plot.clientWidth && plot.clientWidth !== u.width) u.setSize({ width: plot.clientWidth, height: u.height }); }).observe(plot);
}

for (const place of document.querySelectorAll(".chart")) {
  const data = DATA[place.dataset.of];
  if (data && Object.keys(data.runs).length && Object.keys(data.axes).length) chart(place, data); else place.remove();
}

// ---- tables: a heading sorts, numbers by their value

for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    const value = (row) => { const cell = row.cells[column], own = cell.dataset.value; return own === undefined ? cell.textContent : own === "" ? NaN : +own; };
    const order = (a, b) => {
      const [one, other] = [value(a), value(b)];
      if (typeof one === "string" || typeof other === "string") return String(one).localeCompare(String(other), "en", { numeric: true }) * (up ? 1 : -1);
      if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other);  // unknown values come last in both directions
      return (one - other) * (up ? 1 : -1);
    };
    body.append(...[...body.rows].sort(order));
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }));
}

// ---- the replay: a window of each timing, worker by worker, and what each does at the slider's moment

function replay(place, all) {
  const SAID = { computing: ["computing", "comp."], wasted: ["computing a wasted gradient", "wasted"], network: ["sending or receiving", "sends"], waiting: ["waiting", "waits"], away: ["away", "away"] };
  const LANE = 17, TOP = 16, STALE = 70, LEFT = 34;
  const range = (className, max, label) => make("input", { type: "range", min: 0, max, value: 0, step: 1, className, "aria-label": label });
  const which = choice(Object.fromEntries(all.map((each, number) => [number, first(each.runs)])), choose);
  const slider = range("time", 1000, "moment"), zoom = range("zoom", 60, "zoom"), play = make("button", { type: "button", textContent: "▶ play" });
  const canvas = make("canvas", { role: "img" }), now = make("ul", { className: "now" }), told = make("p", { className: "told", "aria-live": "polite" }), note = make("p", { className: "note" });
  const kinds = make("ul", { className: "legend" }, ...DATA.kinds.map(([kind, colour]) => { const i = make("i"); i.style.background = colour; return make("li", {}, i, kind); }), make("li", {}, "▏update"));
  place.append(make("div", { className: "tools" }, labelled("run", which), labelled("zoom", zoom), play), kinds, canvas, slider, told, now, note);
  slider.addEventListener("input", draw);
  zoom.addEventListener("input", draw);
  let own = all[0], timer = 0;

  function view() {  // the visible part of the window: all of it, or a part around the current time
    const length = own.ticks * Math.pow(0.9, +zoom.value), moment = slider.value / 1000 * own.ticks;
    const begin = Math.min(Math.max(0, moment - length / 2), own.ticks - length);
    return { begin, length, moment };
  }
  function isStale() { return own.uses[2].some((age) => age > 0); }
  function seconds(tick) { return own.begin + (own.end - own.begin) * tick / own.ticks; }
  function choose() {
    own = all[+which.value || 0];
    zoom.value = Math.max(0, Math.min(60, Math.round(Math.log(Math.max(1, own.spans[0].length / own.workers / Math.max(8, place.clientWidth / 22))) / -Math.log(0.9))));
    slider.value = Math.floor(500 * Math.pow(0.9, +zoom.value));
    const part = own.end - own.begin < own.until - own.begin || own.begin > 0 ? `From ${short(own.begin)} s to ${short(own.end)} s of ${short(own.until)} s` : `All ${short(own.until)} s`;
    const whose = own.workers < own.of ? `the first ${own.workers} of ${own.of.toLocaleString("en")} workers` : `all ${own.of} workers`;
    const aged = isStale() ? " Below the workers: the staleness of each gradient when it is used, in updates." : " No gradient in it is stale.";
    const thin = own.thin > 1 ? ` One tick stands for ${own.thin} updates.` : "";
    note.textContent = `${part}, ${whose}, seed ${own.seed}.${aged}${thin}`;
    draw();
  }
  function draw() {
    const { begin, length, moment } = view(), ratio = devicePixelRatio || 1, width = place.clientWidth, lanes = own.workers * LANE;
    const below = isStale() ? STALE : 0, height = TOP + lanes + below + 22;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d"), pos = (tick) => LEFT + (tick - begin) / length * (width - LEFT - 4);
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle"; pen.fillStyle = ink("--ink");
    for (let worker = 0; worker < own.workers; worker++) pen.fillText(String(worker), 4, TOP + worker * LANE + LANE / 2);
    pen.save(); pen.beginPath(); pen.rect(LEFT, 0, width - LEFT - 4, height); pen.clip();
    const [workers, begins, ends, codes] = own.spans, doing = Array(own.workers).fill(-1);
    for (let i = 0; i < workers.length; i++) {
      if (begins[i] <= moment && moment < ends[i]) doing[workers[i]] = codes[i];
      if (ends[i] < begin || begins[i] > begin + length) continue;
      const left = pos(begins[i]), right = pos(ends[i]);
      pen.fillStyle = DATA.kinds[codes[i]][1];
      pen.fillRect(left, TOP + workers[i] * LANE + 1, Math.max(0.6, right - left - (right - left > 3 ? 0.7 : 0)), LANE - 3);
    }
    pen.fillStyle = ink("--ink");
    for (const tick of own.updates) if (tick >= begin && tick <= begin + length) pen.fillRect(pos(tick), 4, 0.8, TOP - 6);
    if (below) stale(pen, pos, begin, length, TOP + lanes, STALE, width);
    pen.fillStyle = ink("--ink"); pen.fillRect(pos(moment) - 0.8, 0, 1.6, TOP + lanes + below);
    pen.restore();
    pen.fillStyle = ink("--soft"); pen.textBaseline = "top";
    for (const [part, align] of [[0, "left"], [0.5, "center"], [1, "right"]]) { pen.textAlign = align; pen.fillText(`${short(seconds(begin + part * length))} s`, pos(begin + part * length), height - 16); }
    tell(moment, doing);
  }
  function stale(pen, pos, begin, length, top, high, width) {
    const [times, , values] = own.uses, most = Math.max(1, ...values.filter((_, i) => times[i] >= begin && times[i] <= begin + length));
    pen.fillStyle = ink("--soft"); pen.fillRect(LEFT, top + high, width, 0.7); pen.fillRect(LEFT, top + 2, width, 0.7);
    pen.restore(); pen.save(); pen.textBaseline = "top"; pen.textAlign = "right"; pen.fillText(String(most), LEFT - 3, top + 7); pen.fillText("0", LEFT - 3, top + high - 10);
    pen.fillStyle = ink("--link");
    for (let i = 0; i < times.length; i++) if (times[i] >= begin && times[i] <= begin + length) pen.fillRect(pos(times[i]) - 1.2, top + 8 + (high - 10) * (1 - values[i] / most) - 1.2, 2.6, 2.6);
    pen.textAlign = "left"; pen.lineWidth = 4; pen.strokeStyle = ink("--page"); pen.fillStyle = ink("--soft"); // readable on dots
    pen.strokeText("staleness", LEFT + 3, top + 7); pen.fillText("staleness", LEFT + 3, top + 7);
  }
  function tell(moment, doing) {
    const counts = DATA.kinds.map(([kind], code) => [doing.filter((each) => each === code).length, SAID[kind][0]]).filter(([number]) => number);
    const [times, users, values] = own.uses, used = times.filter((time) => time <= moment).length, recent = values.slice(Math.max(0, used - own.workers), used);
    const made = own.before + own.updates.filter((tick) => tick <= moment).length * own.thin;
    const age = used && isStale() ? ` The last gradient, of worker ${users[used - 1]}, was used with staleness ${values[used - 1]}; mean of the last ${recent.length}: ${short(recent.reduce((a, b) => a + b, 0) / recent.length)}.` : "";
    told.textContent = `At ${seconds(moment).toPrecision(4)} s: ${counts.map(([number, kind]) => `${number} ${kind}`).join(", ") || "no worker does anything"}; ${own.thin > 1 ? "about " : ""}${made} updates so far.${age}`;
    canvas.setAttribute("aria-label", `Timeline. ${told.textContent}`);
    now.replaceChildren(...doing.map((code, worker) => {
      const [kind, colour] = code < 0 ? ["nothing", ink("--page")] : DATA.kinds[code];
      const tile = make("li", { title: `worker ${worker}: ${kind}` }, make("b", { textContent: worker }), code < 0 ? "–" : SAID[kind][1]);
      tile.style.background = colour;
      tile.className = kind === "away" ? "dark" : kind === "nothing" ? "idle" : "";
      return tile;
    }));
  }
  canvas.addEventListener("click", (event) => {
    const { begin, length } = view(), part = (event.offsetX - LEFT) / (canvas.clientWidth - LEFT - 4);
    slider.value = Math.round((begin + Math.min(1, Math.max(0, part)) * length) / own.ticks * 1000); draw();
  });
  play.addEventListener("click", () => {
    if (timer) { clearInterval(timer); timer = 0; } else timer = setInterval(() => { slider.value = (+slider.value + 1) % 1001; draw(); }, 60);
    play.textContent = timer ? "❚❚ stop" : "▶ play";
    told.setAttribute("aria-live", timer ? "off" : "polite");
  });
  new ResizeObserver(() => { if (canvas.width !== Math.round(place.clientWidth * (devicePixelRatio || 1))) draw(); }).observe(place);
  repaints.push(draw);
  choose();
}
const stage = document.getElementById("replay");
if (DATA.replays.length) replay(stage, DATA.replays); else stage.append(make("p", { className: "note", textContent: "These runs have no clock: there is nothing to replay." }));
