// What is asked of the server. Errors are thrown with the server's own words.
import { byId } from "./parts.js";

const KEY = "chainrule-key";
let asking = null; // the question for the key, while it is open

function headers(body) {
  const key = sessionStorage.getItem(KEY);
  return { ...(body ? { "Content-Type": "application/json" } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

// Asks for a key; true if one was given.
function askForKey(wasWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key"), input = byId("key-value");
    let isGiven = false;
    const send = () => {
      isGiven = input.value.trim() !== "";
      if (isGiven) sessionStorage.setItem(KEY, input.value.trim());
      byId("key-wrong").textContent = isGiven ? "" : "Type the key first.";
      input.value = "";
      if (isGiven) dialog.close();
    };
    byId("key-wrong").textContent = wasWrong ? "The server did not accept that key." : "";
    byId("key-send").onclick = send;
    input.onkeydown = (event) => { if (event.key === "Enter") send(); };
    dialog.onclose = () => { asking = null; resolve(isGiven); };
    dialog.showModal();
    input.focus();
  });
  return asking;
}

async function ask(path, options) {
  for (;;) {
    const sent = sessionStorage.getItem(KEY);
    let response;
    try {
      response = await fetch(path, { ...options, headers: headers(options.body) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not answer. Is it still running?");
    }
    if (response.ok) return response;
    if (response.status === 401) {
      // another request may have been given the key while this one was under way
      if (sessionStorage.getItem(KEY) !== sent || (await askForKey(sent !== null))) continue;
      throw new Error("This server needs a key. Reload the page to be asked for it again.");
    }
    let message = `The server answered with status ${response.status}.`;
    try { message = (await response.json()).error.message; } catch { /* no JSON: the status has to do */ }
    throw new Error(message);
  }
}

export async function get(path) {
  return (await ask(path, {})).json();
}

export async function post(path, body, signal) {
  return (await ask(path, { method: "POST", body: JSON.stringify(body), signal })).json();
}

// Server-sent events: `onChunk` is called with each; the promise is kept when the stream has ended.
export async function stream(path, body, onChunk, signal) {
  const response = await ask(path, { method: "POST", body: JSON.stringify({ ...body, stream: true }), signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (!data || data === "[DONE]") continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      onChunk(chunk);
    }
  }
}

let models = null;

// The models that are served: {id, kind, verb, purpose, parameters, context, vocab_size}.
export async function load() {
  models ??= (await get("/v1/models")).data;
  return models;
}

export async function modelsFor(verb) {
  return (await load()).filter((model) => verb === null || model.verb === verb);
}
