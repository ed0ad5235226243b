"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const { figures, steps } = JSON.parse(byId("content").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage", "resetScale2d"]],
  };
  // Where a finger scrolls the page, a plot must not take the movement for a zoom.
  const dragging = matchMedia("(pointer: coarse)").matches ? false : "zoom";

  async function unpack(packed) {
    const letters = atob(packed);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < bytes.length; i += 1) bytes[i] = letters.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  // Put the page's present colours in for the names that figures have instead.
  function painted(value, style) {
    if (typeof value === "string") {
      const name = value.startsWith("var(--") ? value.slice(4, -1) : null;
      return name ? style.getPropertyValue(name).trim() : value;
    }
    if (Array.isArray(value)) return value.map((entry) => painted(entry, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, painted(entry, style)]));
    }
    return value;
  }

  function draw(plot, size = {}) {
    const { data, layout } = painted(figures[plot.dataset.figure], getComputedStyle(document.documentElement));
    Plotly.react(plot, data, { ...layout, dragmode: dragging, autosize: !size.width, ...size }, config);
  }

  // One at a time, so that the page answers in between.
  async function drawAll() {
    for (const plot of plots) {
      draw(plot);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  function show(place) {
    const step = steps[place];
    for (const field of document.querySelectorAll("[data-shows]")) {
      field.textContent = step[field.dataset.shows];
    }
    [...byId("units").rows].forEach((row, i) => {
      const [units, share] = step.units[i];
      row.querySelector("i").style.width = `${100 * share}%`;
      row.lastElementChild.textContent = units;
    });
    byId("keep").setAttribute("aria-valuetext", step.says);
    const dot = figures.tradeoff.data.at(-1);
    dot.x = [step.x];
    dot.y = [step.y];
    const plot = document.querySelector('[data-figure="tradeoff"]');
    if (plot.data) Plotly.restyle(plot, { x: [dot.x], y: [dot.y] }, plot.data.length - 1);
  }

  const folded = [];

  function beforePrint() {
    document.documentElement.classList.add("print");
    folded.push(...document.querySelectorAll("details:not([open])"));
    folded.forEach((part) => (part.open = true));
    for (const plot of plots) draw(plot, { width: plot.clientWidth, height: plot.clientHeight });
  }

  function afterPrint() {
    document.documentElement.classList.remove("print");
    folded.splice(0).forEach((part) => (part.open = false));
    drawAll();
  }

  async function start() {
    if (steps.length) {
      const slider = byId("keep");
      slider.addEventListener("input", () => show(Number(slider.value)));
      show(Number(slider.value));
    }
    for (const select of document.querySelectorAll("select")) {
      const plot = select.closest("section").querySelector(".plot");
      select.addEventListener("change", () => {
        plot.dataset.figure = select.value;
        if (plot.data) draw(plot);
      });
    }
    const program = document.createElement("script");
    try {
      program.textContent = await unpack(byId("plotly").textContent);
    } catch (error) {
      byId("warning").textContent = `The plots need a newer browser than this one (${error.message}).`;
      byId("warning").hidden = false;
      return;
    }
    document.head.append(program);
    await drawAll();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
    addEventListener("beforeprint", beforePrint);
    addEventListener("afterprint", afterPrint);
    document.documentElement.dataset.drawn = "yes";
  }

  start();
})();
