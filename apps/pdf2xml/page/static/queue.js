// SPDX-License-Identifier: Apache-2.0
// The page works without this script. With it files are dropped, several go at once, and rows change by themselves.
"use strict";

const form = document.getElementById("upload");
const input = document.getElementById("file");
const notes = document.getElementById("notes");
const queue = document.getElementById("queue");
const limits = document.body.dataset;

function note(text, isBad) {
  const item = document.createElement("li");
  item.textContent = text;
  item.classList.toggle("is-bad", isBad);
  notes.append(item);
  if (!isBad) setTimeout(() => item.remove(), 4000);
  return item;
}

async function lineOf(answer) {
  try {
    return (await answer.json()).title;
  } catch {
    return "Something went wrong. We have logged it.";
  }
}

async function send(url, body, subject) {
  try {
    const answer = await fetch(url, { method: "POST", body, headers: { Accept: "application/json" } });
    if (!answer.ok) note(`${subject}: ${await lineOf(answer)}`, true);
  } catch {
    note(`${subject}: The connection was lost. Please try again.`, true);
  }
}

async function upload(file) {
  if (file.size > Number(limits.maxBytes)) {
    note(`${file.name}: ${limits.tooLarge}`, true);
    return;
  }
  const going = note(`Uploading ${file.name} …`, false);
  const body = new FormData();
  // The fields come first, so that the server knows them when the file arrives.
  body.append("mapping", document.getElementById("mapping").value);
  body.append("file", file, file.name);
  await send("/api/upload", body, file.name);
  going.remove();
}

async function uploadAll(files) {
  notes.replaceChildren();
  const waiting = [...files];
  const lane = async () => {
    while (waiting.length) await upload(waiting.shift());
  };
  await Promise.all([lane(), lane(), lane()]);
}

input.multiple = true;
form.querySelector(".hint").hidden = false;
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  await uploadAll(input.files);
  form.reset();
});
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    form.classList.add("is-over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) form.classList.remove("is-over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  form.classList.remove("is-over");
  if (event.dataTransfer.files.length) uploadAll(event.dataTransfer.files);
});
queue.addEventListener("submit", (event) => {
  event.preventDefault();
  const name = event.target.closest(".job").querySelector(".name").textContent;
  send(event.target.action, null, name);
});

function show(change) {
  document.getElementById("paused").hidden = !change.is_paused;
  for (const row of change.rows) {
    const made = document.createElement("template");
    made.innerHTML = row.html.trim();
    const fresh = made.content.firstElementChild;
    const old = document.getElementById(`job-${row.id}`);
    if (!old) {
      queue.prepend(fresh);
    } else {
      // Whoever is on a link of the row with the keyboard stays in the row.
      const hadFocus = old.contains(document.activeElement);
      old.replaceWith(fresh);
      if (hadFocus) (fresh.querySelector("a, button") || input).focus();
    }
  }
  document.getElementById("empty").hidden = queue.childElementCount > 0;
}

if ("live" in queue.dataset) {
  const events = new EventSource("/events");
  events.addEventListener("queue", (event) => show(JSON.parse(event.data)));
}
