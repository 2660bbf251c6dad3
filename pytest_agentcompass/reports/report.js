"use strict";
(() => {
  const table = document.querySelector("#attempts table");
  const form = document.getElementById("controls");
  const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
  if (!rows.length) return;
  const CHUNK = 100; // rows that are laid out together, when they come into view
  const COLUMNS = { request: 0, mode: 4, category: 8 };
  const TITLES = { request: "request", mode: "failure mode", category: "category" };
  const NUMBERS = new Set([2, 5, 6, 7]);
  const state = { q: "", outcome: new Set(), request: "", mode: "", category: "", sort: -1, down: false };
  const order = new Map(rows.map((row, place) => [row, place]));
  const words = new Map();
  const cellText = (row, place) => row.cells[place].textContent;
  const valueOf = (row, name) => cellText(row, COLUMNS[name]) || "-"; // a choice, also of what has none
  const wordsOf = (row) => {
    if (!words.has(row)) words.set(row, row.textContent.toLowerCase());
    return words.get(row);
  };
  const make = (tag, props) => Object.assign(document.createElement(tag), props);

  // -- what is shown -------------------------------------------------------------------------

  function matches(row, terms) {
    if (state.outcome.size && !state.outcome.has(row.className)) return false;
    for (const name in COLUMNS) if (state[name] && valueOf(row, name) !== state[name]) return false;
    return terms.every((term) => wordsOf(row).includes(term));
  }

  function sorted(found) {
    if (state.sort < 0) return found;
    const place = state.sort;
    const numeric = NUMBERS.has(place);
    const key = (row) => {
      const value = cellText(row, place);
      return numeric ? parseFloat(value.replace(/[$,]/g, "")) : value.toLowerCase();
    };
    const sign = state.down ? -1 : 1;
    const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
    const empty = (value) => value === "" || Number.isNaN(value);
    return found
      .map((row) => [key(row), row])
      .sort(([a, one], [b, two]) => empty(a) - empty(b) || compare(a, b) || order.get(one) - order.get(two))
      .map(([, row]) => row);
  }

  function render() {
    const terms = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const found = sorted(rows.filter((row) => matches(row, terms)));
    for (const body of [...table.tBodies]) body.remove();
    for (let start = 0; start < found.length; start += CHUNK) {
      const body = document.createElement("tbody");
      body.append(...found.slice(start, start + CHUNK));
      table.append(body);
    }
    const count = (number) => number.toLocaleString("en");
    form.querySelector("output").value =
      found.length === rows.length ? "" : `${count(found.length)} of ${count(rows.length)} shown`;
    reflect();
  }

  function reflect() {
    form.elements.q.value = state.q;
    for (const button of form.querySelectorAll("#outcomes button"))
      button.setAttribute("aria-pressed", String(state.outcome.has(button.value)));
    for (const name in COLUMNS) if (form.elements[name]) form.elements[name].value = state[name];
    [...table.tHead.rows[0].cells].forEach((cell, place) => {
      if (place === state.sort) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  // -- the address keeps it, so that a view can be shared -------------------------------------

  function write() {
    const params = new URLSearchParams();
    for (const name of ["q", ...Object.keys(COLUMNS)]) if (state[name]) params.set(name, state[name]);
    if (state.outcome.size) params.set("outcome", [...state.outcome].join(","));
    if (state.sort >= 0) params.set("sort", (state.down ? "-" : "") + state.sort);
    render();
    try {
      history.replaceState(null, "", `#${params}`);
    } catch {
      // a sandboxed frame has no address of its own
    }
  }

  function read() {
    const params = new URLSearchParams(location.hash.slice(1));
    for (const name of ["q", ...Object.keys(COLUMNS)]) state[name] = params.get(name) || "";
    state.outcome = new Set((params.get("outcome") || "").split(",").filter(Boolean));
    const sort = params.get("sort") || "";
    state.down = sort.startsWith("-");
    state.sort = /^-?\d$/.test(sort) ? Math.abs(Number(sort)) : -1;
    return location.hash.length > 1;
  }

  // -- controls -------------------------------------------------------------------------------

  function addOutcomes() {
    const counts = new Map();
    for (const row of rows) counts.set(row.className, (counts.get(row.className) || 0) + 1);
    for (const name of ["failed", "error", "missing", "skipped", "passed"]) {
      if (!counts.has(name)) continue;
      const button = make("button", { type: "button", value: name, className: `chip ${name}` });
      button.textContent = `${name} ${counts.get(name).toLocaleString("en")}`;
      button.addEventListener("click", () => {
        if (!state.outcome.delete(name)) state.outcome.add(name);
        write();
      });
      document.getElementById("outcomes").append(button);
    }
  }

  function addChoice(name) {
    const values = [...new Set(rows.map((row) => valueOf(row, name)))].sort();
    if (values.length < 2 || values.length > 500) return;
    const select = make("select", { name });
    select.setAttribute("aria-label", `Filter by ${TITLES[name]}`);
    select.append(new Option(`any ${TITLES[name]}`, ""), ...values.map((value) => new Option(value === "-" ? "none" : value, value)));
    select.addEventListener("change", () => {
      state[name] = select.value;
      write();
    });
    document.getElementById("choices").append(select);
  }

  function addSorting() {
    [...table.tHead.rows[0].cells].forEach((cell, place) => {
      const button = make("button", { type: "button", textContent: cell.textContent });
      cell.replaceChildren(button);
      button.addEventListener("click", () => {
        const first = NUMBERS.has(place) && place !== 2; // large numbers first
        if (state.sort !== place) Object.assign(state, { sort: place, down: first });
        else if (state.down === first) state.down = !first;
        else Object.assign(state, { sort: -1, down: false });
        write();
      });
    });
  }

  function addShortcuts() {
    for (const place of document.querySelectorAll("[data-outcome]")) {
      const button = make("button", { type: "button", className: "show", title: "show these attempts" });
      button.append(...place.childNodes);
      place.append(button);
      button.addEventListener("click", () => {
        const { outcome, request = "", mode = "" } = place.dataset;
        Object.assign(state, { q: "", category: "", request: form.elements.request ? request : "", mode });
        state.outcome = new Set([outcome]);
        write();
        document.getElementById("attempts").scrollIntoView();
      });
    }
  }

  function addForm() {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.elements.q.addEventListener("input", () => {
      state.q = form.elements.q.value;
      write();
    });
    form.addEventListener("reset", (event) => {
      event.preventDefault();
      Object.assign(state, { q: "", outcome: new Set(), request: "", mode: "", category: "", sort: -1, down: false });
      write();
    });
    const unfold = document.getElementById("unfold");
    unfold.addEventListener("click", () => {
      const open = unfold.textContent === "Unfold";
      for (const item of table.querySelectorAll("tbody details")) item.open = open;
      unfold.textContent = open ? "Fold" : "Unfold";
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
      event.preventDefault();
      form.elements.q.focus();
    });
    form.hidden = false;
  }

  addOutcomes();
  Object.keys(COLUMNS).forEach(addChoice);
  addSorting();
  addShortcuts();
  addForm();
  window.addEventListener("hashchange", () => {
    read();
    render();
  });
  if (read()) render();
})();
