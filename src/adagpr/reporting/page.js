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

  // The numbers of a figure become a table when they are first looked at.
  const short = (value) => (value === null ? "" : typeof value === "number" ? String(Number(value.toPrecision(5))) : String(value));
  const row = (kind, values) => {
    const line = document.createElement("tr");
    line.append(...values.map((value) => {
      const cell = document.createElement(kind);
      if (kind === "th") cell.scope = "col";
      cell.textContent = short(value);
      return cell;
    }));
    return line;
  };
  for (const details of document.querySelectorAll("details.data")) {
    details.addEventListener("toggle", () => {
      if (details.querySelector("table")) return;
      const figure = details.closest("figure");
      const { headings, rows } = numbers(figure);
      const scroll = document.createElement("div"), table = document.createElement("table");
      scroll.className = "scroll";
      scroll.tabIndex = 0;
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", `Numbers of ${figure.querySelector("figcaption").textContent.trim()}`);
      table.createTHead().append(row("th", headings));
      table.createTBody().append(...rows.map((values) => row("td", values)));
      scroll.append(table);
      details.append(scroll);
    });
  }

  // Lines are read off with the pointer, a finger or the arrow keys.
  const most = 16;
  const tip = document.getElementById("tip");
  const hide = () => {
    tip.hidden = true;
    for (const line of document.querySelectorAll("line.cross")) line.remove();
  };
  const scale = (svg) => {
    const { rows } = numbers(svg.closest("figure"));
    const xs = rows.map((values) => values[0]);
    return { xs, low: Math.min(...xs), high: Math.max(...xs), left: Number(svg.dataset.left), right: Number(svg.dataset.right) };
  };
  const show = (svg, place) => {
    const { headings, rows } = numbers(svg.closest("figure"));
    const { low, high, left, right } = scale(svg);
    const share = high === low ? 0.5 : (rows[place][0] - low) / (high - low);
    const x = left + share * (right - left);
    hide();
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const ends = { x1: x, x2: x, y1: svg.dataset.top, y2: svg.dataset.bottom, class: "cross" };
    for (const [key, value] of Object.entries(ends)) line.setAttribute(key, value);
    svg.append(line);
    const entries = headings.map((name, number) => [name, rows[place][number]]).filter(([, value]) => value !== null);
    // Of many lines the first and the last ones, which may be a sum of the others.
    const shown = entries.length <= most ? entries : [...entries.slice(0, most - 1), entries.at(-1)];
    tip.replaceChildren(...shown.map(([name, value]) => {
      const item = document.createElement("div"), amount = document.createElement("b");
      amount.textContent = short(value);
      item.append(`${name} `, amount);
      return item;
    }));
    if (shown.length < entries.length) {
      const rest = document.createElement("div");
      rest.textContent = `… ${entries.length - shown.length} more under Numbers`;
      tip.append(rest);
    }
    tip.hidden = false;
    const box = svg.getBoundingClientRect();
    const at = box.left + x * box.width / svg.viewBox.baseVal.width;
    const beside = at + 14 + tip.offsetWidth > innerWidth ? at - 14 - tip.offsetWidth : at + 14;
    tip.style.left = `${Math.max(4, beside)}px`;
    tip.style.top = `${Math.max(4, Math.min(box.top + 8, innerHeight - tip.offsetHeight - 4))}px`;
    svg.place = place;
    svg.setAttribute("aria-valuenow", place);
    svg.setAttribute("aria-valuetext", shown.map(([name, value]) => `${name} ${short(value)}`).join(", "));
  };
  for (const svg of document.querySelectorAll('svg[data-kind="lines"]')) {
    svg.tabIndex = 0;
    svg.setAttribute("role", "slider");
    svg.setAttribute("aria-valuemin", 0);
    svg.setAttribute("aria-valuenow", 0);
    const follow = (event) => {
      const { xs, low, high, left, right } = scale(svg);
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const value = low + (x - left) / (right - left) * (high - low);
      let nearest = 0;
      xs.forEach((each, place) => { if (Math.abs(each - value) < Math.abs(xs[nearest] - value)) nearest = place; });
      show(svg, nearest);
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("focus", () => svg.setAttribute("aria-valuemax", scale(svg).xs.length - 1));
    svg.addEventListener("keydown", (event) => {
      const last = scale(svg).xs.length - 1;
      const place = svg.place ?? -1;
      const next = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: last }[event.key];
      if (event.key === "Escape") hide();
      if (next === undefined) return;
      event.preventDefault();
      show(svg, Math.max(0, Math.min(last, next)));
    });
  }
  addEventListener("scroll", hide, { passive: true });
  addEventListener("beforeprint", () => {
    hide();
    for (const details of document.querySelectorAll("details:not(.data)")) details.open = true;
  });
})();
