"use strict";
(() => {
  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => act(made));
    return made;
  };

  // A link to something inside a closed <details> opens it.
  const open = () => {
    let target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", open);
  open();

  for (const command of document.querySelectorAll(".command")) {
    const text = command.textContent;
    command.append(button("copy", async (made) => {
      try {
        await navigator.clipboard.writeText(text);
        made.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(command.querySelector("code"));
        made.textContent = "selected";
      }
    }));
  }

  for (const section of document.querySelectorAll("section")) {
    const parts = section.querySelectorAll("details");
    if (parts.length < 2) continue;
    section.querySelector("h2").append(button("open all", (made) => {
      const closed = [...parts].some((part) => !part.open);
      for (const part of parts) part.open = closed;
      made.textContent = closed ? "close all" : "open all";
    }));
  }

  // The marks of a chart: the pointer reads out the nearest one, the arrow keys walk them.
  for (const chart of document.querySelectorAll(".chart")) {
    const plot = chart.querySelector(".plot");
    const readout = chart.querySelector(".readout");
    const place = (mark) => { const box = mark.getBBox(); return box.x + box.width / 2; };
    let marks = null;
    let at = -1;
    const all = () => marks ??= [...plot.querySelectorAll(".mark")].sort((a, b) => place(a) - place(b));
    const show = (next) => {
      all()[at]?.classList.remove("here");
      at = next;
      all()[at].classList.add("here");
      readout.textContent = all()[at].querySelector("title").textContent;
    };
    plot.addEventListener("pointerover", (event) => {
      const found = all().indexOf(event.target.closest(".mark"));
      if (found >= 0) show(found);
    });
    plot.addEventListener("keydown", (event) => {
      const last = all().length - 1;
      const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
      if (next === undefined || last < 0) return;
      event.preventDefault();
      show(Math.min(last, Math.max(0, next)));
      all()[at].scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }

  // Zoom: the plot grows inside its scrolling frame; + and - and 0 do the same from the keyboard.
  for (const plot of document.querySelectorAll("figure .plot")) {
    const [width, height] = ["width", "height"].map((name) => Number(plot.getAttribute(name)));
    let factor = 1;
    const zoom = (next) => {
      const frame = plot.parentElement;
      const middle = (frame.scrollLeft + frame.clientWidth / 2) / factor;
      factor = Math.min(8, Math.max(0.5, next));
      plot.setAttribute("width", width * factor);
      plot.setAttribute("height", height * factor);
      frame.scrollLeft = middle * factor - frame.clientWidth / 2;
    };
    const keys = { "+": () => zoom(factor * 1.5), "-": () => zoom(factor / 1.5), "0": () => zoom(1) };
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    const bar = document.createElement("span");
    bar.className = "zoom";
    for (const [text, words] of [["+", "Zoom in"], ["-", "Zoom out"], ["0", "As drawn"]]) {
      const made = button(text, keys[text]);
      made.setAttribute("aria-label", words);
      bar.append(made);
    }
    plot.closest("figure").querySelector("figcaption").append(bar);
  }

  const arrows = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  const within = (value, count) => Math.min(count - 1, Math.max(0, value));
  const span = (place, count, length) => {
    const first = Math.floor(place * length / count);
    const last = Math.floor((place + 1) * length / count) - 1;
    return last > first ? `${first} to ${last}` : `${first}`;
  };

  // A heat map: the pointer and the arrow keys read out the error of a cell.
  for (const map of document.querySelectorAll(".cells")) {
    const { values, rows, rowCount, columns, columnCount } = map.dataset;
    const grid = JSON.parse(values);
    const cursor = map.querySelector(".cursor");
    const readout = map.closest("figure").querySelector(".readout");
    let at = null;
    const show = (y, x) => {
      at = [within(y, grid.length), within(x, grid[0].length)];
      cursor.setAttribute("y", at[0]);
      cursor.setAttribute("x", at[1]);
      const down = rows ? `${rows} ${span(at[0], grid.length, rowCount)}, ` : "";
      readout.textContent = `${down}${columns} ${span(at[1], grid[0].length, columnCount)}: largest error ${grid[at[0]][at[1]]}`;
    };
    map.addEventListener("pointermove", (event) => {
      const box = map.getBoundingClientRect();
      show(Math.floor((event.clientY - box.top) / box.height * grid.length), Math.floor((event.clientX - box.left) / box.width * grid[0].length));
    });
    map.addEventListener("keydown", (event) => {
      const step = arrows[event.key];
      if (!step) return;
      event.preventDefault();
      show(...(at ? [at[0] + step[0], at[1] + step[1]] : [0, 0]));
    });
  }

  // A canvas being un-masked: the same for its cells; the other side's cell is marked with it.
  for (const section of document.querySelectorAll("section")) {
    const sides = [...section.querySelectorAll(".steps")];
    const cells = (side) => [...side.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("td")]);
    let at = null;
    const show = (y, x) => {
      const first = cells(sides[0]);
      at = [within(y, first.length), within(x, first[0].length)];
      for (const side of sides) {
        side.querySelector(".here")?.classList.remove("here");
        const cell = cells(side)[at[0]]?.[at[1]];
        if (!cell) continue;
        cell.classList.add("here");
        side.querySelector(".readout").textContent = cell.title;
      }
    };
    for (const side of sides) {
      side.addEventListener("pointerover", (event) => {
        const cell = event.target.closest("td");
        if (cell) show(cell.parentElement.rowIndex, cell.cellIndex - 1);
      });
      side.querySelector(".scroll").addEventListener("keydown", (event) => {
        const step = arrows[event.key];
        if (!step) return;
        event.preventDefault();
        show(...(at ? [at[0] + step[0], at[1] + step[1]] : [0, 0]));
        side.querySelector(".here")?.scrollIntoView({ block: "nearest", inline: "nearest" });
      });
    }
  }
})();
