"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const NS = "http://www.w3.org/2000/svg";

  function show(text, event) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 6))}px`;
  }
  function hide() { tip.hidden = true; }
  function make(name, attributes, parent) {
    const element = document.createElementNS(NS, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (parent) parent.appendChild(element);
    return element;
  }

  // light or dark
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("scheme").addEventListener("click", () => {
    const now = document.documentElement.dataset.scheme || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.scheme = now === "dark" ? "light" : "dark";
  });

  // charts tell their values under the pointer
  for (const [id, chart] of Object.entries(data.charts)) {
    const svg = document.getElementById(id).querySelector("svg");
    const rule = svg.querySelector(".rule");
    const view = svg.viewBox.baseVal;
    const left = Number(svg.querySelector(".grid").getAttribute("x1"));
    const right = Number(svg.querySelector(".grid").getAttribute("x2"));
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const across = ((event.clientX - box.left) / box.width) * view.width;
      const wanted = chart.span[0] + ((across - left) / (right - left)) * (chart.span[1] - chart.span[0]);
      // the lines of two runs have places of their own
      const nearest = (xs) => xs.reduce((best, x, i) => (Math.abs(x - wanted) < Math.abs(xs[best] - wanted) ? i : best), 0);
      const longest = chart.lines.reduce((a, b) => (b.x.length > a.x.length ? b : a));
      const at = longest.x[nearest(longest.x)];
      const place = left + ((at - chart.span[0]) / (chart.span[1] - chart.span[0])) * (right - left);
      rule.setAttribute("x1", place);
      rule.setAttribute("x2", place);
      rule.setAttribute("visibility", "visible");
      const words = chart.lines.map((line) => {
        const best = nearest(line.x), value = line.y[best];
        if (value === null || value === undefined) return `${line.name}: no value`;
        const range = line.low && line.low[best] !== line.high[best] ? ` (${line.low[best]} to ${line.high[best]})` : "";
        return `${line.name}: ${value}${line.unit ? " " + line.unit : ""}${range}`;
      });
      show([`${chart.x_label} ${at}`, ...words].join("\n"), event);
    });
    svg.addEventListener("pointerleave", () => { hide(); rule.setAttribute("visibility", "hidden"); });
  }

  // tables sort by a click on a heading and show the rows that hold every word of the filter
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = cell.textContent;
      cell.textContent = "";
      cell.appendChild(button);
      button.addEventListener("click", () => {
        const up = cell.getAttribute("aria-sort") ? cell.getAttribute("aria-sort") === "descending" : !cell.classList.contains("number");
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.v;
        const numeric = cell.classList.contains("number");
        const rows = [...body.rows].sort((a, b) => {
          if (numeric) {
            if (key(a) === undefined || key(b) === undefined) return (key(a) === undefined) - (key(b) === undefined);
            return (Number(key(a)) - Number(key(b))) * (up ? 1 : -1);
          }
          return a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", { numeric: true }) * (up ? 1 : -1);
        });
        body.append(...rows);
      });
    });
    const finder = table.parentElement.parentElement.querySelector(".finder");
    const input = finder.querySelector("input[type=search]"), more = finder.querySelector("input.untimed");
    function filter() {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let seen = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word)) || (more && !more.checked && row.classList.contains("untimed"));
        seen += row.hidden ? 0 : 1;
      }
      finder.querySelector(".count").textContent = seen < body.rows.length ? `${seen} of ${body.rows.length} rows` : `${seen} rows`;
    }
    for (const each of [input, more]) if (each) each.addEventListener("input", filter);
    filter();
  }

  // the timeline; a row is kind, batch, worker, samples, began, load, augment, collate, ended, asked, got, in 0.1 ms
  const [KIND, BATCH, WORKER, SAMPLES, BEGAN, LOAD, AUGMENT, COLLATE, ENDED, ASKED, GOT] = [...Array(11).keys()];
  const LANE = 24, LABEL = 74, AXIS = 24, FIRST = 40;
  function ms(units) {
    const value = units / 10;
    return Math.abs(value) >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(1)} ms`;
  }
  function about(row, what, length) {
    const early = row[ASKED] - row[ENDED];
    const lines = [`${row[KIND] ? "validation " : ""}batch ${row[BATCH]}, ${row[SAMPLES]} images, ${worker(row[WORKER])}`, `${what}: ${ms(length)}`];
    lines.push(`load ${ms(row[LOAD])}, augment ${ms(row[AUGMENT])}, collate ${ms(row[COLLATE])}`);
    lines.push(early >= 0 ? `ready ${ms(early)} before it was asked for` : `ready ${ms(-early)} after it was asked for`);
    lines.push(`waited ${ms(row[GOT] - row[ASKED])} for it`);
    return lines.join("\n");
  }
  function worker(number) { return number < 0 ? "in process" : `worker ${number}`; }

  for (const box of document.querySelectorAll(".timeline")) {
    const told = data.timelines[Number(box.dataset.run)];
    const lanes = box.querySelector(".lanes"), select = box.querySelector("select"), words = box.querySelector(".told");
    let epoch, from, to, least, most, names, parts;
    told.epochs.forEach((each, index) => {
      const option = document.createElement("option");
      option.value = index;
      option.textContent = each.epoch;
      select.appendChild(option);
    });

    function choose(index) {
      epoch = told.epochs[index];
      const workers = [...new Set(epoch.rows.map((row) => row[WORKER]))].sort((a, b) => a - b);
      names = [...workers.map(worker), "wait", "step"];
      parts = [];
      epoch.rows.forEach((row, i) => {
        const lane = workers.indexOf(row[WORKER]);
        const next = epoch.rows[i + 1];
        // what is neither of the stages, opening shared memory and the like, stays blank at the end
        let at = row[BEGAN];
        for (const [what, length] of [["load", row[LOAD]], ["augment", row[AUGMENT]], ["collate", row[COLLATE]]]) {
          parts.push({ lane, what, row, at, length });
          at += length;
        }
        parts.push({ lane: names.length - 2, what: "wait", row, at: row[ASKED], length: row[GOT] - row[ASKED] });
        if (next && next[KIND] === row[KIND] && next[BATCH] > row[BATCH] + 1) {
          parts.push({ lane: -1, what: "gap", row, at: row[GOT], length: next[ASKED] - row[GOT], count: next[BATCH] - row[BATCH] - 1 });
        } else if (next && next[KIND] === row[KIND] && next[BATCH] === row[BATCH] + 1) {
          parts.push({ lane: names.length - 1, what: "step", row, at: row[GOT], length: Math.max(0, next[ASKED] - row[GOT]) });
        }
      });
      parts.sort((a, b) => a.lane - b.lane || a.at - b.at);
      const ends = parts.map((part) => part.at + part.length);
      least = ends.reduce((a, b, i) => Math.min(a, parts[i].at), 0);
      most = ends.reduce((a, b) => Math.max(a, b), least + 10);
      from = 0;
      to = epoch.rows.length > FIRST ? epoch.rows[FIRST - 1][GOT] : most;
      if (to <= from) to = most;
      draw();
    }

    function draw() {
      const width = Math.max(240, lanes.clientWidth), room = width - LABEL - 8, height = names.length * LANE + AXIS + 6;
      const place = (units) => LABEL + ((units - from) / (to - from)) * room;
      const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
      make("rect", { class: "back", width, height }, svg);
      const raw = (to - from) / Math.max(2, room / 90), power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
      for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
        make("line", { class: "grid", x1: place(tick), x2: place(tick), y1: 4, y2: height - AXIS }, svg);
        make("text", { class: "tick", x: place(tick), y: height - 8, "text-anchor": place(tick) > width - 40 ? "end" : "middle" }, svg).textContent = step >= 10000 ? `${Math.round(tick / 10000)} s` : step >= 10 ? `${+(tick / 10000).toFixed(4)} s` : `${+(tick / 10).toFixed(2)} ms`;
      }
      names.forEach((name, lane) => { make("text", { x: 8, y: lane * LANE + 20 }, svg).textContent = name; });
      let drawn = 0;
      const filled = {};
      parts.forEach((part, index) => {
        if (part.at + part.length < from || part.at > to || part.length <= 0) return;
        const start = Math.max(LABEL, place(part.at)), end = Math.min(width - 8, place(part.at + part.length));
        const key = part.lane + part.what;
        // parts thinner than half a pixel on top of each other look the same as one of them
        if (end - start < 0.5 && filled[key] !== undefined && end - filled[key] < 0.5) return;
        filled[key] = end;
        drawn++;
        make("rect", { class: `${part.what}${part.row[KIND] ? " val" : ""}`, x: start.toFixed(1), y: Math.max(0, part.lane) * LANE + 7, width: Math.max(0.7, end - start).toFixed(1), height: part.lane < 0 ? names.length * LANE - 7 : LANE - 7, "data-part": index }, svg);
      });
      lanes.replaceChildren(svg);
      lanes.dataset.from = from;
      lanes.dataset.to = to;
      const all = epoch.of > epoch.rows.length ? ` of ${epoch.of}` : "";
      words.textContent = `epoch ${epoch.epoch}: ${epoch.rows.length}${all} batches, ${ms(to - from)} shown`;
    }

    function zoom(factor, around = (from + to) / 2) {
      const length = Math.min(most - least, Math.max(20, (to - from) * factor));
      const share = (around - from) / (to - from);
      move(around - share * length - from, length);
    }
    function move(by, length = to - from) {
      from = Math.min(most - length, Math.max(least, from + by));
      to = from + length;
      hide();
      draw();
    }
    function units(event) {
      const rect = lanes.getBoundingClientRect();
      return from + ((event.clientX - rect.left - LABEL) / (rect.width - LABEL - 8)) * (to - from);
    }
    const deeds = {
      in: () => zoom(0.5), out: () => zoom(2), left: () => move((from - to) / 3), right: () => move((to - from) / 3),
      all: () => { from = 0; move(0, most - from); },
    };
    select.addEventListener("change", () => choose(Number(select.value)));
    for (const button of box.querySelectorAll("button")) button.addEventListener("click", deeds[button.dataset.do]);
    lanes.addEventListener("keydown", (event) => {
      const deed = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right" }[event.key];
      if (deed) { event.preventDefault(); deeds[deed](); }
    });
    lanes.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, units(event));
    }, { passive: false });
    let grabbed = null;
    lanes.addEventListener("pointerdown", (event) => {
      grabbed = event.clientX;
      lanes.setPointerCapture(event.pointerId);
      lanes.classList.add("moving");
    });
    for (const name of ["pointerup", "pointercancel"]) lanes.addEventListener(name, () => { grabbed = null; lanes.classList.remove("moving"); });
    lanes.addEventListener("pointermove", (event) => {
      if (grabbed !== null && Math.abs(event.clientX - grabbed) > 1) {
        const by = ((grabbed - event.clientX) / (lanes.clientWidth - LABEL - 8)) * (to - from);
        grabbed = event.clientX;
        move(by);
        return;
      }
      const part = parts[event.target.dataset ? event.target.dataset.part : -1];
      if (part && part.what === "gap") show(`${part.count} batches that are not in this page`, event);
      else if (part) show(about(part.row, { wait: "wait", step: "step" }[part.what] || part.what, part.length), event);
      else hide();
    });
    lanes.addEventListener("pointerleave", hide);
    addEventListener("resize", draw);
    choose(0);
  }

  // paper has nothing to click on
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
})();
