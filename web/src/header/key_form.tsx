// The form for the API key of a server that asks for one.
import { useRef } from "preact/hooks";
import { keyWanted, setKey } from "../state/api";
import { t } from "../text/messages/messages";

export function KeyForm() {
  const input = useRef<HTMLInputElement>(null);
  return (
    <form
      class="panel bar"
      onSubmit={(event) => {
        event.preventDefault();
        setKey(input.current!.value.trim());
      }}
    >
      <label class="control">
        <span>
          {keyWanted.value === "wrong"
            ? t("Wrong API key. Enter the API key of this server:")
            : t("This server requires an API key:")}
        </span>
        <input ref={input} type="password" data-testid="key" autocomplete="off" required />
      </label>
      <button class="button main" data-testid="key-send">
        {t("Open")}
      </button>
    </form>
  );
}
