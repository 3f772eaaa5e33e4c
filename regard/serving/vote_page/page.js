// The page for voters: it shows the choices of the open question and sends one of them.
const choices = document.getElementById("choices");
const message = document.getElementById("message");
const POLL_MILLISECONDS = 2000;
let shown = "";

async function ask(path, body) {
  const options = body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function draw(state) {
  const key = JSON.stringify(state);
  if (key === shown) return;
  shown = key;
  choices.replaceChildren(
    ...state.choices.map((text, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.disabled = !state.open;
      button.setAttribute("aria-pressed", String(state.choice === i));
      button.addEventListener("click", () => vote(state.question, i));
      return button;
    }),
  );
  message.textContent = !state.question ? "Waiting for a question …"
    : !state.open ? "The vote is closed."
    : state.choice === null ? "Choose one." : "Your vote is counted. You can change it.";
}

async function vote(question, choice) {
  try {
    draw(await ask("vote/cast", { question, choice }));
  } catch (error) {
    message.textContent = error.message;
  }
}

async function poll() {
  try {
    draw(await ask("vote/state"));
  } catch (error) {
    message.textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  }
  setTimeout(poll, document.hidden ? 4 * POLL_MILLISECONDS : POLL_MILLISECONDS);
}

poll();
