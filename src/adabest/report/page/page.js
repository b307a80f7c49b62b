"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const find = (id) => document.getElementById(id);
  const MANY = 12; // entries; of more, only some are drawn to begin with
  const FIRST = 8;
  const BESIDE = 7; // names that stand beside the plot; more of them are below it, in columns
  const MARGIN = { top: 12, right: 24, bottom: 40 };

  const state = {
    family: 0,
    metric: 0,
    shown: data.entries.map((_, number) => data.entries.length <= MANY || number < FIRST),
    log: false,
    whole: false,
    matching: data.entries.map(() => true), // what the filters let through
    raised: null, // the entry whose line stands out
    round: null, // where the cursor is
  };

  // --- Small things --------------------------------------------------------------------------------------------------

  function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function svg(name, attributes, parent) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (parent) parent.append(made);
    return made;
  }

  const colour = (entry) => `var(--line-${data.entries[entry].look % data.colours})`;
  const dash = (entry) => data.dashes[data.entries[entry].look % data.dashes.length];

  function swatch(entry) {
    const made = svg("svg", { class: "swatch", viewBox: "0 0 34 10", "aria-hidden": "true" });
    const line = svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, "stroke-dasharray": dash(entry) }, made);
    line.style.stroke = colour(entry);
    return made;
  }

  function plain(value, digits = 4) {
    const size = Math.abs(value);
    const short = Number(value.toPrecision(digits));
    return size !== 0 && (size >= 1e6 || size < 1e-3) ? short.toExponential().replace("e+", "e") : String(short);
  }

  const family = () => data.families[state.family];
  const metric = () => family().metrics[state.metric];

  /** A value, with its standard deviation if it has one, as it is read. */
  function reading({ value, spread }) {
    if (family().scale === "percent") {
      return `${(100 * value).toFixed(1)}${spread ? ` ± ${(100 * spread).toFixed(1)}` : ""} %`;
    }
    return plain(value) + (spread ? ` ± ${plain(spread, 2)}` : "");
  }

  // --- What is drawn -------------------------------------------------------------------------------------------------

  /** The lines of the chosen metric that are to be seen. */
  function lines() {
    return (data.lines[metric()[0]] ?? [])
      .map((line, entry) => line && { ...line, entry, rounds: data.grids[line.grid] })
      .filter((line) => line && visible(line.entry));
  }

  const visible = (entry) => state.shown[entry] && state.matching[entry];
  const drawable = (value) => value !== null && (!isLog() || value > 0);
  const isLog = () => state.log && family().scale === "number";

  function range(drawn) {
    let low = Infinity;
    let high = -Infinity;
    for (const line of drawn) {
      line.mean.forEach((value, at) => {
        if (!drawable(value)) return;
        const spread = line.spread?.[at] ?? 0;
        high = Math.max(high, value + spread);
        low = Math.min(low, isLog() && value <= spread ? value : value - spread);
      });
      for (const [, value] of line.ends ?? []) {
        if (drawable(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
      }
    }
    if (low > high) return null;
    if (isLog()) return low === high ? [low / 2, high * 2] : [low, high];
    if (family().scale === "percent") {
      // The climb of the first rounds would squeeze all differences that matter.
      const last = drawn.map((line) => line.mean.at(-1)).filter((value) => value !== null);
      high = Math.min(high, 1);
      low = state.whole ? 0 : Math.max(0, low, Math.min(...last) - 0.12);
    } else if (family().scale === "count") {
      low = 0;
    }
    if (low === high) [low, high] = [low - Math.max(Math.abs(low), 1) / 10, high + Math.max(Math.abs(high), 1) / 10];
    const room = 0.04 * (high - low);
    const stays = (family().scale === "percent" && low === 0) || family().scale === "count";
    return [stays ? low : low - room, high + room];
  }

  function steps([low, high], wanted) {
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((times) => times * power >= rough) * power;
    const ticks = [];
    for (let number = Math.ceil(low / step - 1e-9); number * step <= high + 1e-9 * step; number++) ticks.push(number * step);
    return ticks;
  }

  function decades([low, high], wanted) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const every = Math.max(1, Math.ceil((last - first) / wanted));
    const parts = high / low < 200 ? [1, 2, 5] : [1];
    const ticks = [];
    for (let power = first; power <= last; power += every) for (const part of parts) ticks.push(part * 10 ** power);
    return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  }

  // --- The plot ------------------------------------------------------------------------------------------------------

  const plot = find("plot");
  let picture = null; // what the cursor has to know of what was drawn last

  function draw() {
    plot.querySelector("svg")?.remove();
    const width = Math.max(280, plot.clientWidth);
    const height = Math.round(Math.min(440, Math.max(250, width * 0.56)));
    const drawn = lines();
    const words = metric()[2];
    find("what").textContent = words;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img" });
    root.setAttribute("aria-label", `${words}, over rounds. Arrow keys move along the rounds.`);
    plot.prepend(root);
    picture = { root, width, height, drawn, rounds: [] };
    const limits = range(drawn);
    if (limits === null) {
      const reason = data.entries.some((_, entry) => visible(entry)) ? "Nothing was measured." : "No entry is chosen.";
      svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, root).textContent = reason;
      return say();
    }

    picture.rounds = [...new Set(drawn.flatMap((line) => line.rounds))].sort((a, b) => a - b);
    const first = picture.rounds.length > 1 ? picture.rounds[0] : picture.rounds[0] - 1;
    const last = picture.rounds.length > 1 ? picture.rounds.at(-1) : picture.rounds[0] + 1;
    const rows = isLog() ? decades(limits, 6) : steps(limits, height / 50);
    const labels = rows.map((tick) => (family().scale === "percent" ? `${plain(100 * tick)} %` : plain(tick)));
    const [left, right] = [16 + 8 * Math.max(3, ...labels.map((label) => label.length)), width - MARGIN.right];
    const [top, bottom] = [MARGIN.top, height - MARGIN.bottom];
    const through = isLog() ? Math.log10 : (value) => value;
    const [low, high] = limits.map(through);
    const x = (round) => left + ((round - first) / (last - first)) * (right - left);
    const y = (value) => bottom - ((through(value) - low) / (high - low)) * (bottom - top);
    Object.assign(picture, { x, y, left, right, top, bottom });

    const clip = svg("clipPath", { id: "inside" }, svg("defs", {}, root));
    svg("rect", { x: left, y: top - 2, width: right - left + 2, height: bottom - top + 4 }, clip);
    rows.forEach((tick, number) => {
      svg("line", { class: "rule", x1: left, x2: right, y1: y(tick), y2: y(tick) }, root);
      svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, root).textContent = labels[number];
    });
    for (const tick of steps([first, last], Math.max(2, width / 110)).filter(Number.isInteger)) {
      svg("line", { class: "base", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 }, root);
      svg("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" }, root).textContent = tick;
    }
    svg("line", { class: "base", x1: left, x2: right, y1: bottom, y2: bottom }, root);
    svg("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, root).textContent = "round";

    const inside = svg("g", { "clip-path": "url(#inside)" }, root);
    for (const line of drawn) if (line.spread) drawBand(line, inside, limits);
    for (const line of drawn) drawLine(line, inside);
    for (const line of drawn) drawEnds(line, root, limits);
    picture.cursor = svg("g", {}, root);
    raise();
    say();
    point();
  }

  function marked(name, attributes, parent, entry, kind, property) {
    const made = svg(name, { ...attributes, class: kind, "data-entry": entry }, parent);
    made.style[property] = colour(entry);
    return made;
  }

  function path(line, height) {
    let text = "";
    let pen = "M";
    line.rounds.forEach((round, at) => {
      if (!drawable(line.mean[at])) {
        pen = "M";
        return;
      }
      text += `${pen}${picture.x(round).toFixed(1)} ${height(at).toFixed(1)}`;
      pen = "L";
    });
    return text;
  }

  function drawLine(line, parent) {
    const d = path(line, (at) => picture.y(line.mean[at]));
    marked("path", { d, "stroke-dasharray": dash(line.entry) }, parent, line.entry, "line", "stroke");
    if (line.rounds.length === 1 && drawable(line.mean[0])) {
      const place = { cx: picture.x(line.rounds[0]), cy: picture.y(line.mean[0]), r: 4 };
      marked("circle", place, parent, line.entry, "line", "fill");
    }
  }

  function drawBand(line, parent, [low]) {
    const known = line.rounds.map((_, at) => at).filter((at) => drawable(line.mean[at]));
    const edge = (at, sign) => {
      const value = line.mean[at] + sign * line.spread[at];
      return `${picture.x(line.rounds[at]).toFixed(1)} ${picture.y(isLog() ? Math.max(value, low) : value).toFixed(1)}`;
    };
    const around = [...known.map((at) => edge(at, 1)), ...known.reverse().map((at) => edge(at, -1))];
    marked("path", { d: `M${around.join("L")}Z` }, parent, line.entry, "band", "fill");
  }

  /** × where a run diverged, ● where one ended early, ○ where one stands. */
  function drawEnds(line, parent, [low, high]) {
    for (const [round, value, ending] of line.ends ?? []) {
      if (!drawable(value)) continue;
      const [cx, cy] = [picture.x(round), picture.y(Math.min(high, Math.max(low, value)))];
      if (ending === "diverged") {
        const d = `M${cx - 6} ${cy - 6}L${cx + 6} ${cy + 6}M${cx - 6} ${cy + 6}L${cx + 6} ${cy - 6}`;
        marked("path", { d }, parent, line.entry, "end", "stroke");
      } else {
        const circle = marked("circle", { cx, cy, r: 5 }, parent, line.entry, "end", "stroke");
        if (ending === "early") circle.style.fill = colour(line.entry);
      }
    }
  }

  /** Lets the line of an entry stand out. */
  function raise() {
    for (const drawn of plot.querySelectorAll("[data-entry]")) {
      drawn.classList.toggle("pale", state.raised !== null && Number(drawn.dataset.entry) !== state.raised);
    }
  }

  // --- The cursor ----------------------------------------------------------------------------------------------------

  const tip = find("tip");

  function nearest(sorted, wanted) {
    let [low, high] = [0, sorted.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= wanted) low = middle;
      else high = middle;
    }
    return Math.abs(sorted[high] - wanted) < Math.abs(sorted[low] - wanted) ? high : low;
  }

  /** What each line has at the cursor, the highest first; lines that ended before it have nothing. */
  function readings() {
    return picture.drawn
      .filter((line) => line.rounds[0] <= state.round && state.round <= line.rounds.at(-1))
      .map((line) => {
        const at = nearest(line.rounds, state.round);
        return { entry: line.entry, round: line.rounds[at], value: line.mean[at], spread: line.spread?.[at] };
      })
      .filter((reading) => drawable(reading.value))
      .sort((a, b) => b.value - a.value);
  }

  function point() {
    if (!picture?.cursor) return;
    picture.cursor.replaceChildren();
    tip.hidden = state.round === null || !picture.rounds.length;
    if (tip.hidden) return;
    state.round = picture.rounds[nearest(picture.rounds, state.round)];
    const found = readings();
    const x = picture.x(state.round);
    svg("line", { class: "cursor", x1: x, x2: x, y1: picture.top, y2: picture.bottom }, picture.cursor);
    for (const one of found) {
      const cy = picture.y(one.value);
      if (cy > picture.bottom + 1) continue;
      svg("circle", { class: "dot", cx: picture.x(one.round), cy, r: 4 }, picture.cursor).style.fill = colour(one.entry);
    }
    tip.replaceChildren(element("b", { textContent: `Round ${state.round}` }));
    for (const one of found.slice(0, MANY)) {
      const row = element("div", {}, swatch(one.entry));
      row.append(element("span", { className: "name", textContent: data.entries[one.entry].label }));
      if (one.round !== state.round) row.append(element("small", { textContent: `@ ${one.round}` }));
      row.append(element("span", { className: "value", textContent: reading(one) }));
      tip.append(row);
    }
    if (found.length > MANY) tip.append(element("small", { textContent: `and ${found.length - MANY} more` }));
    const beside = x + 16 + tip.offsetWidth <= picture.width ? x + 16 : x - 16 - tip.offsetWidth;
    tip.style.transform = `translate(${Math.round(Math.max(0, beside))}px, ${picture.top}px)`;
  }

  function follow(event) {
    if (!picture?.x) return;
    const box = picture.root.getBoundingClientRect();
    const share = ((event.clientX - box.left) * (picture.width / box.width) - picture.left) / (picture.right - picture.left);
    const [first, last] = [picture.rounds[0], picture.rounds.at(-1)];
    state.round = first + Math.min(1, Math.max(0, share)) * (last - first);
    point();
  }

  function leave() {
    state.round = null;
    point();
  }

  plot.addEventListener("pointermove", follow);
  plot.addEventListener("pointerdown", follow);
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("focusout", leave);
  plot.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return leave();
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !picture.rounds.length) return;
    event.preventDefault();
    const end = picture.rounds.length - 1;
    const at = state.round === null ? end : nearest(picture.rounds, state.round) + move;
    state.round = picture.rounds[Math.min(end, Math.max(0, at))];
    point();
    const words = readings().map((one) => `${data.entries[one.entry].label} ${reading(one)}`);
    find("spoken").textContent = `Round ${state.round}: ${words.join(", ")}`;
  });

  // --- What can be chosen --------------------------------------------------------------------------------------------

  const pressed = (button, is) => button.setAttribute("aria-pressed", String(is));

  function choices(place, words, chosen, choose) {
    if (place.dataset.words !== words.join("|")) {
      place.dataset.words = words.join("|");
      place.replaceChildren(...words.map((word) => element("button", { type: "button", textContent: word })));
      [...place.children].forEach((button, number) => button.addEventListener("click", () => choose(number)));
    }
    [...place.children].forEach((button, number) => pressed(button, number === chosen));
  }

  function choose(changes) {
    Object.assign(state, changes);
    choices(find("families"), data.families.map((one) => one.name), state.family, (family) => choose({ family, metric: 0 }));
    choices(find("metrics"), family().metrics.map(([, word]) => word), state.metric, (metric) => choose({ metric }));
    find("metrics").hidden = family().metrics.length < 2;
    find("log").hidden = family().scale !== "number";
    find("whole").hidden = family().scale !== "percent";
    pressed(find("log"), state.log);
    pressed(find("whole"), state.whole);
    legend();
    draw();
  }

  // A label's words, which may stand in several lines: it breaks behind a comma rather than within a number.
  function breakable(label) {
    return label.split(/(?<=,)/).flatMap((part) => [part, element("wbr")]);
  }

  const buttons = data.entries.map((entry, number) => {
    const button = element("button", { type: "button" }, swatch(number));
    const label = element("span", { className: "label" });
    label.append(...breakable(entry.label));
    button.append(label, element("span", { className: "value" }));
    if (entry.endings) button.append(element("span", { className: "ending", textContent: entry.endings }));
    button.addEventListener("click", () => {
      state.shown[number] = !state.shown[number];
      choose({});
    });
    const raised = (entry) => () => {
      state.raised = entry !== null && visible(entry) ? entry : null;
      raise();
    };
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, raised(number));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, raised(null));
    find("legend").append(element("li", {}, button));
    return button;
  });

  /** Which entries are shown, and what each ends with. */
  function legend() {
    buttons.forEach((button, number) => {
      pressed(button, state.shown[number]);
      button.parentElement.hidden = !state.matching[number];
      const line = data.lines[metric()[0]]?.[number];
      const last = line ? { value: line.mean.at(-1), spread: line.spread?.at(-1) } : null;
      button.querySelector(".value").textContent = last && last.value !== null ? reading(last) : "–";
    });
    if (state.raised !== null && !visible(state.raised)) state.raised = null;
    const count = data.entries.filter((_, entry) => visible(entry)).length;
    find("count").textContent = `${count} of ${data.entries.length} shown`;
  }

  /** What must be known to read the plot. */
  function say() {
    const drawn = picture.drawn;
    const notes = [];
    if (drawn.some((line) => line.spread)) {
      notes.push("Lines are means over runs that differ only in their seeds, bands one standard deviation to each side.");
    }
    const endings = new Set(drawn.flatMap((line) => (line.ends ?? []).map(([, , ending]) => ending)));
    if (endings.has("diverged")) notes.push("× marks where a run diverged.");
    if (endings.has("early")) notes.push("● marks an early end.");
    if (endings.has("unfinished")) notes.push("○ marks how far an unfinished run has come.");
    if (picture.x && family().scale === "percent" && !state.whole && drawn.some((line) => line.mean[0] !== null && picture.y(line.mean[0]) > picture.bottom)) {
      notes.push("The first rounds lie below the axis; “Whole range” shows them.");
    }
    find("note").textContent = notes.join(" ");
  }

  /** The lines that are shown, as a table for other programs. */
  function save() {
    const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
    const rows = [["entry", "round", metric()[0], "standard_deviation"]];
    for (const line of lines()) {
      const label = quoted(data.entries[line.entry].label);
      line.rounds.forEach((round, at) => rows.push([label, round, line.mean[at], line.spread?.[at] ?? 0]));
    }
    const address = URL.createObjectURL(new Blob([rows.map((row) => `${row.join(",")}\n`).join("")], { type: "text/csv" }));
    element("a", { href: address, download: `${metric()[0]}.csv` }).click();
    URL.revokeObjectURL(address);
  }

  find("save").addEventListener("click", save);
  find("log").addEventListener("click", () => choose({ log: !state.log }));
  find("whole").addEventListener("click", () => choose({ whole: !state.whole }));
  /** Shows or hides the entries that the filters let through; what they hide stays as it was. */
  const turn = (is) => choose({ shown: state.shown.map((was, entry) => (state.matching[entry] ? is : was)) });
  find("every").addEventListener("click", () => turn(true));
  find("none").addEventListener("click", () => turn(false));
  document.querySelector(".all").hidden = data.entries.length < 2;
  document.querySelector(".stage").classList.toggle("many", data.entries.length > BESIDE);
  for (const head of document.querySelectorAll("th.entry")) {
    const label = element("span", { className: "label" });
    label.append(...breakable(head.textContent));
    head.replaceChildren(swatch(Number(head.parentElement.dataset.entry)), label);
  }

  // --- Filters -------------------------------------------------------------------------------------------------------

  const rows = [...document.querySelectorAll("tr[data-entry]")];

  /** Lets through the entries of a cell whose labels have all the words that were typed. */
  function filter() {
    const words = find("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const cell = find("cell")?.value ?? "";
    state.matching = data.entries.map((entry) => {
      const label = entry.label.toLowerCase();
      return (!cell || entry.cell === cell) && words.every((word) => label.includes(word));
    });
    const count = state.matching.filter(Boolean).length;
    const narrowed = words.length > 0 || cell !== "";
    // Of many entries only some are drawn to begin with, but all of those that somebody asks for, if they are few.
    if (narrowed && count <= MANY && !state.matching.some((is, entry) => is && state.shown[entry])) {
      state.shown = state.shown.map((was, entry) => was || state.matching[entry]);
    }
    find("matching").textContent = narrowed ? `${count} of ${data.entries.length} entries` : "";
    for (const row of rows) row.hidden = !state.matching[Number(row.dataset.entry)];
    if (data.families.length) choose({});
    hints();
  }

  find("words")?.addEventListener("input", filter);
  find("cell")?.addEventListener("change", filter);

  // --- Tables that are wider than the page -----------------------------------------------------------------------------

  const boxes = [...document.querySelectorAll(".box")];

  /** Says of a table that it scrolls sideways, until its end is seen. */
  function hints() {
    for (const box of boxes) {
      const more = box.scrollWidth - box.clientWidth - box.scrollLeft > 1;
      box.classList.toggle("more", more);
      box.nextElementSibling.hidden = box.scrollWidth - box.clientWidth <= 1;
    }
  }

  for (const box of boxes) {
    box.addEventListener("scroll", hints, { passive: true });
    new ResizeObserver(hints).observe(box);
  }

  // --- Heat maps -----------------------------------------------------------------------------------------------------

  const figures = [...document.querySelectorAll(".partition")];
  const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);

  /** From a share of the largest count to red, green and blue; no sample at all is the ground itself. */
  function ramp(canvas) {
    const style = getComputedStyle(canvas);
    const stops = [style.backgroundColor, style.borderTopColor, style.color].map(channels);
    return (share) => {
      const at = share > 0 ? 2 * (0.12 + 0.88 * share) : 0;
      const [from, to] = at < 1 ? [stops[0], stops[1]] : [stops[1], stops[2]];
      return from.map((channel, number) => channel + (to[number] - channel) * (at < 1 ? at : at - 1));
    };
  }

  function paint(canvas, width, height, shade) {
    [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        const [red, green, blue, opacity = 255] = shade(column, row);
        image.data.set([red, green, blue, opacity], 4 * (row * width + column));
      }
    }
    context.putImageData(image, 0, 0);
  }

  function drawMap(number) {
    const { counts, heldOut } = data.maps[number];
    const figure = figures[number];
    if (!counts || figure.hidden) return;
    const cells = figure.querySelector(".cells");
    const most = Math.max(...counts.map((row) => Math.max(...row)));
    const tint = ramp(cells);
    paint(cells, counts[0].length, counts.length, (column, row) => tint(counts[counts.length - 1 - row][column] / most));
    const roles = figure.querySelector(".roles");
    const ink = channels(getComputedStyle(roles).color);
    paint(roles, heldOut.length, 1, (column) => [...ink, Math.round(255 * heldOut[column])]);
    paint(figure.querySelector(".ramp canvas"), 64, 1, (column) => tint(column / 63));
    figure.querySelector(".most").textContent = plain(most);
  }

  function drawMaps() {
    figures.forEach((_, number) => drawMap(number));
  }

  figures.forEach((figure, number) => {
    const { counts, heldOut, clients, names } = data.maps[number];
    const cells = figure.querySelector(".cells");
    const readout = figure.querySelector(".readout");
    cells?.addEventListener("pointermove", (event) => {
      const box = cells.getBoundingClientRect();
      const at = (place, count) => Math.min(count - 1, Math.max(0, Math.floor(place * count)));
      const column = at((event.clientX - box.left) / box.width, counts[0].length);
      const row = at((box.bottom - event.clientY) / box.height, counts.length);
      const samples = counts.map((counted) => counted[column]).reduce((sum, count) => sum + count, 0);
      const who = clients === 1 ? `this ${heldOut[column] ? "validation" : "training"} client` : `these ${clients} clients, on average`;
      const told = counts.length === 1 ? "" : `Class ${names[row] ?? row}: ${plain(counts[row][column])} of `;
      readout.textContent = `${told}${plain(samples)} samples of ${who}`;
    });
    cells?.addEventListener("pointerleave", () => (readout.textContent = ""));
  });

  find("partition")?.addEventListener("change", (event) => {
    figures.forEach((figure, number) => (figure.hidden = number !== Number(event.target.value)));
    drawMaps();
  });

  // --- Light and dark ------------------------------------------------------------------------------------------------

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const scheme = find("scheme");
  let dark = prefersDark.matches;

  function dress() {
    pressed(scheme, dark);
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
    drawMaps();
  }

  scheme.addEventListener("click", () => {
    dark = !dark;
    dress();
  });
  prefersDark.addEventListener("change", () => {
    dark = prefersDark.matches;
    dress();
  });

  dress();
  if (data.families.length) {
    choose({});
    let width = plot.clientWidth;
    new ResizeObserver(() => {
      if (plot.clientWidth !== width) draw();
      width = plot.clientWidth;
    }).observe(plot);
  } else {
    plot.replaceChildren(element("p", { textContent: "No run has been evaluated yet." }));
    for (const part of document.querySelectorAll(".controls, .side, .pills")) part.hidden = true;
  }
})();
