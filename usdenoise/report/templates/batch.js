"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const body = document.querySelector("#scans tbody");
  const rows = [...body.rows];
  const heads = [...document.querySelectorAll("#scans th[data-column]")];
  const words = find("words"), status = find("status"), order = find("order"), down = find("down");
  const text = new Set(["1", "2"]);
  order.add(new Option("Failed first", ""));
  for (const head of heads) {
    order.add(new Option(head.textContent.trim(), head.dataset.column));
  }
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const value = (row, column) => row.cells[Number(column) + 1].dataset.value;

  function compare(column, sign) {
    return (one, other) => {
      if (column === "") return sign * (one.dataset.place - other.dataset.place);
      const a = value(one, column), b = value(other, column);
      // Unknown values come last in either order.
      if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
      const difference = text.has(column) ? a.localeCompare(b) : Number(a) - Number(b);
      return sign * difference || one.dataset.place - other.dataset.place;
    };
  }

  function show() {
    const wanted = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const right = status.value === "" ||
        (status.value === "look" ? row.dataset.look === "yes" : "=" + row.dataset.status === status.value);
      row.hidden = !(right && wanted.every((word) => texts.get(row).includes(word)));
      count += row.hidden ? 0 : 1;
    }
    rows.sort(compare(order.value, down.checked ? -1 : 1));
    // Rows in the right order need no new layout.
    if (rows.some((row, place) => body.rows[place] !== row)) body.append(...rows);
    for (const head of heads) {
      if (head.dataset.column === order.value) {
        head.setAttribute("aria-sort", down.checked ? "descending" : "ascending");
      } else {
        head.removeAttribute("aria-sort");
      }
    }
    find("shown").textContent = `${count} of ${rows.length} shown`;
    const state = new URLSearchParams({
      words: words.value, status: status.value, order: order.value, down: down.checked ? "1" : "",
    });
    history.replaceState(null, "", "#" + state);
  }

  // The state is in the address, so that it is the same after the page reloads.
  const state = new URLSearchParams(location.hash.slice(1));
  words.value = state.get("words") || "";
  status.value = state.get("status") || "";
  order.value = state.get("order") || "";
  if (status.selectedIndex < 0) status.value = "";
  if (order.selectedIndex < 0) order.value = "";
  down.checked = Boolean(state.get("down"));
  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      down.checked = order.value === head.dataset.column && !down.checked;
      order.value = head.dataset.column;
      show();
    });
  }
  find("controls").addEventListener("submit", (event) => event.preventDefault());
  for (const control of [words, status, order, down]) control.addEventListener("input", show);
  show();
})();
