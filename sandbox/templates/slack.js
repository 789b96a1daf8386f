"use strict";
// The page polls for changes and sends people's actions. The server renders; nothing here builds HTML from data.
const $ = (selector, root = document) => root.querySelector(selector);
const channel = document.body.dataset.channel;
const viewer = $("#viewer"), banner = $("#banner"), messages = $("#messages"), modal = $("#modal"), ask = $("#confirm");
const BOX = "input[type=text], input[type=date], textarea, select", SEVERAL = ["checkboxes", "multi_static_select"];
let version = "", modalKey = "", busy = false;

const trouble = (text) => { $("span", banner).textContent = text; banner.hidden = !text; };
$("button", banner).addEventListener("click", () => trouble(""));

async function send(path, body) {
  try {
    const reply = await fetch("/_sandbox/" + path, {
      method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({user: viewer.value, ...body}),
    });
    const outcome = await reply.json();
    return reply.ok ? outcome : {ok: false, error: outcome.error, errors: {}};
  } catch { return {ok: false, error: "The sandbox is gone.", errors: {}}; }
}

function keepFocus(change) {
  const id = document.activeElement && document.activeElement.id;
  change();
  const again = id && document.getElementById(id);
  if (again) again.focus({preventScroll: true});
}

function show(update) {
  const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 80;
  keepFocus(() => { messages.innerHTML = update.messages; $("#sidebar").innerHTML = update.sidebar; });
  if (atEnd) messages.scrollTop = messages.scrollHeight;
  if (update.modal_key !== modalKey) showModal(update.modal, update.modal_key);
  version = update.version;
}

function showModal(html, key) {
  const sameView = $("#view") && key.split(":")[0] === $("#view").dataset.view;
  const entered = sameView ? values() : {};
  modalKey = key;
  modal.innerHTML = html;
  const view = $("#view");
  if (!view) return;
  for (const field of view.querySelectorAll("[data-block]")) {
    const box = $(BOX, field), value = entered[field.dataset.block];
    if (box && typeof value === "string" && value) box.value = value;
    else for (const item of field.querySelectorAll("input")) if ([].concat(value || []).includes(item.value)) item.checked = true;
  }
  view.showModal();
}

async function refresh() {
  if (busy) return;
  busy = true;
  try {
    const query = new URLSearchParams({channel, user: viewer.value, since: version});
    const reply = await fetch("/_page/updates?" + query);
    if (reply.status === 200) show(await reply.json());
  } catch { /* the sandbox has stopped or restarts: the next poll shows it */ } finally { busy = false; }
}

function values() {
  const entered = {};
  for (const field of document.querySelectorAll("#view [data-block]")) {
    const picked = [...field.querySelectorAll("input:checked")].map((item) => item.value);
    const kind = field.dataset.kind;
    const box = $(BOX, field);
    entered[field.dataset.block] = SEVERAL.includes(kind) ? picked : kind === "radio_buttons" ? picked[0] || "" : box.value;
  }
  return entered;
}

function confirmed(text) {
  if (!text) return Promise.resolve(true);
  const dialog = JSON.parse(text), yes = $("[value=yes]", ask), no = $("[value=no]", ask);
  $("#confirm-title").textContent = dialog.title;
  $("#confirm-text").innerHTML = dialog.text; // rendered and escaped by the server
  yes.textContent = dialog.yes; yes.className = "btn " + dialog.style; no.textContent = dialog.no;
  return new Promise((resolve) => {
    const done = (answer) => { ask.onclose = null; ask.close(); resolve(answer); };
    yes.onclick = () => done(true); no.onclick = () => done(false); ask.onclose = () => resolve(false);
    ask.showModal();
  });
}

async function act(element, action_id, selected) {
  const inView = element.closest("#view"), message = element.closest("[data-ts]");
  element.setAttribute("aria-busy", "true");
  trouble("");
  const outcome = inView
    ? await send("click_view", {view_id: inView.dataset.view, action_id, selected})
    // Press the element that this screen shows, even if the app has edited the message since, as in Slack.
    : await send("click", {channel, ts: message.dataset.ts, action_id, selected, stale: true});
  element.removeAttribute("aria-busy");
  if (!outcome.ok) (inView ? viewTrouble : trouble)(outcome.error);
  await refresh();
}

function viewTrouble(text) {
  const line = $("#view .trouble");
  if (line) { line.textContent = text; line.hidden = !text; }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-act]");
  if (button && button.getAttribute("aria-busy") !== "true" && await confirmed(button.dataset.confirm)) {
    if (button.dataset.url && /^https?:/.test(button.dataset.url)) window.open(button.dataset.url, "_blank", "noopener");
    await act(button, button.dataset.act, "");
  }
  if (event.target.closest("[data-close]")) await dismiss();
});
document.addEventListener("change", async (event) => {
  const menu = event.target.closest("[data-pick]");
  if (menu && menu.value) await act(menu, menu.dataset.pick, menu.value);
});
document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const view = $("#view"), button = $("[data-submit]", view);
  if (!button || button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  viewTrouble("");
  const outcome = await send("submit_view", {view_id: view.dataset.view, values: values()});
  button.removeAttribute("aria-busy");
  await refresh();
  if (!outcome.ok) viewTrouble(outcome.error);
});
document.addEventListener("cancel", (event) => { if (event.target.id === "view") { event.preventDefault(); dismiss(); } }, true);

async function dismiss() {
  await send("close_view", {view_id: $("#view").dataset.view});
  await refresh();
}

viewer.addEventListener("change", () => {
  const here = new URL(location.href);
  here.searchParams.set("user", viewer.value);
  location.assign(here);
});
if ($("#view")) $("#view").showModal();
messages.scrollTop = messages.scrollHeight;
setInterval(refresh, 500);
refresh();
