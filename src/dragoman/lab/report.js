"use strict";
(() => {
  const page = document.documentElement;
  const find = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];

  /* ---- language ---- */

  if (navigator.language.startsWith("zh")) page.lang = "zh-Hans";
  find("header button").addEventListener("click", () => {
    page.lang = page.lang === "en" ? "zh-Hans" : "en";
  });

  /* ---- one experiment at a time; without this script all stand below each other ---- */

  const sections = all("main > section");
  const links = all("nav a");
  const wide = matchMedia("(min-width: 62rem)");
  const menu = find("nav details");

  function turn() {
    const name = decodeURIComponent(location.hash.slice(1));
    const shown = sections.find((section) => section.id === name) ?? sections[0];
    for (const section of sections) section.hidden = section !== shown;
    for (const link of links) {
      if (link.hash === `#${shown.id}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    menu.open = wide.matches;
    scrollTo(0, 0);
  }

  addEventListener("hashchange", turn);
  wide.addEventListener("change", () => { menu.open = wide.matches; });
  turn();

  /* ---- what a mark says, at once instead of as a tooltip ---- */

  const said = find("#said");
  for (const title of all("svg title")) {
    title.parentElement.dataset.says = title.textContent;
    title.remove();
  }

  addEventListener("pointerover", ({ target, clientX, clientY }) => {
    const says = target.dataset?.says;
    said.hidden = says === undefined;
    if (said.hidden) return;
    const series = target.closest("[data-series]");
    const legend = series && target.closest("figure").querySelectorAll(".legend li")[series.dataset.series];
    said.textContent = legend ? `${legend.innerText.trim()} · ${says}` : says;
    const right = Math.min(clientX + 12, page.clientWidth - said.offsetWidth - 4);
    said.style.left = `${Math.max(4, right)}px`;
    said.style.top = `${clientY > 60 ? clientY - said.offsetHeight - 12 : clientY + 16}px`;
  });
})();
