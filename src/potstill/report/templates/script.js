"use strict";
document.documentElement.classList.add("js");

// A read-out under each chart: the values of the points nearest to the pointer.
for (const chart of document.querySelectorAll("svg.chart[data-chart]")) {
  const { x, x_percent, percent, series } = JSON.parse(chart.dataset.chart);
  const cursor = chart.querySelector(".cursor");
  const output = chart.parentElement.querySelector("output");
  const idle = output.textContent;
  const share = (value) => (100 * value).toFixed(1) + "\u00a0%";
  const show = (value) => (percent ? share(value) : Number(value.toPrecision(3)).toString());
  const nearest = (one, at) => one.px.reduce((best, px, i) => (Math.abs(px - at) < Math.abs(one.px[best] - at) ? i : best), 0);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const first = nearest(series[0], at);
    cursor.setAttribute("x1", series[0].px[first]);
    cursor.setAttribute("x2", series[0].px[first]);
    const values = series.map((one) => one.name + "\u00a0" + show(one.y[nearest(one, at)]));
    const place = series[0].x[first];
    output.textContent = x + "\u00a0" + (x_percent ? share(place) : Math.round(place)) + ": " + values.join(" · ");
  });
  chart.addEventListener("pointerleave", () => {
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
    output.textContent = idle;
  });
}

// Show only the disagreements of one kind.
for (const group of document.querySelectorAll("[data-filter]")) {
  const rows = document.querySelectorAll("#" + group.dataset.filter + " tbody tr");
  group.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    for (const other of group.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    for (const row of rows) row.hidden = button.value !== "all" && row.dataset.right !== button.value;
  });
}

// Print what is folded away, too, and fold it again afterwards.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const part of opened) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of opened) part.open = false;
});
