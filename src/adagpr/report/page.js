"use strict";
(() => {
  document.documentElement.classList.add("scripted");

  // The chooser shows one layer of every run.
  const select = document.getElementById("layer");
  const choose = (number) => {
    for (const group of document.querySelectorAll(".layers")) {
      const layers = [...group.children];
      layers.forEach((layer, place) => layer.classList.toggle("chosen", place === Math.min(number, layers.length - 1)));
    }
  };
  choose(0);
  if (select) select.addEventListener("change", () => choose(Number(select.value) - 1));

  // Downloads are made from the numbers in the page.
  const save = (name, text, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const field = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const numbers = (figure) => (figure.numbers ??= JSON.parse(figure.querySelector("script").textContent));
  for (const button of document.querySelectorAll("button.take")) {
    button.addEventListener("click", () => {
      const figure = button.closest("figure");
      const { headings, rows } = numbers(figure);
      const text = [headings, ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
      save(`${figure.dataset.name}.csv`, text, "text/csv");
    });
  }
  for (const button of document.querySelectorAll("button.save")) {
    button.addEventListener("click", () => {
      const owner = button.closest("div");
      const text = button.dataset.file === "config.toml"
        ? owner.querySelector("pre.config").textContent
        : JSON.parse(owner.querySelector("script.file").textContent) + "\n";
      save(button.dataset.file, text, "text/plain");
    });
  }

  // Lines are read off with the pointer, a finger or the arrow keys.
  const tip = document.getElementById("tip");
  const short = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value));
  const hide = () => {
    tip.hidden = true;
    for (const line of document.querySelectorAll("line.cross")) line.remove();
  };
  const show = (svg, place) => {
    const { headings, rows } = numbers(svg.closest("figure"));
    const { left, right, top, bottom } = svg.dataset;
    const xs = rows.map((row) => row[0]);
    const low = Math.min(...xs), high = Math.max(...xs);
    const share = high === low ? 0.5 : (rows[place][0] - low) / (high - low);
    const x = Number(left) + share * (right - left);
    hide();
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [key, value] of Object.entries({ x1: x, x2: x, y1: top, y2: bottom, class: "cross" })) line.setAttribute(key, value);
    svg.append(line);
    tip.replaceChildren(...rows[place].flatMap((value, number) => {
      if (value === null) return [];
      const row = document.createElement("div"), amount = document.createElement("b");
      amount.textContent = short(value);
      row.append(`${headings[number]} `, amount);
      return [row];
    }).slice(0, 14));
    tip.hidden = false;
    const box = svg.getBoundingClientRect();
    const at = box.left + x * box.width / svg.viewBox.baseVal.width;
    const beside = at + 14 + tip.offsetWidth > innerWidth ? at - 14 - tip.offsetWidth : at + 14;
    tip.style.left = `${Math.max(4, beside)}px`;
    tip.style.top = `${Math.max(4, Math.min(box.top + 8, innerHeight - tip.offsetHeight - 4))}px`;
    svg.place = place;
  };
  for (const svg of document.querySelectorAll('svg[data-kind="lines"]')) {
    svg.tabIndex = 0;
    svg.addEventListener("pointermove", (event) => {
      const { rows } = numbers(svg.closest("figure"));
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const xs = rows.map((row) => row[0]);
      const low = Math.min(...xs), high = Math.max(...xs);
      const value = low + (x - svg.dataset.left) / (svg.dataset.right - svg.dataset.left) * (high - low);
      let nearest = 0;
      xs.forEach((each, place) => { if (Math.abs(each - value) < Math.abs(xs[nearest] - value)) nearest = place; });
      show(svg, nearest);
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const last = numbers(svg.closest("figure")).rows.length - 1;
      const place = svg.place ?? 0;
      const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: last, Escape: -1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      if (next === -1 && event.key === "Escape") hide(); else show(svg, Math.max(0, Math.min(last, next)));
    });
  }
})();
