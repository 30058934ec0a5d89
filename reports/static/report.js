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
})();
