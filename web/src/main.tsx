// The page: the header, the open tab, and what may stand above it.
import "./style.css";
import { render } from "preact";
import { Alert, Button } from "./controls/controls";
import { ErrorBoundary } from "./controls/error_boundary";
import { Toast } from "./controls/toast";
import { Header } from "./header/header";
import { KeyForm } from "./header/key_form";
import { bundle, keyWanted, serverError, start } from "./state/api";
import { presenter } from "./state/preferences";
import { parse, restore, stateText, tab } from "./state/url";
import { tabById } from "./tabs/tabs";
import { language, t } from "./text/messages/messages";
import { Tour } from "./tour/tour";

function connectAgain(): void {
  serverError.value = "";
  void start();
}

function Page() {
  const { id, view: View } = tabById(tab.value) ?? tabById("alignment")!;
  document.documentElement.lang = language.value;
  document.documentElement.dataset.presenter = String(presenter.value);
  return (
    <>
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("content")!.focus();
        }}
      >
        {t("Skip to content")}
      </a>
      <Header current={id} />
      <main id="content" tabIndex={-1} data-testid={`view-${id}`}>
        {keyWanted.value && <KeyForm />}
        {serverError.value && !keyWanted.value && (
          <Alert testid="server-error">
            {serverError.value}{" "}
            <Button onClick={connectAgain} testid="connect-again">
              {t("Try again")}
            </Button>
          </Alert>
        )}
        <ErrorBoundary state={stateText()}>
          <View />
        </ErrorBoundary>
      </main>
      <Tour />
      <Toast />
    </>
  );
}

if (bundle && !parse(location.hash).size) restore(bundle.state);
void start();
render(<Page />, document.getElementById("page")!);
