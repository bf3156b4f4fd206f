"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const UNIT = data.rounded_to;
  const FAINTEST_LINE = 0.02;

  const WORDS = {
    en: {
      title: "What a translation looks at", point: "Point at a cell or a token to read its weight here.",
      text: "text", translation: "translation", without: "without", before: "the whole model says",
      log_probability: "log-probability",
      kind: "attention", layer: "layer", head: "head", mean: "mean", heads: "heads",
      encoder: "encoder", decoder: "decoder", cross: "cross",
      encoderMeaning: "Encoder self-attention: each source token (row) takes from all source tokens (columns).",
      decoderMeaning: "Decoder self-attention: each token that the decoder has read (row) takes from itself and those before it (columns). The first is the start token.",
      crossMeaning: "Cross-attention: as each target token (row) is chosen, the decoder takes from the source tokens (columns).",
      glance: "All layers and heads", glanceHelp: "One picture each, a layer a row, on one scale. Press one to see it below.",
      map: "Heat map", mapHelp: "Point at a cell, or focus the map and use the arrow keys. ␣ marks a blank.",
      weight: "attention weight",
      lines: "Head view", linesHelp: `Lines from each query (left) to what it takes from (right), the darker the more; weights below ${FAINTEST_LINE} are left out. Point at a token, or focus it with Tab, to see it alone.`,
      query: "query", key: "key",
      comparison: "Is attention an explanation?",
      comparisonHelp: "Not by itself. Beside the cross-attention of the last layer (mean over its heads) stand two measures of what each source token did for the log-probability of each target token: gradient × input, to first order, and leave-one-out, how much it falls when the token is taken out of the source. The second colour is for what lowers it; each map has its own scale, its largest magnitude at full strength.",
      correlationHelp: "Spearman's rank correlation over the source tokens, of magnitudes; mean over the target tokens. 1: the same order; 0: nothing in common.",
      attention: "attention", gradient_x_input: "gradient × input", leave_one_out: "leave-one-out",
      undefined: "undefined", pair: "pair", correlation: "rank correlation",
      rounding: `Weights and effects are rounded to ${UNIT}; log-probabilities are natural logarithms, effects are in nats. Drawn from the running model; this page needs no network.`,
    },
    zh: {
      title: "译文在看什么", point: "指向一格或一个词元，这里显示它的权重。",
      text: "原文", translation: "译文", without: "去掉的部分", before: "完整模型的译文",
      log_probability: "对数概率",
      kind: "注意力", layer: "层", head: "头", mean: "平均", heads: "头",
      encoder: "编码器", decoder: "解码器", cross: "交叉",
      encoderMeaning: "编码器自注意力：每个源词元（行）从所有源词元（列）取信息。",
      decoderMeaning: "解码器自注意力：解码器读到的每个词元（行）从它自己和它之前的词元（列）取信息。第一个是起始符。",
      crossMeaning: "交叉注意力：选出每个目标词元（行）时，解码器从源词元（列）取信息。",
      glance: "所有层和头", glanceHelp: "每个头一幅小图，每层一行，同一尺度。点按一幅，即可在下面细看。",
      map: "热力图", mapHelp: "指向一格，或让热力图获得焦点后用方向键移动。␣ 表示空格。",
      weight: "注意力权重",
      lines: "连线图", linesHelp: `从每个查询（左）连到它取信息的地方（右），颜色越深权重越大；小于 ${FAINTEST_LINE} 的权重不画。指向一个词元，或用 Tab 键选中它，可单独查看。`,
      query: "查询", key: "键",
      comparison: "注意力是解释吗？",
      comparisonHelp: "仅凭注意力还不是。最后一层交叉注意力（各头平均）的旁边，是每个源词元对每个目标词元对数概率的作用的两种度量：梯度 × 输入（一阶近似），以及逐一剔除（把该源词元从原文中拿掉后，对数概率下降多少）。另一种颜色表示使其降低；每幅图各有尺度，绝对值最大者颜色最深。",
      correlationHelp: "对各源词元的大小（绝对值）计算 Spearman 秩相关，再对目标词元取平均。1 表示次序相同，0 表示毫无关系。",
      attention: "注意力", gradient_x_input: "梯度 × 输入", leave_one_out: "逐一剔除",
      undefined: "无定义", pair: "对比", correlation: "秩相关",
      rounding: `权重和作用四舍五入到 ${UNIT}；对数概率为自然对数，作用以奈特（nat）计。图由运行中的模型画出，本页不需要网络。`,
    },
  };

  const kinds = Object.keys(data.kinds);
  const state = {
    language: navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en",
    kind: kinds.at(-1), layer: 0, head: 0,
  };
  state.layer = data.kinds[state.kind].weights.length - 1;

  const byId = (id) => document.getElementById(id);
  const say = (key) => WORDS[state.language][key];

  function make(parent, tag, attributes = {}, text = "") {
    const svg = ["svg", "line", "text"].includes(tag);
    const element = svg
      ? document.createElementNS("http://www.w3.org/2000/svg", tag)
      : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== "") element.textContent = text;
    parent.append(element);
    return element;
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

  /* ---- numbers ---- */

  const headsOf = (kind, layer) => data.kinds[kind].weights[layer];

  /** Returns the rows of a head; of all heads' mean where head is -1. */
  function matrix(kind, layer, head) {
    const heads = headsOf(kind, layer);
    const whole = head < 0
      ? heads[0].map((row, i) => row.map((_, j) => heads.reduce((sum, each) => sum + each[i][j], 0) / heads.length))
      : heads[head];
    return whole.map((row) => row.map((value) => value * UNIT));
  }

  const largest = (rows) => rows.reduce((most, row) => row.reduce((a, b) => Math.max(a, Math.abs(b)), most), UNIT);

  const decimals = Math.round(-Math.log10(UNIT));
  const digits = (value) => value.toFixed(decimals);

  /* ---- heat maps ---- */

  /** Paints values, (rows x columns), with 0 as paper and +-most at full strength. */
  function paint(canvas, rows, cell, most, at = null) {
    const scale = window.devicePixelRatio || 1;
    const pixels = Math.max(1, Math.round(cell * scale));
    canvas.width = rows[0].length * pixels;
    canvas.height = rows.length * pixels;
    const context = canvas.getContext("2d");
    const [positive, negative] = [colour("--weight"), colour("--against")];
    rows.forEach((row, i) => row.forEach((value, j) => {
      context.fillStyle = `rgba(${value < 0 ? negative : positive}, ${Math.min(1, Math.abs(value) / most)})`;
      context.fillRect(j * pixels, i * pixels, pixels, pixels);
    }));
    if (at) {
      context.strokeStyle = colour("--mark");
      context.lineWidth = 2 * scale;
      context.strokeRect(at[1] * pixels + scale, at[0] * pixels + scale, pixels - 2 * scale, pixels - 2 * scale);
    }
  }

  /** Draws a map with labels that stay in sight; it answers to pointer and arrow keys. */
  function drawMap(parent, rows, names, most, label, tell) {
    const cell = parseFloat(colour("--cell"));
    parent.replaceChildren();
    make(parent, "div", { class: "corner" }, `${names.rowTitle} ↓ ${names.columnTitle} →`);
    const columns = make(parent, "div", { class: "columns", "aria-hidden": "true" });
    const sides = make(parent, "div", { class: "rows", "aria-hidden": "true" });
    names.columns.forEach((name) => make(columns, "span", { title: name }, name));
    names.rows.forEach((name) => make(sides, "span", { title: name }, name));
    const canvas = make(parent, "canvas", { tabindex: "0", role: "img", "aria-label": label });
    canvas.style.width = `${rows[0].length * cell}px`;
    canvas.style.height = `${rows.length * cell}px`;
    let at = null;

    const show = (cellAt) => {
      if (String(at) === String(cellAt)) return;
      if (at) [sides.children[at[0]], columns.children[at[1]]].forEach((each) => each.classList.remove("at"));
      at = cellAt;
      paint(canvas, rows, cell, most, at);
      if (!at) return;
      [sides.children[at[0]], columns.children[at[1]]].forEach((each) => each.classList.add("at"));
      tell(`${names.rows[at[0]]} → ${names.columns[at[1]]}`, rows[at[0]][at[1]]);
    };
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      show([
        within(Math.floor((event.clientY - box.top) / cell), rows.length),
        within(Math.floor((event.clientX - box.left) / cell), rows[0].length),
      ]);
    });
    canvas.addEventListener("focus", () => show(at ?? [0, 0]));
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [row, column] = at ?? [0, 0];
      const next = [within(row + step[0], rows.length), within(column + step[1], rows[0].length)];
      show(next);
      const view = parent.parentElement;
      const [left, top] = [next[1] * cell, next[0] * cell];
      const [wide, high] = [view.clientWidth - sides.offsetWidth, view.clientHeight - columns.offsetHeight];
      if (left < view.scrollLeft) view.scrollLeft = left;
      if (left + cell > view.scrollLeft + wide) view.scrollLeft = left + cell - wide;
      if (top < view.scrollTop) view.scrollTop = top;
      if (top + cell > view.scrollTop + high) view.scrollTop = top + cell - high;
    });
    paint(canvas, rows, cell, most);
  }

  /* ---- the parts of the page ---- */

  function drawWords() {
    document.documentElement.lang = state.language === "zh" ? "zh-CN" : "en";
    document.title = say("title");
    for (const each of document.querySelectorAll("[data-say]")) each.textContent = say(each.dataset.say);
    for (const each of document.querySelectorAll("[data-language]")) {
      each.setAttribute("aria-pressed", String(each.dataset.language === state.language));
    }
    const list = byId("sentences");
    list.replaceChildren();
    const rows = { text: data.text, translation: data.translation, log_probability: data.log_probability.toFixed(3) };
    if (data.without.length) {
      rows.without = data.without.join(", ");
      rows.before = `${data.before.translation} (${say("log_probability")} ${data.before.log_probability.toFixed(3)})`;
    }
    for (const [key, value] of Object.entries(rows)) {
      make(list, "dt", {}, say(key));
      make(list, "dd", {}, value);
    }
  }

  function drawChoice() {
    const buttons = byId("kinds");
    buttons.querySelectorAll("button").forEach((each) => each.remove());
    for (const kind of kinds) {
      const pressed = String(kind === state.kind);
      const button = make(buttons, "button", { type: "button", "data-kind": kind, "aria-pressed": pressed }, say(kind));
      button.addEventListener("click", () => {
        const layers = data.kinds[kind].weights.length;
        choose({ kind, layer: Math.min(state.layer, layers - 1) });
        buttons.querySelector(`[data-kind=${kind}]`).focus();
      });
    }
    const [layers, heads] = [data.kinds[state.kind].weights, headsOf(state.kind, state.layer)];
    fill(byId("layer"), layers.map((_, n) => [n, String(n)]), state.layer);
    fill(byId("head"), [...heads.map((_, n) => [n, String(n)]), [-1, say("mean")]], state.head);
    byId("meaning").textContent = say(`${state.kind}Meaning`);
  }

  function fill(select, options, chosen) {
    select.replaceChildren();
    for (const [value, text] of options) make(select, "option", { value }, text);
    select.value = String(chosen);
  }

  function drawGlance() {
    const layers = data.kinds[state.kind].weights;
    const grid = byId("glance");
    grid.replaceChildren();
    grid.style.gridTemplateColumns = `repeat(${layers[0].length + 1}, max-content)`;
    make(grid, "span", {}, "");
    layers[0].forEach((_, head) => make(grid, "span", {}, `${say("head")} ${head}`));
    const all = layers.map((heads, layer) => heads.map((_, head) => matrix(state.kind, layer, head)));
    const most = Math.max(...all.flat().map(largest));
    layers.forEach((heads, layer) => {
      make(grid, "span", {}, `${say("layer")} ${layer}`);
      heads.forEach((_, head) => {
        const chosen = layer === state.layer && head === state.head;
        const button = make(grid, "button", {
          type: "button", "aria-pressed": String(chosen), "data-place": `${layer}.${head}`,
          "aria-label": `${say("layer")} ${layer}, ${say("head")} ${head}`,
        });
        const rows = all[layer][head];
        paint(make(button, "canvas"), rows, Math.max(1, 88 / Math.max(rows.length, rows[0].length)), most);
        button.addEventListener("click", () => {
          choose({ layer, head });
          grid.querySelector(`[data-place="${layer}.${head}"]`).focus();
        });
      });
    });
  }

  const where = () => {
    const head = state.head < 0 ? `${say("head")} ${say("mean")}` : `${say("head")} ${state.head}`;
    return `${say(state.kind)} · ${say("layer")} ${state.layer} · ${head}`;
  };
  const tellWeight = (pair, value) => { byId("readout").textContent = `${where()} · ${pair}: ${digits(value)}`; };

  function shown() {
    const { rows, columns } = data.kinds[state.kind];
    const names = {
      rows: data.tokens[rows], columns: data.tokens[columns], rowTitle: say("query"), columnTitle: say("key"),
    };
    return [matrix(state.kind, state.layer, state.head), names];
  }

  function drawHead() {
    const [rows, names] = shown();
    byId("most").textContent = digits(largest(rows));
    drawMap(byId("map"), rows, names, largest(rows), where(), tellWeight);
    drawLines();
  }

  function drawLines() {
    const [rows, names] = shown();
    const [step, top, side] = [22, 34, 130];
    const width = Math.max(320, Math.min(560, byId("lines").parentElement.clientWidth - 4));
    const height = top + step * Math.max(names.rows.length, names.columns.length);
    byId("lines").replaceChildren();
    const svg = make(byId("lines"), "svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group" });
    const y = (place) => top + step * place + 4;
    const lines = [];
    const most = largest(rows);
    rows.forEach((row, i) => row.forEach((weight, j) => {
      if (weight < FAINTEST_LINE) return;
      const line = make(svg, "line", {
        x1: side, y1: y(i) - 4, x2: width - side, y2: y(j) - 4, "stroke-opacity": (weight / most).toFixed(3),
      });
      lines.push({ line, i, j });
    }));
    make(svg, "text", { class: "heading", x: side - 8, y: 16, "text-anchor": "end" }, say("query"));
    make(svg, "text", { class: "heading", x: width - side + 8, y: 16 }, say("key"));
    const label = (place, name, isQuery) => {
      const text = make(svg, "text", {
        x: isQuery ? side - 8 : width - side + 8, y: y(place), "text-anchor": isQuery ? "end" : "start",
        tabindex: "0", role: "button",
      }, name.length > 16 ? `${name.slice(0, 15)}…` : name);
      const chosen = (each) => (isQuery ? each.i : each.j) === place;
      const alone = () => {
        text.classList.add("at");
        for (const each of lines) each.line.style.display = chosen(each) ? "" : "none";
        const found = isQuery
          ? rows[place].map((weight, j) => [weight, names.columns[j]])
          : rows.map((row, i) => [row[place], names.rows[i]]);
        const best = found.sort((a, b) => b[0] - a[0]).slice(0, 5).filter(([weight]) => weight >= UNIT);
        const list = best.map(([weight, other]) => `${other} ${digits(weight)}`).join(", ");
        byId("readout").textContent = `${where()} · ${name} ${isQuery ? "→" : "←"} ${list}`;
      };
      const all = () => {
        text.classList.remove("at");
        for (const each of lines) each.line.style.display = "";
      };
      text.addEventListener("pointerenter", alone);
      text.addEventListener("pointerleave", all);
      text.addEventListener("focus", alone);
      text.addEventListener("blur", all);
    };
    names.rows.forEach((name, i) => label(i, name, true));
    names.columns.forEach((name, j) => label(j, name, false));
  }

  function drawComparison() {
    const found = data.comparison;
    byId("comparison").hidden = !found;
    if (!found) return;
    const table = byId("correlations");
    table.replaceChildren();
    const head = make(table, "tr");
    for (const key of ["pair", "correlation"]) make(head, "th", { scope: "col" }, say(key));
    for (const { pair, mean } of found.spearman) {
      const row = make(table, "tr");
      make(row, "td", {}, pair.map(say).join(" – "));
      make(row, "td", {}, mean === null ? say("undefined") : mean.toFixed(3));
    }
    byId("measures").replaceChildren();
    for (const [key, units] of Object.entries(found.measures)) {
      const rows = units.map((row) => row.map((value) => value * UNIT));
      const box = make(byId("measures"), "div");
      make(box, "h3", {}, say(key));
      const map = make(make(box, "div", { class: "scroll" }), "div", { class: "map" });
      const names = {
        rows: data.tokens.target, columns: data.tokens.source, rowTitle: say("query"), columnTitle: say("key"),
      };
      drawMap(map, rows, names, largest(rows), say(key), (pair, value) => {
        byId("readout").textContent = `${say(key)} · ${pair}: ${digits(value)}`;
      });
    }
  }

  function choose(change) {
    Object.assign(state, change);
    byId("readout").textContent = say("point");
    drawChoice();
    drawGlance();
    drawHead();
  }

  function drawAll() {
    drawWords();
    choose({});
    drawComparison();
  }

  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => {
      state.language = button.dataset.language;
      drawAll();
    });
  }
  for (const key of ["layer", "head"]) {
    byId(key).addEventListener("change", (event) => choose({ [key]: Number(event.target.value) }));
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  window.addEventListener("resize", drawLines);
  drawAll();
})();
